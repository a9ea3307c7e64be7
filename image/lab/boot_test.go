package lab_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/image/disk/disktest"
	"firstlight.dev/firstlight/image/lab"
	"firstlight.dev/firstlight/image/lab/accelerator"
)

// Lines by which a boot is followed; the programs that print them have golden tests.
const (
	lineInit    = ": looking for the stick"          // firstlight-init runs
	lineStarts  = ": starts from "                   // the root is found, checked and mounted
	lineSystemd = "Welcome to "                      // systemd runs
	lineDecided = "storage decided"                  // firstlight-storage.service runs
	lineWritten = "partition table written"          // systemd-repart has ended
	lineData    = "storage: data on /dev/"           // DATA is mounted
	lineNoRoom  = "storage: volatile: "              // and why
	lineRefused = "bad shim signature"               // GRUB, Secure Boot
	lineNoStart = "cannot start from it"             // firstlight-init's screen
	lineDamaged = "THE STICK IS DAMAGED: "           // the watcher's screen
	lineUp      = "Reached target multi-user.target" // all is started
)

const gib = 1 << 30

// TestFirstBoots starts the stick on UEFI as USB with a second disk in the machine, and
// once more: DATA is made on the stick alone, and the second boot is the same appliance.
func TestFirstBoots(t *testing.T) {
	image := needImage(t, "qemu")
	foreign, before := foreignDisk(t)
	m := newMachine(t, lab.Config{Firmware: lab.UEFI, Disks: []lab.Disk{
		{Image: image, Bus: lab.USB, Bytes: 4 * gib},
		{Image: foreign, Bus: lab.Virtio, Direct: true},
	}})
	first := startsFrom(t, m)
	assert.Equal(t, "minted", first.idSource)
	made := see(t, m, lineDecided)
	assert.Regexp(t, `action=make`, made)
	see(t, m, lineData)
	see(t, m, lineUp)
	powerOff(t, m)

	second := startsFrom(t, m)
	assert.Equal(t, "data", second.idSource)
	assert.Equal(t, first.id, second.id, "machine-id of the second boot")
	assert.Equal(t, first.disk, second.disk)
	kept := see(t, m, lineDecided)
	assert.Regexp(t, `action=keep`, kept)
	data := see(t, m, lineData)
	powerOff(t, m)
	assert.Equal(t, before, digest(t, foreign), "the other disk has been written to")

	lines := []string{first.line, made, "...", second.line, kept, data}
	goldentest.WriteBlock(t, "../../docs/tests.md", "first boots", strings.Join(lines, "\n")+"\n")
}

// TestKilledDuringFirstBoot cuts the power at five moments of the first boot of one
// stick, each later than the one before, and once more when DATA is in use.
func TestKilledDuringFirstBoot(t *testing.T) {
	image := needImage(t, "qemu")
	m := newMachine(t, lab.Config{Disks: []lab.Disk{{Image: image, Bus: lab.USB, Bytes: 4 * gib}}})
	for _, moment := range []struct {
		name, line string
		later      time.Duration
	}{
		{"initramfs", lineInit, 0},
		{"systemd started", lineSystemd, 0},
		{"before DATA is made", lineDecided, 0},
		{"while DATA is formatted", lineDecided, 1500 * time.Millisecond},
		{"partition table written, not mounted", lineWritten, 0},
		{"DATA in use", lineData, 2 * time.Second},
	} {
		require.NoError(t, m.Start(t.Context()), moment.name)
		if moment.line == lineWritten && strings.Contains(see(t, m, lineDecided), "action=keep") {
			// The cut before it came late, when the table was written already: that was this moment.
			t.Logf("met by the cut before: %s", moment.name)
			require.NoError(t, m.Kill())
			continue
		}
		see(t, m, moment.line)
		time.Sleep(moment.later)
		require.NoError(t, m.Kill())
		t.Logf("power cut: %s", moment.name)
	}
	last := startsFrom(t, m)
	assert.Equal(t, "data", last.idSource, "machine-id after power cuts")
	assert.Regexp(t, `action=keep`, see(t, m, lineDecided))
	see(t, m, lineData)
	see(t, m, lineUp)
}

