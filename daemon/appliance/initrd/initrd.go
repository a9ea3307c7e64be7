// Package initrd is what PID 1 of the initramfs does. It finds the disk the firmware
// started from among all others, checks and mounts its root, and switches to systemd.
// It never gives up and never writes to a disk: when it cannot continue it says so on the
// screen and the serial line, with what it looked for and what it sees, and tries again.
// docs/boot.md walks through it.
package initrd

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/u-root/u-root/pkg/mount"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/stick"
)

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

// Boot starts the appliance's system. It returns only what no waiting can repair: a wrong
// command line, an initramfs that does not fit the kernel.
func Boot() error {
	for _, m := range early {
		// The kernel may have mounted /dev itself.
		if err := mountDir(
			m.source, m.dir, m.fstype, m.options, unix.MS_NOSUID,
		); err != nil && !errors.Is(err, unix.EBUSY) {
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
	if p.trial {
		limitTrial(screen)
	}
	fmt.Fprintf(screen, "Firstlight %s: looking for the stick\n", p.version)
	if err != nil {
		return err
	}

	socket, err := openUevents() // before coldplug, see there
	if err != nil {
		return err
	}

	events := make(chan uevent, 256)
	go readUevents(socket, events)

	drivers, err := loadDrivers(log)
	if err != nil {
		return err
	}

	return startFromStick(newSearch(p, drivers, events, screen), log)
}

// trialLimit is how long a version that is tried may take until systemd runs.
const trialLimit = 5 * time.Minute

// limitTrial restarts the machine when a version that is tried has not started systemd in time, whatever it does
// meanwhile: the boot loader then starts the other slot. Nothing is written here that could be lost.
func limitTrial(screen io.Writer) {
	time.AfterFunc(trialLimit, func() {
		fmt.Fprintf(screen, "Firstlight: the version that is tried has not started in %s; back to the one before\n", trialLimit)
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // if that fails too, somebody must switch it off
	})
}

// loadDrivers begins to load what the boot needs, and what drives the devices that are there already.
func loadDrivers(log *slog.Logger) (*loader, error) {
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		return nil, err
	}

	drivers, err := newLoader(unix.ByteSliceToString(uname.Release[:]), log)
	if err != nil {
		return nil, fmt.Errorf("the initramfs is not for this kernel: %w", err)
	}

	for _, m := range needed {
		drivers.start(m)
	}

	if err := drivers.coldplug(); err != nil {
		return nil, fmt.Errorf("look for devices: %w", err)
	}

	return drivers, nil
}

// startFromStick starts from the stick once it is found, and again from whichever is found next if that fails.
func startFromStick(s *search, log *slog.Logger) error {
	for {
		boot, err := s.find()
		if err != nil {
			return err
		}

		log.Info("boot disk found", "disk", boot.Disk.Path, "after", time.Since(s.started).Round(time.Millisecond))

		for _, m := range needed {
			<-s.drivers.start(m)
		}

		err = start(boot, s.params, s.screen)
		tearDown()
		io.WriteString(s.screen, failureScreen(boot, err))
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

	err = switchRoot(b, screen)
	stopWatcher()
	return err
}

// prepareRoot checks all that the switch to root needs, and gives root its machine-id and its version.
func prepareRoot(b *stick.BootInfo, root string) error {
	if err := checkInit(root); err != nil {
		return err
	}
	if err := checkMountPoints(root); err != nil {
		return err
	}
	if err := writeMachineID(b, root); err != nil {
		return err
	}

	return nameVersion(root, b.Version)
}

// switchRoot makes newRoot the root and systemd PID 1; it returns only if that fails.
func switchRoot(b stick.BootInfo, screen io.Writer) error {
	if err := prepareRoot(&b, newRoot); err != nil {
		return err
	}
	if err := stick.Save(stick.BootInfoFile, b); err != nil {
		return err
	}

	io.WriteString(screen, handoverLine(b))
	return mount.SwitchRoot(newRoot, systemd)
}

// kmsgWriter writes lines to the kernel's log: level 6 (informational), with a name.
type kmsgWriter struct{ w io.Writer }

func (p kmsgWriter) Write(b []byte) (int, error) {
	_, err := p.w.Write(append([]byte("<6>firstlight-init: "), b...))
	return len(b), err
}
