package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/image/lab/process"
)

// Start starts the appliance that the plan describes, in new namespaces, as a child of this process. file is where the
// plan is kept, and first the command line by which FirstProcess is reached, without its last two words. connect is
// called with the child's PID when its network can be entered and before its systemd starts. When Start returns, commands
// may enter all of it.
func Start(p Plan, file string, first []string, connect func(pid int) error) (*process.Child, error) {
	text, err := json.MarshalIndent(p, "", "  ")
	if err == nil {
		err = errors.Join(
			os.MkdirAll(p.Mount, 0o700), os.MkdirAll(p.Data, 0o755), atomicfile.Write(file, append(text, '\n'), 0o600),
		)
	}
	if err != nil {
		return nil, fmt.Errorf("start appliance: %w", err)
	}

	cmd := exec.Command(first[0], append(first[1:len(first):len(first)], StageEnter, file)...)
	cmd.Stderr = os.Stderr // the supervisor's log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID |
		syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET}
	ready, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start appliance: %w", err)
	}

	mounted, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start appliance: %w", err)
	}

	appliance, err := process.Start(cmd)
	if err != nil {
		return nil, err
	}

	// While it becomes another program its namespaces cannot be entered.
	if _, err := mounted.Read(make([]byte, 1)); err != nil {
		appliance.Kill()
		return nil, fmt.Errorf("start appliance: its first process ended: %w", errors.Join(appliance.Err(), err))
	}

	if err := connect(appliance.ID.PID); err != nil {
		appliance.Kill()
		return nil, errors.Join(err, appliance.Err())
	}

	if _, err := ready.Write([]byte{'\n'}); err != nil {
		appliance.Kill()
		return nil, fmt.Errorf("start appliance: its first process ended: %w", errors.Join(appliance.Err(), err))
	}

	// It gives its output up when it has the appliance's root. Until then a command that entered it would run on this
	// machine's.
	_, _ = io.Copy(io.Discard, mounted) // or it has ended, which appliance says
	return appliance, nil
}

// Restarts reports whether the first process of a PID namespace ended by a restart of its system: reboot(2) says by
// which signal. ended is what process.Child.Err returned.
func Restarts(ended error) bool { return endedBy(ended, syscall.SIGHUP) }

// IsSwitchedOff reports whether it ended because its system was switched off or halted, or told to exit.
func IsSwitchedOff(ended error) bool { return ended == nil || endedBy(ended, syscall.SIGINT) }

func endedBy(ended error, signal syscall.Signal) bool {
	var exit *exec.ExitError
	if !errors.As(ended, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == signal
}

// environment is that of the appliance's root shell.
var environment = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
}

// Command is a command that will run in the appliance whose first process has that PID.
func Command(ctx context.Context, pid int, words ...string) *exec.Cmd {
	enter := []string{
		"--target", strconv.Itoa(pid), "--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "--root",
		"--wd", "--", // that of systemd: a directory named here would be this machine's
	}
	if os.Geteuid() != 0 { // the user namespace comes first: the rights to enter the others are its owner's
		enter = append([]string{"--user"}, enter...)
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(enter, words...)...)
	cmd.Env = environment
	return cmd
}

// Become makes this process a command of Command, so that its exit code and its terminal are the command's own. Like
// all that runs in the appliance it can change neither this machine's clock nor its modules. It returns only with an
// error.
func Become(cmd *exec.Cmd) error {
	if cmd.Err != nil {
		return fmt.Errorf("enter the appliance: %w", cmd.Err)
	}

	runtime.LockOSThread() // what it gives up is the thread's
	if os.Geteuid() == 0 { // else it has none: a user namespace gives none over what is the machine's
		if err := DropCapabilities(); err != nil {
			return err
		}
	}

	return fmt.Errorf("run %s: %w", cmd.Path, unix.Exec(cmd.Path, cmd.Args, cmd.Env))
}
