// Command firstlight-init is PID 1 of the initramfs. It finds the disk the firmware
// started from among all others, checks and mounts its root, and hands over to systemd.
// It never gives up and never writes to a disk: when it cannot go on it says so on the
// screen and the serial line, with what it looked for and what it sees, and tries again.
// docs/boot.md walks through it.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/u-root/u-root/pkg/mount"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/stick"
)

func main() {
	if len(os.Args) == 3 && os.Args[0] == watchArgument {
		if err := watch(os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, watchArgument, err)
			os.Exit(1)
		}
	}
	log.SetOutput(io.Discard) // u-root tells every step of switch_root
	err := run()
	// Only a failure comes back here. PID 1 must not end: the kernel would panic.
	for {
		io.WriteString(openConsoles(), stuckScreen(err))
		time.Sleep(30 * time.Second)
	}
}

// early is mounted first, in this order.
var early = []struct{ source, dir, fstype, options string }{
	{"devtmpfs", "/dev", "devtmpfs", "mode=0755"},
	{"proc", "/proc", "proc", ""},
	{"sysfs", "/sys", "sysfs", ""},
	{"tmpfs", "/run", "tmpfs", "mode=0755"},
}

// needed are the modules no device asks for. sha256 comes before dm-verity: the faster
// code for this CPU, where there is some.
var needed = []string{"sha256_ssse3", "dm_verity", "squashfs", "overlay", "sd_mod", "ext4"}

func run() error {
	for _, m := range early {
		// The kernel may have mounted /dev itself.
		if err := mountDir(m.source, m.dir, m.fstype, m.options, unix.MS_NOSUID); err != nil && !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
	kmsg, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(kmsgWriter{kmsg}, nil))
	screen := openConsoles()
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	p, err := parseParams(string(cmdline))
	fmt.Fprintf(screen, "Firstlight %s: looking for the stick\n", p.version)
	if err != nil {
		return err
	}
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		return err
	}
	socket, err := openUevents() // before coldplug, see there
	if err != nil {
		return err
	}
	events := make(chan uevent, 256)
	go readUevents(socket, events)
	drivers, err := newLoader(unix.ByteSliceToString(uname.Release[:]), log)
	if err != nil {
		return fmt.Errorf("the initramfs is not for this kernel: %w", err)
	}
	for _, m := range needed {
		drivers.start(m)
	}
	if err := drivers.coldplug(); err != nil {
		return fmt.Errorf("look for devices: %w", err)
	}

	s := newSearch(p, drivers, events, screen)
	for {
		boot, err := s.find()
		if err != nil {
			return err
		}
		boot.Version = p.version
		log.Info("boot disk found", "disk", boot.Disk.Path, "after", time.Since(s.started).Round(time.Millisecond))
		for _, m := range needed {
			<-drivers.start(m)
		}
		err = start(boot, p, screen)
		tearDown()
		io.WriteString(screen, failureScreen(boot, err))
		s.drainEvents(10 * time.Second)
	}
}

// start boots from the disk; it returns only if that fails.
func start(b stick.BootInfo, p params, screen io.Writer) error {
	if err := os.MkdirAll(stick.RunDir, 0o755); err != nil {
		return err
	}
	if err := buildRoot(&b, p.verity); err != nil {
		return err
	}
	stopWatcher, err := startWatcher(b.Verity.Device, b.Disk.Path)
	if err != nil {
		return err
	}
	err = func() error {
		if err := checkInit(newRoot); err != nil {
			return err
		}
		if err := checkMountPoints(newRoot); err != nil {
			return err
		}
		if err := writeMachineID(&b, newRoot); err != nil {
			return err
		}
		if err := nameVersion(newRoot, b.Version); err != nil {
			return err
		}
		if err := stick.Save(stick.BootInfoFile, b); err != nil {
			return err
		}
		io.WriteString(screen, handoverLine(b))
		return mount.SwitchRoot(newRoot, systemd)
	}()
	stopWatcher()
	return err
}

// kmsgWriter writes lines to the kernel's log: level 6 (informational), with a name.
type kmsgWriter struct{ w io.Writer }

func (p kmsgWriter) Write(b []byte) (int, error) {
	_, err := p.w.Write(append([]byte("<6>firstlight-init: "), b...))
	return len(b), err
}