// TestSecureBootAndNoRoom starts a stick that is exactly as large as the image with
// Secure Boot enforced: it runs, and says that nothing will be kept.
func TestSecureBootAndNoRoom(t *testing.T) {
	image := needImage(t, "qemu")
	m := newMachine(t, lab.Config{Firmware: lab.SecureBoot, Disks: []lab.Disk{{Image: image, Bus: lab.USB}}})
	startsFrom(t, m)
	assert.Regexp(t, `action=no-room`, see(t, m, lineDecided))
	assert.Contains(t, see(t, m, lineNoRoom), "use a larger stick")
	see(t, m, lineUp)
	powerOff(t, m)
}

// TestSecureBootRefusesChangedKernel changes one byte of the kernel.
func TestSecureBootRefusesChangedKernel(t *testing.T) {
	image := disktest.CopyImage(t, needImage(t, "qemu"))
	flipByte(t, image, kernelOffset(t, image)+1<<20)
	m := newMachine(t, lab.Config{Firmware: lab.SecureBoot, Disks: []lab.Disk{{Image: image, Bus: lab.USB}}})
	require.NoError(t, m.Start(t.Context()))
	see(t, m, lineRefused)
	see(t, m, "Write it again with: firstlight flash")
	for _, line := range m.Console().Lines() {
		assert.NotContains(t, line, lineInit)
	}
}

// TestDamagedRoot changes one byte of the root where every mount reads it.
func TestDamagedRoot(t *testing.T) {
	image := disktest.CopyImage(t, needImage(t, "qemu"))
	at, size := rootData(t, image)
	refusesDamage(t, image, at+size-16) // the last table of a squashfs, read at mount
}

// TestDamagedTables changes one byte that is read when the root is mounted already: every try
// is a whole one, with a reason of its own.
func TestDamagedTables(t *testing.T) {
	image := disktest.CopyImage(t, needImage(t, "qemu-all"))
	m := refusesDamage(t, image, inodeTable(t, image))
	for _, line := range m.Console().Lines() {
		assert.NotContains(t, line, "resource busy")
	}
}

// refusesDamage changes one byte of an image and starts it: the screen says that the stick is
// damaged, again and again.
func refusesDamage(t *testing.T, image string, at int64) *lab.Machine {
	flipByte(t, image, at)
	m := newMachine(t, lab.Config{Disks: []lab.Disk{{Image: image, Bus: lab.Virtio}}})
	require.NoError(t, m.Start(t.Context()))
	for range 3 {
		see(t, m, lineNoStart)
		see(t, m, "firstlight flash")
	}
	return m
}

// TestDamageWhileRunning changes one byte that nothing reads before the system runs: in the
// daemon's program. The screen says so again and again, and the machine still obeys.
func TestDamageWhileRunning(t *testing.T) {
	image := disktest.CopyImage(t, needImage(t, "qemu-all"))
	flipByte(t, image, inodeTable(t, image)-16<<10)
	m := newMachine(t, lab.Config{Disks: []lab.Disk{{Image: image, Bus: lab.USB, Bytes: 4 * gib}}})
	startsFrom(t, m)
	see(t, m, lineDamaged)
	see(t, m, "write the stick again with `firstlight flash`")
	see(t, m, lineDamaged)
	powerOff(t, m)
}

// TestASystemdThatCrashes restarts the machine. As systemd comes, it would freeze until somebody presses a button.
func TestASystemdThatCrashes(t *testing.T) {
	n := newNetworked(t, "qemu-all", 4096)
	first := startsFrom(t, n.Machine)
	n.shell("true")
	_, _ = n.once("kill -SEGV 1") // it may not live to answer
	see(t, n.Machine, "reboot: Restarting system")
	again := startsForm.FindStringSubmatch(see(t, n.Machine, lineStarts))
	require.NotNil(t, again)
	assert.Equal(t, first.id, again[2], "machine-id after the crash")
	see(t, n.Machine, lineUp)
}

