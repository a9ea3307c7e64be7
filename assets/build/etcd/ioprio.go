package main

import (
	"fmt"
	"os"
	"syscall"
)

// ioprio_set(2), of which package syscall has only the number.
const (
	whoProcess = 1

	classShift    = 13
	classRealTime = 1
	levelDefault  = 4
)

// raiseIOPriority puts this program's reads and writes before those of all others in the queue of the disk.
// etcd writes little and waits for each write to reach the medium; everything in Kubernetes waits with
// it, and on a stick that is busy with an upload a write may take seconds.
//
// The kernel keeps the class for each thread, and Go has started some by now: the program begins anew
// in the class, once. It needs the capability SYS_NICE.
func raiseIOPriority() error {
	const priority = classRealTime<<classShift | levelDefault

	now, _, errno := syscall.Syscall(syscall.SYS_IOPRIO_GET, whoProcess, 0, 0)
	if errno != 0 {
		return fmt.Errorf("ask for the class of disk access: %w", errno)
	}
	if now == priority {
		return nil
	}

	if _, _, errno := syscall.Syscall(syscall.SYS_IOPRIO_SET, whoProcess, 0, priority); errno != 0 {
		return fmt.Errorf("set the class of disk access: %w", errno)
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("begin anew in another class of disk access: %w", err)
	}
	return syscall.Exec(program, os.Args, os.Environ())
}
