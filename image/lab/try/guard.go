package try

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/process"
)

// Guard ends an appliance whose supervisor was killed: systemd takes no signal of its parent's death, and would go on
// without networks. It returns when the other end of in, which the supervisor alone holds, is closed, and the appliance
// with the process number and the start time of the words has ended.
func Guard(in io.Reader, words []string) error {
	if _, err := io.Copy(io.Discard, in); err != nil {
		return fmt.Errorf("guard appliance: %w", err)
	}

	pid, err := strconv.Atoi(words[0])
	if err != nil {
		return fmt.Errorf("guard appliance: %w", err)
	}

	appliance, err := process.Identify(pid)
	if err != nil || strconv.FormatUint(appliance.Start, 10) != words[1] {
		return nil // it has ended; its number may be another's by now
	}

	return errors.Join(appliance.Terminate(0), container.RemoveCgroups(cgroup))
}

// guard is the process that Guard runs in.
type guard struct {
	cmd *exec.Cmd
	in  io.Closer
}

// startGuard starts it: words is the command line by which Guard is reached.
func startGuard(words []string, appliance process.ID) (*guard, error) {
	cmd := exec.Command(words[0], append(words[1:len(words):len(words)],
		strconv.Itoa(appliance.PID), strconv.FormatUint(appliance.Start, 10))...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what is sent to the supervisor's group is not meant for it
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("guard appliance: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("guard appliance: %w", err)
	}

	return &guard{cmd: cmd, in: in}, nil
}

// end lets it end, after the appliance.
func (g *guard) end() error {
	if err := g.in.Close(); err != nil {
		return fmt.Errorf("guard appliance: %w", err)
	}
	return g.cmd.Wait()
}