// TestBuses starts the stick from every other bus and firmware than the tests above do.
func TestBuses(t *testing.T) {
	image := needImage(t, "qemu-all")
	for _, c := range []struct {
		name     string
		firmware lab.Firmware
		bus      lab.Bus
		device   string
	}{
		{"bios-ahci", lab.BIOS, lab.AHCI, "/dev/sda"},
		{"uefi-ahci", lab.UEFI, lab.AHCI, "/dev/sda"},
		{"uefi-nvme", lab.UEFI, lab.NVMe, "/dev/nvme0n1"},
		{"uefi-virtio", lab.UEFI, lab.Virtio, "/dev/vda"},
		{"bios-usb2", lab.BIOS, lab.EHCI, "/dev/sda"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, lab.Config{Firmware: c.firmware, Disks: []lab.Disk{{Image: image, Bus: c.bus, Bytes: 4 * gib}}})
			assert.Contains(t, startsFrom(t, m).line, c.device)
			assert.Contains(t, see(t, m, lineData), c.device)
			t.Logf("%s of processor time", m.CPU().Round(time.Second))
		})
	}
}

// TestFlashed writes a stick with `firstlight flash`, larger than the image, and starts it
// and a stick that is exactly as large as the image, by BIOS.
func TestFlashed(t *testing.T) {
	image := needImage(t, "qemu-all")
	dir := t.TempDir()
	command := filepath.Join(dir, "firstlight")
	out, err := exec.Command("go", "build", "-o", command, "../../cmd/firstlight").CombinedOutput()
	require.NoError(t, err, "%s", out)
	info, err := os.Stat(image)
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, c := range []struct {
		name, storage string
		bytes         int64
	}{{"larger", lineData, 4 * gib}, {"exactly as large", lineNoRoom, info.Size()}} {
		t.Run(c.name, func(t *testing.T) {
			medium := filepath.Join(t.TempDir(), "medium")
			f, err := os.Create(medium)
			require.NoError(t, err)
			require.NoError(t, errors.Join(f.Truncate(c.bytes), f.Close()))
			out, err := exec.Command(command, "flash", image, medium, "--force-device", medium).CombinedOutput()
			require.NoError(t, err, "%s", out)
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			t.Logf("flash: %s", lines[len(lines)-1])
			m := newMachine(t, lab.Config{Disks: []lab.Disk{{Image: medium, Bus: lab.USB, Direct: true}}})
			id := startsFrom(t, m)
			assert.False(t, seen[id.disk], "two sticks of one image have one GUID")
			seen[id.disk] = true
			see(t, m, c.storage)
		})
	}
}

// TestTwoSticks puts two sticks with the same content and their own GUIDs into one
// machine, as NVMe and as virtio disks, and starts each of them.
func TestTwoSticks(t *testing.T) {
	a := needImage(t, "qemu-all")
	b := disktest.CopyImage(t, a)
	giveOwnGUIDs(t, b)
	disks := []lab.Disk{{Image: a, Bus: lab.NVMe, Bytes: 4 * gib}, {Image: b, Bus: lab.Virtio, Bytes: 4 * gib}}
	m := newMachine(t, lab.Config{Name: "from-nvme", Disks: disks})
	first := startsFrom(t, m)
	assert.Contains(t, first.line, "/dev/nvme0n1")
	assert.Contains(t, see(t, m, lineData), "/dev/nvme0n1p6")
	disks[0], disks[1] = disks[1], disks[0]
	m = newMachine(t, lab.Config{Name: "from-virtio", Disks: disks})
	second := startsFrom(t, m)
	assert.Contains(t, second.line, "/dev/vda")
	assert.Contains(t, see(t, m, lineData), "/dev/vda6")
	assert.NotEqual(t, first.disk, second.disk)
}

