package launcher

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Requests to /dev/kvm (Linux, include/uapi/linux/kvm.h), and the one version that there is of them.
const (
	kvmGetAPIVersion = 0xae00
	kvmCreateVM      = 0xae01
	kvmCreateVCPU    = 0xae41
	kvmAPIVersion    = 12
)

// CheckKVM makes a machine with one processor and lets it go. That the device exists says nothing: it may be there where
// the processor, or what this machine itself runs on, has no virtualization.
func CheckKVM(device string) error {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	version, err := unix.IoctlRetInt(int(f.Fd()), kvmGetAPIVersion)
	if err != nil {
		return fmt.Errorf("ask %s for its version: %w", device, err)
	}
	if version != kvmAPIVersion {
		return fmt.Errorf("%s has version %d, not %d", device, version, kvmAPIVersion)
	}

	machine, err := unix.IoctlRetInt(int(f.Fd()), kvmCreateVM)
	if err != nil {
		return fmt.Errorf("create a machine: %w", err)
	}
	processor, err := unix.IoctlRetInt(machine, kvmCreateVCPU)
	if err != nil {
		return errors.Join(fmt.Errorf("create a processor: %w", err), unix.Close(machine))
	}
	return errors.Join(unix.Close(processor), unix.Close(machine))
}

// KVMDevice is what the kernel offers.
const KVMDevice = "/dev/kvm"
