package virtualrack

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/image/lab"
)

// programs that a rack is made of, with the package of Debian that has them.
var programs = []struct{ name, from string }{
	{"qemu-system-x86_64", "qemu-system-x86"}, {"qemu-img", "qemu-utils"}, {"qemu-io", "qemu-utils"},
	{"ipmi_sim", "openipmi"}, {"curl", "curl"}, {"ssh", "openssh-client"},
}

// Create writes a new rack into dir: what it is, its secrets, its site. A rack that is there is
// kept; it must be the one that is ordered, but for Capture, which counts from its next start on.
// program is the firstlight command, for ssh.
func Create(dir, program string, o Order) error {
	if err := o.Check(); err != nil {
		return fmt.Errorf("make rack: %w", err)
	}

	have, err := readRackDoc(dir)
	same := have.Order
	same.Capture = o.Capture
	switch {
	case err == nil && same != o:
		return fmt.Errorf(
			"make rack: there is another one in %s: %s; `firstlight lab down --remove` removes it", dir,
			describeDifferences(have.Order, o),
		)
	case err == nil:
		return errors.Join(
			have.setCapture(dir, o.Capture), writeSSHConfig(dir, program, o),
		) // the program may have moved
	case !errors.Is(err, NoRack):
		return err
	}

	if _, err := os.Stat(o.Image); err != nil {
		return fmt.Errorf("make rack: %w; `firstlight build` makes the image", err)
	}
	if err := checkSystem(o); err != nil {
		return fmt.Errorf("make rack: %w", err)
	}
	if err := checkVacant(dir); err != nil {
		return fmt.Errorf("make rack: %w", err)
	}
	if err := checkEquipment(o); err != nil { // before there is a rack of this size
		return fmt.Errorf("make rack: %w", err)
	}

	return writeRack(dir, program, o)
}

// writeRack writes the files of a new rack.
func writeRack(dir, program string, o Order) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make rack: %w", err)
	}
	if err := lab.LinkImage(o.Image, filepath.Join(dir, stickImage)); err != nil {
		return fmt.Errorf("make rack: %w", err)
	}

	key, err := mintKey(filepath.Join(dir, sshDir))
	if err != nil {
		return err
	}

	password := make([]byte, 8) // IPMI takes 16 or 20 characters
	if _, err := rand.Read(password); err != nil {
		return fmt.Errorf("make rack: %w", err)
	}

	m := rackDoc{Order: o, Password: hex.EncodeToString(password), Made: time.Now()}
	text, err := Plan(o).SiteDocument(m.Password, key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, siteFile), []byte(text), 0o600); err != nil {
		return fmt.Errorf("make rack: %w", err)
	}
	if o.System != "" {
		if err := makeSystem(dir, program, o, text, key); err != nil {
			return fmt.Errorf("make rack: %w", err)
		}
	}

	// Last: what was cut off before is made anew.
	return errors.Join(writeSSHConfig(dir, program, o), writeJSON(filepath.Join(dir, rackFile), m))
}

// setCapture has what passes the switches of a rack captured, or no more.
func (m rackDoc) setCapture(dir string, all bool) error {
	if m.Order.Capture == all {
		return nil
	}

	var r runningFileDoc
	if err := readJSON(filepath.Join(dir, runningFile), &r); err == nil && r.Supervisor.Alive() {
		return fmt.Errorf(
			"make rack: the one in %s is on; `firstlight lab down` first, capture begins and ends with `up`", dir,
		)
	}

	m.Order.Capture = all
	return writeJSON(filepath.Join(dir, rackFile), m)
}

// IsOutdated tells whether the image was built anew since the rack in dir was made of it. A copy
// is compared by its size only.
func IsOutdated(dir string, o Order) bool {
	own, err := os.Stat(filepath.Join(dir, stickImage))
	now, err2 := os.Stat(o.Image)
	if err != nil || err2 != nil || os.SameFile(own, now) {
		return false
	}

	return own.Size() != now.Size() || now.ModTime().After(own.ModTime())
}

func writeSSHConfig(dir, program string, o Order) error {
	return os.WriteFile(filepath.Join(dir, sshDir, configFile), []byte(sshConfig(Plan(o), dir, program)), 0o600)
}

