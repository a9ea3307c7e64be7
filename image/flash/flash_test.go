package flash_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/flash"
	"firstlight.dev/firstlight/image/media"
)

const mediumSize = 50<<20 + 512*7 // sticks are not a round number of MiB

func image(t *testing.T) *media.Image {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.img")
	guid := func(n int) string { return fmt.Sprintf("6f1f5d0e-94a1-4c54-9c6a-3b1f52a0fd%02d", n) }
	root := make([]byte, 3<<20)
	rand.New(rand.NewSource(3)).Read(root)
	file := disk.File{Path: "hello.txt", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("hello")), nil }}
	l := disk.Layout{GUID: guid(0), BootCode: []byte("boot code"), Partitions: []disk.Partition{
		{Name: "BIOS", Type: gpt.TypeBIOSBoot, GUID: guid(1), Size: 1 << 20, Content: disk.Bytes("core")},
		{Name: "ESP", Type: gpt.TypeESP, GUID: guid(2), Size: 34 << 20, Content: disk.FAT{Label: "ESP", Files: []disk.File{file}}},
		{Name: "ROOT-A", Type: gpt.TypeLinuxRoot, GUID: guid(3), Size: 4 << 20, Content: disk.Bytes(root)},
		{Name: "ROOT-B", Type: gpt.TypeLinuxRoot, GUID: guid(4), Size: 4 << 20, Content: disk.Empty{}},
	}}
	require.NoError(t, disk.Write(context.Background(), path, l))
	m, err := media.Open(context.Background(), path)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

// stick is a medium in memory, full of what was on it before. It can lose power after a
// number of writes, or store a wrong byte.
type stick struct {
	data     []byte
	writes   int
	cutAfter int   // writes until power fails; 0 never
	faulty   int64 // offset of a cell that flips; 0 none
	unsynced bool  // what was written last would be lost with the power
}

var errCut = errors.New("power failed")

func newStick() *stick { return &stick{data: bytes.Repeat([]byte{0xee}, mediumSize)} }

func (s *stick) ReadAt(b []byte, at int64) (int, error) { return bytes.NewReader(s.data).ReadAt(b, at) }
func (s *stick) Sync() error                            { s.unsynced = false; return nil }

func (s *stick) WriteAt(b []byte, at int64) (int, error) {
	if s.writes++; s.cutAfter > 0 && s.writes > s.cutAfter {
		return 0, errCut
	}
	s.unsynced = true
	n := copy(s.data[at:], b)
	if s.faulty >= at && s.faulty < at+int64(n) && s.faulty != 0 {
		s.data[s.faulty] ^= 1
	}
	return n, nil
}

func write(t *testing.T, m *media.Image, s *stick, seed int64) error {
	t.Helper()
	plan, err := flash.NewPlan(context.Background(), m, nil, mediumSize, rand.New(rand.NewSource(seed)))
	require.NoError(t, err)
	drop := func() error {
		assert.False(t, s.unsynced, "the content is not on the medium when it is read back")
		return nil
	}
	err = plan.Write(context.Background(), s, drop, func(string, int64, int64) {})
	assert.False(t, err == nil && s.unsynced, "it may not be pulled yet")
	return err
}

func TestWrittenStickIsWholeAndItsOwn(t *testing.T) {
	one, two := newStick(), newStick()
	source := image(t)
	require.NoError(t, write(t, source, one, 1))
	require.NoError(t, write(t, source, two, 2))
	table, err := gpt.ReadPrimary(source)
	require.NoError(t, err)

	primary, err := gpt.ReadPrimary(one)
	require.NoError(t, err)
	backup, err := gpt.ReadBackup(one, mediumSize)
	require.NoError(t, err, "the backup must be at the medium's end, not the image's")
	assert.Equal(t, primary.Partitions, backup.Partitions)
	assert.EqualValues(t, mediumSize/512-34, primary.LastLBA, "all of the medium is usable")
	other, err := gpt.ReadPrimary(two)
	require.NoError(t, err)
	seen := map[gpt.GUID]bool{table.GUID: true}
	for _, made := range []*gpt.Table{primary, other} {
		assert.False(t, seen[made.GUID], "disk GUID")
		seen[made.GUID] = true
		for i, p := range made.Partitions {
			assert.False(t, seen[p.GUID], "GUID of %s", p.Name)
			seen[p.GUID] = true
			assert.Regexp(t, "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$", p.GUID.String(), "RFC 9562 version 4")
			p.GUID = table.Partitions[i].GUID
			assert.Equal(t, table.Partitions[i], p, "all but the GUID is the image's")
		}
	}
	assert.Equal(t, "boot code", string(one.data[:9]))
	esp := primary.Partitions[1]
	v, err := fat.Open(io.NewSectionReader(one, esp.Offset(), esp.Size()))
	require.NoError(t, err)
	assert.Empty(t, v.Check())
	want := make([]byte, 3<<20)
	_, err = source.ReadAt(want, table.Partitions[2].Offset())
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, one.data[table.Partitions[2].Offset():][:3<<20]), "ROOT-A")
	assert.EqualValues(t, 0xee, one.data[table.Partitions[3].Offset()+2<<20], "an empty slot is not written")
	const backup33 = 33 * 512 // entries and header of the backup table
	end := one.data[mediumSize-1<<20 : mediumSize-backup33]
	assert.Equal(t, len(end), bytes.Count(end, []byte{0}), "an old table at the end would be found")
}

