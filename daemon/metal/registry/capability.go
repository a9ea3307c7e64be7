package registry

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dropCapabilities gives up what this process may do beyond its user, for good and for all of its threads. Root, who
// runs it by hand, stays root.
func dropCapabilities() error {
	if os.Geteuid() == 0 {
		return nil
	}

	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var now [2]unix.CapUserData
	if err := unix.Capget(&header, &now[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	if now == ([2]unix.CapUserData{}) {
		return nil
	}

	// Of one thread alone it would mean nothing: Go runs everything on any of them.
	var none [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(
		unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0,
	)
	if errno != 0 {
		return fmt.Errorf("give up capabilities: %w", errno)
	}

	return nil
}