// TestTwins puts two byte-identical sticks into one machine: nobody can tell which one
// the firmware started, so nothing is started and the screen says what to do.
func TestTwins(t *testing.T) {
	image := needImage(t, "qemu-all")
	m := newMachine(t, lab.Config{Disks: []lab.Disk{{Image: image, Bus: lab.Virtio}, {Image: image, Bus: lab.Virtio}}})
	require.NoError(t, m.Start(t.Context()))
	see(t, m, "two disks hold an ESP with the same GUID")
	see(t, m, "pull one of the two sticks")
}

// needImage skips unless tests of this kind are asked for and gives the image's path.
func needImage(t testing.TB, kind string) string {
	needKind(t, kind)
	path := os.Getenv("FIRSTLIGHT_IMAGE")
	if path == "" {
		path = "../../build/firstlight.img"
	}
	_, err := os.Stat(path)
	require.NoError(t, err, "no image to boot; `firstlight build` makes it")
	return path
}

// chosen is what runs the processors of all these tests' machines: it is tried once.
var chosen = sync.OnceValues(func() (accelerator.Choice, error) { return accelerator.Choose(context.Background(), "") })

// accel is the kind that was chosen.
func accel(t testing.TB) accelerator.Kind {
	choice, err := chosen()
	require.NoError(t, err)
	t.Log(choice)
	return choice.Kind
}

// newMachine ends with the test; a failure prints how to start it by hand.
func newMachine(t testing.TB, c lab.Config) *lab.Machine {
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	c.MiB, c.Accel = max(c.MiB, 2048), accel(t)
	m, err := lab.New(c)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("QEMU: %s\nconsole:\n%s", m.CommandLine(), m.Console().Tail(200))
		}
		assert.NoError(t, m.Close())
	})
	return m
}

// see waits for a console line and logs it.
func see(t testing.TB, m *lab.Machine, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.BootDeadline)
	defer cancel()
	line, err := m.Console().Wait(ctx, text)
	if err != nil && m.IsRunning() {
		// A guest that waits and an emulator that is stuck look the same from outside.
		t.Logf("processors:\n%s\n%s", processors(m), processors(m))
	}
	require.NoError(t, err)
	t.Logf("console: %s", line)
	return line
}

// processors says where a machine's processors are, and whether they halt.
func processors(m *lab.Machine) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	q, err := m.QMP(ctx)
	if err != nil {
		return err.Error()
	}
	defer q.Close()
	var text string
	if err := q.Execute(ctx, "human-monitor-command", map[string]string{"command-line": "info registers -a"}, &text); err != nil {
		return err.Error()
	}
	var kept []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "CPU#") || strings.HasPrefix(line, "RIP=") || strings.HasPrefix(line, "EIP=") || strings.HasPrefix(line, "CR0=") {
			kept = append(kept, strings.TrimSpace(line))
		}
	}
	return strings.Join(kept, "\n")
}

type identity struct{ line, disk, id, idSource string }

var startsForm = regexp.MustCompile(`\(disk ([0-9a-f-]{36})\), root [0-9a-f]{12}, machine-id ([0-9a-f]{32}) \((\w+)\)`)

// startsFrom powers on and returns what firstlight-init says before it hands over.
func startsFrom(t *testing.T, m *lab.Machine) identity {
	t.Helper()
	require.NoError(t, m.Start(t.Context()))
	see(t, m, lineInit)
	line := see(t, m, lineStarts)
	f := startsForm.FindStringSubmatch(line)
	require.NotNil(t, f, line)
	return identity{line, f[1], f[2], f[3]}
}

// powerOff presses the button until the guest listens: before logind runs nobody does.
func powerOff(t testing.TB, m *lab.Machine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.BootDeadline)
	defer cancel()
	for m.IsRunning() {
		if err := m.PressPowerButton(ctx); err != nil && m.IsRunning() {
			require.NoError(t, err)
		}
		pressed, release := context.WithTimeout(ctx, 5*time.Second)
		err := m.Wait(pressed)
		release()
		if !errors.Is(err, context.DeadlineExceeded) {
			require.NoError(t, err)
		}
		require.NoError(t, ctx.Err())
	}
}

func digest(t *testing.T, path string) string {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	require.NoError(t, err)
	return fmt.Sprintf("%x", h.Sum(nil))
}