// TestPowerCutLeavesNothingThatBoots cuts after every single write.
func TestPowerCutLeavesNothingThatBoots(t *testing.T) {
	m, whole := image(t), newStick()
	require.NoError(t, write(t, m, whole, 1))
	require.Greater(t, whole.writes, 5)
	for cut := 1; cut < whole.writes; cut++ {
		s := &stick{data: bytes.Clone(whole.data), cutAfter: cut} // a good older system is on it
		require.ErrorIs(t, write(t, m, s, 2), errCut)
		assert.NotEqual(t, []byte{0x55, 0xaa}, s.data[510:512], "after %d writes: a BIOS would start it", cut)
		_, err := gpt.ReadPrimary(s)
		if cut < whole.writes-1 {
			assert.Error(t, err, "after %d writes of %d: UEFI would find the ESP", cut, whole.writes)
		}
	}
}

func TestFaultyMediumIsFound(t *testing.T) {
	m := image(t)
	for _, at := range []int64{1<<20 + 1, 2<<20 + 5, 38 << 20, 600, 17000, mediumSize - 600} {
		s := newStick()
		s.faulty = at
		assert.ErrorContains(t, write(t, m, s, 1), "the medium is faulty", "offset %d", at)
	}
}

func TestCancelledWriteHasNoTable(t *testing.T) {
	s := newStick()
	plan, err := flash.NewPlan(context.Background(), image(t), nil, mediumSize, rand.New(rand.NewSource(1)))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	err = plan.Write(ctx, s, func() error { return nil }, func(string, int64, int64) { cancel() })
	require.ErrorIs(t, err, context.Canceled)
	_, err = gpt.ReadPrimary(s)
	assert.ErrorIs(t, err, gpt.ErrNoTable)
}

func TestPlanRefusals(t *testing.T) {
	_, err := flash.NewPlan(context.Background(), image(t), nil, 20<<20, rand.New(rand.NewSource(1)))
	assert.ErrorContains(t, err, "are not within the usable")
	m := image(t)
	_, err = media.Publish(context.Background(), m.Path, nil)
	require.NoError(t, err)
	_, err = flash.NewPlan(context.Background(), m, nil, mediumSize, rand.New(rand.NewSource(1)))
	require.NoError(t, err)
	f, err := os.OpenFile(m.Path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{1}, 37<<20+9)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, err = flash.NewPlan(context.Background(), m, nil, mediumSize, rand.New(rand.NewSource(1)))
	assert.ErrorContains(t, err, "differs from its block map")
}

// TestLoopDevice writes to a block device that the kernel made and lets it read the table.
func TestLoopDevice(t *testing.T) {
	if !strings.Contains(os.Getenv("FIRSTLIGHT_TEST"), "ns") {
		t.Skip(`needs root and a loop device: set FIRSTLIGHT_TEST=ns`)
	}
	backing := filepath.Join(t.TempDir(), "stick")
	require.NoError(t, os.WriteFile(backing, nil, 0o600))
	require.NoError(t, os.Truncate(backing, 64<<20))
	out, err := exec.Command("losetup", "--find", "--show", "--partscan", backing).CombinedOutput()
	require.NoError(t, err, "losetup: %s", out)
	loop := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", loop).Run() })

	d, err := flash.HostSysFS().Find(loop)
	require.NoError(t, err)
	m := image(t)
	reasons := flash.RefusalReasons(d, flash.Image{Bytes: m.Size})
	assert.ErrorContains(t, flash.CheckAllowed(d, reasons, ""), "is not removable")
	require.NoError(t, flash.CheckAllowed(d, reasons, d.Name))
	plan, err := flash.NewPlan(context.Background(), m, nil, d.Bytes, rand.New(rand.NewSource(4)))
	require.NoError(t, err)
	f, drop, err := flash.Open(loop)
	require.NoError(t, err)
	require.NoError(t, plan.Write(context.Background(), f, drop, func(string, int64, int64) {}))
	flash.RereadTable(f)
	require.NoError(t, f.Close())

	said, err := exec.Command("sfdisk", "--verify", loop).CombinedOutput()
	require.NoError(t, err, "%s", said)
	assert.Contains(t, string(said), "No errors detected")
	t.Logf("partitions that this kernel sees (none if it is built without GPT): %v", partitions(d.Name))

	// Mounted: refused by us, and the kernel refuses too.
	said, err = exec.Command("mke2fs", "-q", "-F", loop).CombinedOutput()
	require.NoError(t, err, "%s", said)
	at := t.TempDir()
	said, err = exec.Command("mount", loop, at).CombinedOutput()
	require.NoError(t, err, "%s", said)
	defer exec.Command("umount", at).Run()
	d, err = flash.HostSysFS().Find(loop)
	require.NoError(t, err)
	err = flash.CheckAllowed(d, flash.RefusalReasons(d, flash.Image{Bytes: m.Size}), d.Name)
	assert.EqualError(t, err, loop+" is mounted on "+at)
	_, _, err = flash.Open(loop)
	assert.ErrorIs(t, err, syscall.EBUSY)
}

func partitions(name string) []string {
	found, _ := filepath.Glob("/sys/class/block/" + name + "/" + name + "p*")
	return found
}
