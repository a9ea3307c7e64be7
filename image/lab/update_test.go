package lab_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/stickupdate"
	"firstlight.dev/firstlight/image/disk/disktest"
	"firstlight.dev/firstlight/image/lab"
	"firstlight.dev/firstlight/image/verify"
)

const (
	lineTries    = "Firstlight: tries the version in slot b, once"     // GRUB
	lineGivesUp  = "the version that is tried has not started in 5m0s" // firstlight-init
	lineNextRuns = "Firstlight " + nextVersion + lineStarts            // firstlight-init
	nextVersion  = "99.0.0"                                            // newer than whatever is built
)

// region is a partition of a stick in a file.
type region struct {
	io.ReaderAt
	io.WriterAt
}

func (region) Sync() error { return nil }
func (region) Drop() error { return nil }

// openStick opens the stick in a file.
func openStick(t *testing.T, path string) *stickupdate.Stick {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	table, err := gpt.ReadPrimary(f)
	require.NoError(t, err)
	part := func(name string) stickupdate.Partition {
		p, ok := table.Find(name)
		require.True(t, ok, name)
		return stickupdate.Partition{
			Medium: region{io.NewSectionReader(f, p.Offset(), p.Size()), io.NewOffsetWriter(f, p.Offset())}, Bytes: p.Size(),
		}
	}
	s := &stickupdate.Stick{ESP: part(stick.PartitionESP), Slots: map[stick.Slot]stickupdate.Slot{}}
	for _, which := range []stick.Slot{stick.SlotA, stick.SlotB} {
		s.Slots[which] = stickupdate.Slot{Boot: part(which.Boot()), Root: part(which.Root())}
	}
	return s
}

// nextImage is the image as nextVersion: nothing but its name differs.
func nextImage(t *testing.T, image string) string {
	t.Helper()
	next := disktest.CopyImage(t, image)
	disktest.ChangeConfig(t, next, func(c *stick.SlotConfig) { c.Version = nextVersion })
	return next
}

// updatedStick is a stick with nextVersion in slot b, which the next start tries.
func updatedStick(t *testing.T, image string) string {
	t.Helper()
	path := disktest.CopyImage(t, image)
	writeSlotB(t, path, nextImage(t, image))
	return path
}

// writeSlotB writes an image into slot b of a stick that runs from a. Nobody asks who signed it.
func writeSlotB(t *testing.T, path, image string) {
	t.Helper()
	next, err := stickupdate.Open(image)
	require.NoError(t, err)
	defer next.Close()
	require.NoError(t, next.Check(t.Context()))
	require.NoError(t, stickupdate.Write(t.Context(), next, openStick(t, path), stick.SlotA, nil, func(string, int64, int64) {}))
}

// TestAnUpdatedStickIsSound by the checks that know nothing of updates.
func TestAnUpdatedStickIsSound(t *testing.T) {
	path := updatedStick(t, needImage(t, "native"))
	report, err := verify.Run(t.Context(), path, verify.Options{})
	require.NoError(t, err)
	assert.Empty(t, report.Findings)
	seen := fmt.Sprint(report.Steps)
	assert.Contains(t, seen, "BOOT-B with 4 files")
	assert.Equal(t, 2, strings.Count(seen, " blocks against root hash "), seen)
}

// TestATrialIsOneStart on each firmware: GRUB takes the trial out of its memory before it starts the slot, and the start
// after that is of the version before. A version that is kept is started from then on.
func TestATrialIsOneStart(t *testing.T) {
	image := needImage(t, "qemu")
	for _, c := range []struct {
		name     string
		firmware lab.Firmware
	}{{"bios", lab.BIOS}, {"uefi", lab.UEFI}, {"secure-boot", lab.SecureBoot}} {
		t.Run(c.name, func(t *testing.T) {
			path := updatedStick(t, image)
			m := newMachine(t, lab.Config{Firmware: c.firmware, Disks: []lab.Disk{{Image: path, Bus: lab.USB, Direct: true}}})
			require.NoError(t, m.Start(t.Context()))
			see(t, m, lineTries)
			see(t, m, lineNextRuns)
			require.NoError(t, m.Kill())

			e, err := openStick(t, path).Environment()
			require.NoError(t, err)
			assert.Equal(t, stick.Environment{Slot: stick.SlotA}, e)
			assert.NotContains(t, startsFrom(t, m).line, nextVersion)
			require.NoError(t, m.Kill())

			require.NoError(t, openStick(t, path).SetEnvironment(stick.Environment{Slot: stick.SlotB}))
			assert.Contains(t, startsFrom(t, m).line, nextVersion)
			require.NoError(t, m.Kill())
		})
	}
}

// TestABrokenVersionFallsBack by itself: its root was damaged after it was checked.
func TestABrokenVersionFallsBack(t *testing.T) {
	path := updatedStick(t, needImage(t, "qemu"))
	at, size := rootData(t, path)
	flipByte(t, path, partition(t, path, stick.PartitionRootB).Offset()-partition(t, path, stick.PartitionRootA).Offset()+at+size-16)
	m := newMachine(t, lab.Config{Disks: []lab.Disk{{Image: path, Bus: lab.USB, Direct: true}}})
	require.NoError(t, m.Start(t.Context()))
	see(t, m, lineTries)
	see(t, m, lineNoStart)
	see(t, m, lineGivesUp)
	assert.NotContains(t, see(t, m, lineStarts), nextVersion)
}

// TestUpdateOnTheAppliance writes the next version by the command, with the power cut at some moments of it, and starts
// it: the appliance comes to Ready, and keeps it.
func TestUpdateOnTheAppliance(t *testing.T) {
	n := newNetworked(t, "qemu-all", 4096)
	next := nextImage(t, n.conf.Disks[0].Image)
	giveOwnGUIDs(t, next)
	n.conf.Disks = append(n.conf.Disks, lab.Disk{Image: next, Bus: lab.Virtio, Direct: true})
	n.Machine = newMachine(t, n.conf)
	for _, later := range []time.Duration{3 * time.Second, 8 * time.Second, 20 * time.Second, 0} {
		assert.NotContains(t, startsFrom(t, n.Machine).line, nextVersion)
		if later == 0 {
			break
		}
		n.shell("true")
		go func() { _, _ = n.once("firstlightd update /dev/vda") }()
		time.Sleep(later)
		require.NoError(t, n.Kill())
	}

	t.Log(n.shell("firstlightd update --status"))
	t.Log(n.shell("firstlightd update /dev/vda"))
	_, _ = n.once("systemctl reboot")
	see(t, n.Machine, lineTries)
	see(t, n.Machine, lineNextRuns)
	see(t, n.Machine, lineReady)
	for !strings.Contains(n.shell("firstlightd update --status"), "version "+nextVersion+" is kept") {
		time.Sleep(5 * time.Second)
	}
	powerOff(t, n.Machine)
	assert.Contains(t, startsFrom(t, n.Machine).line, nextVersion)
}