// describeDifferences says in which way two orders are not the same.
func describeDifferences(have, want Order) string {
	var all []string
	for _, d := range []struct {
		what       string
		have, want any
	}{
		{"image", have.Image, want.Image}, {"system", have.System, want.System}, {"model of the appliance's cards", have.NICModel, want.NICModel}, {"nodes", have.Nodes, want.Nodes}, {"firmware", have.Firmware, want.Firmware}, {"BMCs", have.BMC, want.BMC}, {"memory", have.MiB, want.MiB},
		{"disk", have.DiskGiB, want.DiskGiB}, {"disks", have.Disks, want.Disks}, {"nics", have.NICs, want.NICs}, {"gateway", have.Gateway, want.Gateway},
		{"appliance memory", have.Appliance, want.Appliance}, {"appliance processors", have.CPUs, want.CPUs}, {"stick", have.StickGiB, want.StickGiB}, {"cluster", have.Cluster, want.Cluster},
		{"empty site", have.EmptySite, want.EmptySite}, {"discovery", have.Discover, want.Discover},
		{"tag of the provisioning network", have.VLAN, want.VLAN}, {"bond", have.Bond, want.Bond},
	} {
		if d.have != d.want {
			all = append(all, fmt.Sprintf("%s is %v, asked is %v", d.what, d.have, d.want))
		}
	}
	return strings.Join(all, ", ")
}

// ReadOrder is the order of the rack in dir; ok is false if there is none.
func ReadOrder(dir string) (o Order, ok bool, err error) {
	m, err := readRackDoc(dir)
	if errors.Is(err, NoRack) {
		return Order{}, false, nil
	}
	return m.Order, err == nil, err
}

// checkEquipment tells whether this machine has what a rack needs to be on.
func checkEquipment(o Order) error {
	for _, p := range programs {
		if _, err := exec.LookPath(p.name); err != nil {
			return fmt.Errorf("%s is not installed; `scripts/deps lab` installs it (package %s)", p.name, p.from)
		}
	}

	for _, c := range Plan(o).Machines() {
		if err := lab.CheckFirmware(c.Firmware); err != nil {
			return err
		}
	}

	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return err
	}

	return checkMemory(o, string(text))
}

// checkMemory tells whether the machines' memory is there. Where it is not, the kernel ends one QEMU after the other,
// hours later.
func checkMemory(o Order, meminfo string) error {
	free, known := freeMiB(meminfo)
	if need := o.Appliance + o.Nodes*o.MiB; known && need > free {
		return fmt.Errorf("%d nodes and the appliance need %d MiB of memory, %d MiB are free here; take fewer (--nodes), smaller ones (--memory, --appliance-memory), or end something else",
			o.Nodes, need, free)
	}
	return nil
}

// Start switches the rack in dir on, in a process of its own that outlives this one: argv, which
// must call Supervise. fresh is false if it was on already; that run goes on as it was decided.
func Start(ctx context.Context, dir string, run Run, argv ...string) (fresh bool, err error) {
	c := Client{Dir: dir}
	if _, err := c.Status(ctx); err == nil || !errors.Is(err, NotRunning) {
		return false, err
	}

	m, err := readRackDoc(dir)
	if err != nil {
		return false, err
	}
	if err := checkEquipment(m.Order); err != nil {
		return false, fmt.Errorf("start rack: %w", err)
	}

	m.Run = run
	if err := writeJSON(filepath.Join(dir, rackFile), m); err != nil {
		return false, fmt.Errorf("start rack: %w", err)
	}

	return true, start(ctx, dir, argv...)
}

// start starts the supervisor and returns when it answers.
func start(ctx context.Context, dir string, argv ...string) error {
	if _, err := TearDown(dir); err != nil { // what a crash has left
		return err
	}

	c := Client{Dir: dir}
	logPath := filepath.Join(dir, supervisorLog)
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start rack: %w", err)
	}
	defer log.Close()

	info, err := log.Stat()
	if err != nil {
		return fmt.Errorf("start rack: %w", err)
	}
	// What the caller has open, such as a lock, must not stay open as long as the rack is on.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("start rack: keep open files from it: %w", err)
	}

	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start rack: %w", err)
	}

	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		if _, err := c.Status(ctx); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("start rack: its supervisor ended: %v: %s", err, tail(logPath, info.Size()))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tail is what a log has gained since it had from bytes.
func tail(path string, from int64) string {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || int64(len(text)) < from {
		return "it said nothing"
	}
	return strings.TrimSpace(string(text[from:]))
}
