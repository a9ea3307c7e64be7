// Package userns runs programs as root of a user namespace of their own: what an ordinary user can be without the rights
// of root. Its IDs are the user's own, which is 0 there, and those that /etc/subuid and /etc/subgid give him, which
// newuidmap(1) and newgidmap(1) map.
//
// The kernel gives a process all capabilities in the namespace only when it starts a program after its IDs are mapped,
// and only a process outside can map them. So the program that asks starts itself three times, by Stages.
package userns

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/image/lab/process"
)

// Stages, as words on the command line by which Main is reached.
const (
	StageMake = "make" // it starts a process in a new namespace, maps its IDs and waits for its end
	stageWait = "wait" // it is in there, without IDs and rights, until they are mapped
	stageRun  = "run"  // it is root in there and becomes the program
)

// LeastIDs is how many subordinate IDs a namespace needs: those that programs and files of a system have.
const LeastIDs = 65536

// Wrap is the command line that runs words as root of a new user namespace and a new mount namespace. again is this
// program's command line by which Main is reached, without the stage and what follows.
func Wrap(again []string, words ...string) []string {
	return append(append(append([]string{}, again...), StageMake, "--"), words...)
}

// Main is what Wrap leads to. It returns without an error if words did, and *exec.ExitError if they did not.
// again is the command line by which it is reached, with the program.
func Main(again []string, stage string, words []string) error {
	switch {
	case len(words) == 0:
		return errors.New("make user namespace: no program is named")
	case stage == StageMake:
		return makeNamespace(again, words)
	case stage == stageWait:
		return awaitIDs(again, words)
	case stage == stageRun:
		return becomeProgram(words)
	}
	return fmt.Errorf("make user namespace: there is no stage %s", stage)
}

// mappedFile is the descriptor that says by its end that the IDs are mapped.
const mappedFile = 3

func makeNamespace(again, words []string) error {
	arguments, err := readMappings()
	if err != nil {
		return fmt.Errorf("make user namespace: %w", err)
	}

	inner, outer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make user namespace: %w", err)
	}
	defer outer.Close()

	cmd := exec.Command(again[0], append(append(append([]string{}, again[1:]...), stageWait, "--"), words...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{inner}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS}
	child, err := process.Start(cmd)
	inner.Close()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("make user namespace: %w; the kernel allows none to users: see user.max_user_namespaces, "+
			"kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns", err)
	}
	if err != nil {
		return fmt.Errorf("make user namespace: %w", err)
	}

	for _, m := range arguments {
		words := append([]string{strconv.Itoa(child.ID.PID)}, m.words...)
		if said, err := exec.Command(m.program, words...).CombinedOutput(); err != nil {
			child.Kill()
			return fmt.Errorf("make user namespace: %s: %w: %s", m.program, err, strings.TrimSpace(string(said)))
		}
	}

	if _, err := outer.Write([]byte{'\n'}); err != nil {
		child.Kill()
		return fmt.Errorf("make user namespace: its first process ended: %w", errors.Join(child.Err(), err))
	}

	<-child.Done()
	return child.Err()
}

// awaitIDs starts this program again once its IDs are mapped: from then on it has the rights of root.
func awaitIDs(again, words []string) error {
	mapped := os.NewFile(mappedFile, "mapped")
	if _, err := io.ReadFull(mapped, make([]byte, 1)); err != nil {
		return fmt.Errorf("await IDs of user namespace: %w", err)
	}
	_ = mapped.Close()

	next := append(append(append([]string{}, again...), stageRun, "--"), words...)
	return fmt.Errorf("start again: %w", unix.Exec("/proc/self/exe", next, os.Environ()))
}

// becomeProgram becomes words. The process ends with the one that mapped its IDs; the kernel forgot that when it gave
// this one rights.
func becomeProgram(words []string) error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("end with who asked: %w", err)
	}

	path, err := exec.LookPath(words[0])
	if err != nil {
		return fmt.Errorf("run as root of a user namespace: %w", err)
	}
	return fmt.Errorf("run %s: %w", path, unix.Exec(path, words, os.Environ()))
}
