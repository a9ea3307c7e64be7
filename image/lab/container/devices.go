package container

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// devices are those of the appliance, by major and minor number (Documentation/admin-guide/devices.txt of the kernel).
// No disk is among them.
var devices = []struct {
	name         string
	major, minor uint32
	mode         uint32
}{
	{"null", 1, 3, 0o666},
	{"zero", 1, 5, 0o666},
	{"full", 1, 7, 0o666},
	{"random", 1, 8, 0o666},
	{"urandom", 1, 9, 0o666},
	{"kmsg", 1, 11, 0o600}, // the kubelet reads there what the kernel ended for lack of memory
	{"tty", 5, 0, 0o666},
	{"fuse", 10, 229, 0o666},
	{"net/tun", 10, 200, 0o666},
}

func (p Plan) makeDevices(root string) error {
	dev := root + "/dev/"
	if err := os.MkdirAll(dev+"net", 0o755); err != nil {
		return err
	}

	for _, d := range devices {
		if p.User {
			if err := bindDevice(d.name, dev); err != nil {
				return err
			}
			continue
		}
		if err := unix.Mknod(dev+d.name, unix.S_IFCHR|d.mode, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return fmt.Errorf("make device %s: %w", d.name, err)
		}
		if err := os.Chmod(dev+d.name, os.FileMode(d.mode)); err != nil { // whatever the umask
			return err
		}
	}
	if err := os.Symlink("pts/ptmx", dev+"ptmx"); err != nil {
		return err
	}

	// A device node is no regular file, so Bind would not keep it; nothing of that name is there yet.
	if err := os.WriteFile(dev+"console", nil, 0o600); err != nil {
		return err
	}
	if err := unix.Mount(p.Console, dev+"console", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s on console: %w", p.Console, err)
	}

	return nil
}

// bindDevice shows one of this machine's devices in dev: nobody makes a device in a user namespace. One that this user
// may not open, and the kernel's log, is left out; the kubelet and journald do without the log there.
func bindDevice(name, dev string) error {
	file := "/dev/" + name
	if name == "kmsg" || unix.Access(file, unix.R_OK|unix.W_OK) != nil {
		return nil
	}
	return Bind(file, dev+name, 0)
}
