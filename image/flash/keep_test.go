package flash_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/flash"
	"firstlight.dev/firstlight/image/media"
)

const stickSize = 120<<20 + 512*7

// stickImage is an image with all partitions of a stick; its root is bytes of a seed, and as long as is asked.
func stickImage(t *testing.T, seed int64, rootMiB int, siteFiles ...string) *media.Image {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.img")
	guid := func(n int) string { return fmt.Sprintf("6f1f5d0e-94a1-4c54-9c6a-3b1f52a0fe%02d", n) }
	root := make([]byte, rootMiB<<20)
	rand.New(rand.NewSource(seed)).Read(root)
	file := func(name, text string) disk.File {
		return disk.File{Path: name, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
	}
	var site []disk.File
	for _, name := range siteFiles {
		site = append(site, file(name, "of the image"))
	}
	l := disk.Layout{GUID: guid(0), BootCode: fmt.Appendf(nil, "boot code %d", seed), Partitions: []disk.Partition{
		{Name: "BIOS", Type: gpt.TypeBIOSBoot, GUID: guid(1), Size: 1 << 20, Content: disk.Bytes("core")},
		{Name: "ESP", Type: gpt.TypeESP, GUID: guid(2), Size: 34 << 20, Content: disk.FAT{Label: "ESP", Files: []disk.File{file("kernel", fmt.Sprint("kernel ", seed))}}},
		{Name: "SITE", Type: gpt.TypeBasicData, GUID: guid(3), Size: 34 << 20, Content: disk.FAT{Label: "SITE", Files: append(site, file("README.txt", "readme"))}},
		{Name: "BOOT-A", Number: 7, Type: gpt.TypeLinuxBoot, GUID: guid(7), Size: 1 << 20, Content: disk.Bytes(fmt.Sprint("kernel ", seed))},
		{Name: "BOOT-B", Number: 8, Type: gpt.TypeLinuxBoot, GUID: guid(8), Size: 1 << 20, Content: disk.Empty{}},
		{Name: "ROOT-A", Number: 4, Type: gpt.TypeLinuxRoot, GUID: guid(4), Size: int64(rootMiB) << 20, Content: disk.Bytes(root)},
		{Name: "ROOT-B", Number: 5, Type: gpt.TypeLinuxRoot, GUID: guid(5), Size: int64(rootMiB) << 20, Content: disk.Empty{}},
	}}
	require.NoError(t, disk.Write(context.Background(), path, l))
	m, err := media.Open(context.Background(), path)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

// usedStick is a stick that an appliance has run from: it has DATA, and its owner's site.yaml.
func usedStick(t *testing.T, m *media.Image) *stick {
	t.Helper()
	s := &stick{data: make([]byte, stickSize)}
	plan, err := flash.NewPlan(context.Background(), m, nil, stickSize, rand.New(rand.NewSource(1)))
	require.NoError(t, err)
	require.NoError(t, flashTo(plan, s))
	table, err := gpt.ReadPrimary(s)
	require.NoError(t, err)
	kind, err := gpt.ParseGUID(gpt.TypeLinux)
	require.NoError(t, err)
	end := lastSector(table)
	table.Partitions = append(table.Partitions, gpt.Partition{Index: 6, Type: kind, GUID: gpt.GUID{1, 2, 3}, First: end + 1, Last: table.LastLBA, Name: "DATA"})
	start, tail, err := table.Encode()
	require.NoError(t, err)
	copy(s.data[512:], start)
	copy(s.data[len(s.data)-len(tail):], tail)
	for _, name := range []string{"DATA", "SITE"} {
		p, _ := table.Find(name)
		for i := p.Offset() + 1<<20; i < p.Offset()+p.Size(); i += 4096 {
			copy(s.data[i:], name+" of the owner")
		}
	}
	return s
}

// lastSector is the last one that a partition has.
func lastSector(table *gpt.Table) uint64 {
	var last uint64
	for _, p := range table.Partitions {
		last = max(last, p.Last)
	}
	return last
}

func flashTo(p *flash.Plan, s *stick) error {
	return p.Write(context.Background(), s, func() error { return nil }, func(string, int64, int64) {})
}

func keep(t *testing.T, m *media.Image, s *stick) (*flash.Plan, error) {
	t.Helper()
	old, err := flash.ReadStick(s, stickSize)
	require.NoError(t, err)
	require.NotNil(t, old, "it is a stick of ours")
	return flash.NewKeepPlan(context.Background(), m, nil, stickSize, old)
}

func content(t *testing.T, s *stick, name string) []byte {
	t.Helper()
	table, err := gpt.ReadPrimary(s)
	require.NoError(t, err)
	p, ok := table.Find(name)
	require.True(t, ok, name)
	return s.data[p.Offset() : p.Offset()+p.Size()]
}

// checkKept checks that a stick starts from an image and has all that its owner and its appliance put on it.
func checkKept(t *testing.T, s, before *stick, m *media.Image) {
	t.Helper()
	was, err := gpt.ReadPrimary(before)
	require.NoError(t, err)
	now, err := gpt.ReadPrimary(s)
	require.NoError(t, err)
	backup, err := gpt.ReadBackup(s, stickSize)
	require.NoError(t, err)
	assert.Equal(t, now.Partitions, backup.Partitions)
	assert.Equal(t, was.GUID, now.GUID)
	assert.Len(t, now.Partitions, 8)
	for _, p := range now.Partitions {
		old, _ := was.Find(p.Name)
		assert.Equal(t, old.GUID, p.GUID, "GUID of %s", p.Name)
	}
	assert.True(t, bytes.Equal(content(t, before, "DATA"), content(t, s, "DATA")), "DATA changed")
	image, err := gpt.ReadPrimary(m)
	require.NoError(t, err)
	root, _ := image.Find("ROOT-A")
	want := make([]byte, root.Size())
	_, err = m.ReadAt(want, root.Offset())
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, content(t, s, "ROOT-A")), "ROOT-A is not the image's")
	v, err := fat.Open(bytes.NewReader(content(t, s, "ESP")))
	require.NoError(t, err)
	assert.Empty(t, v.Check())
	code := make([]byte, 11)
	_, err = m.ReadAt(code, 0)
	require.NoError(t, err)
	assert.Equal(t, code, s.data[:11])
}

// TestDataOutlivesAnUpdate: the same image on a damaged stick, another one, and one with a larger root that takes room
// of the empty slot.
func TestDataOutlivesAnUpdate(t *testing.T) {
	first := stickImage(t, 3, 4)
	for name, m := range map[string]*media.Image{
		"the same image": first, "another image": stickImage(t, 4, 4), "a smaller root": stickImage(t, 5, 2), "a larger root": stickImage(t, 6, 7),
	} {
		t.Run(name, func(t *testing.T) {
			s := usedStick(t, first)
			before := &stick{data: bytes.Clone(s.data)}
			copy(content(t, s, "ROOT-A")[1<<20:], "damage")
			plan, err := keep(t, m, s)
			require.NoError(t, err)
			assert.ElementsMatch(t, []string{"DATA", "SITE"}, plan.Kept)
			require.NoError(t, flashTo(plan, s))
			checkKept(t, s, before, m)
			assert.True(t, bytes.Equal(content(t, before, "SITE"), content(t, s, "SITE")), "SITE changed")
		})
	}
}

// TestAStickWithoutSlotsGetsThem out of ROOT-B: DATA stays, and has its number.
func TestAStickWithoutSlotsGetsThem(t *testing.T) {
	m := stickImage(t, 3, 4)
	s := usedStick(t, m)
	table, err := gpt.ReadPrimary(s)
	require.NoError(t, err)
	bootA, _ := table.Find("BOOT-A")
	table.Partitions = slices.DeleteFunc(table.Partitions, func(p gpt.Partition) bool { return strings.HasPrefix(p.Name, "BOOT-") })
	for i, p := range table.Partitions {
		switch p.Name {
		case "ROOT-A":
			table.Partitions[i].First, table.Partitions[i].Last = bootA.First, bootA.First+p.Last-p.First
		case "ROOT-B":
			table.Partitions[i].First = bootA.First + uint64(p.Size()/gpt.SectorSize)
		}
	}
	start, tail, err := table.Encode()
	require.NoError(t, err)
	copy(s.data[512:], start)
	copy(s.data[len(s.data)-len(tail):], tail)

	before := bytes.Clone(content(t, s, "DATA"))
	plan, err := keep(t, m, s)
	require.NoError(t, err)
	require.NoError(t, flashTo(plan, s))
	assert.True(t, bytes.Equal(before, content(t, s, "DATA")), "DATA changed")
	assert.Equal(t, "kernel 3", string(content(t, s, "BOOT-A")[:8]))
	now, err := gpt.ReadPrimary(s)
	require.NoError(t, err)
	data, _ := now.Find("DATA")
	assert.Equal(t, 6, data.Index)
}

// TestASiteInTheImageReplacesTheStick's and DATA stays.
func TestASiteInTheImageReplacesTheSticks(t *testing.T) {
	s := usedStick(t, stickImage(t, 3, 4))
	before := &stick{data: bytes.Clone(s.data)}
	m := stickImage(t, 4, 4, "site.yaml")
	plan, err := keep(t, m, s)
	require.NoError(t, err)
	assert.Equal(t, []string{"DATA"}, plan.Kept)
	require.NoError(t, flashTo(plan, s))
	checkKept(t, s, before, m)
	v, err := fat.Open(bytes.NewReader(content(t, s, "SITE")))
	require.NoError(t, err)
	text, err := v.ReadFile("site.yaml")
	require.NoError(t, err)
	assert.Equal(t, "of the image", string(text))
}

// TestAnUpdateThatIsCutIsBegunAgain: after every write the stick still is one of ours with its DATA, starts nothing
// half, and is whole after the next try.
func TestAnUpdateThatIsCutIsBegunAgain(t *testing.T) {
	first, m := stickImage(t, 3, 4), stickImage(t, 4, 4)
	used := usedStick(t, first)
	whole := &stick{data: bytes.Clone(used.data)}
	plan, err := keep(t, m, whole)
	require.NoError(t, err)
	require.NoError(t, flashTo(plan, whole))
	for cut := 1; cut < whole.writes; cut++ {
		s := &stick{data: bytes.Clone(used.data), cutAfter: cut}
		plan, err := keep(t, m, s)
		require.NoError(t, err)
		require.ErrorIs(t, flashTo(plan, s), errCut)
		assert.NotEqual(t, []byte{0x55, 0xaa}, s.data[510:512], "after %d writes: a BIOS would start it", cut)
		table, err := flash.ReadStick(s, stickSize)
		require.NoError(t, err)
		require.NotNil(t, table, "after %d writes of %d DATA would be lost", cut, whole.writes)
		esp, _ := table.Find("ESP")
		if _, err := fat.Open(io.NewSectionReader(s, esp.Offset(), esp.Size())); cut > 1 && cut < whole.writes-1 {
			assert.Error(t, err, "after %d writes of %d: UEFI would start it", cut, whole.writes)
		}
		s.cutAfter = 0
		plan, err = keep(t, m, s)
		require.NoError(t, err)
		require.NoError(t, flashTo(plan, s))
		checkKept(t, s, used, m)
	}
}

// TestOneSoundTableIsEnoughToKeepData and what cannot be read is not taken for an empty medium.
func TestOneSoundTableIsEnoughToKeepData(t *testing.T) {
	first := stickImage(t, 3, 4)
	for name, damage := range map[string]func(*stick){
		"primary": func(s *stick) { copy(s.data, make([]byte, 34*512)) },
		"backup":  func(s *stick) { copy(s.data[stickSize-512:], make([]byte, 512)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := usedStick(t, first)
			before := &stick{data: bytes.Clone(s.data)}
			damage(s)
			plan, err := keep(t, first, s)
			require.NoError(t, err)
			require.NoError(t, flashTo(plan, s))
			checkKept(t, s, before, first)
		})
	}
	none, err := flash.ReadStick(newStick(), mediumSize)
	require.NoError(t, err)
	assert.Nil(t, none)
	_, err = flash.ReadStick(deadMedium{}, mediumSize)
	assert.ErrorContains(t, err, "read what the medium holds: read GPT header at sector 1: input/output error")
}

type deadMedium struct{}

func (deadMedium) ReadAt([]byte, int64) (int, error) { return 0, errors.New("input/output error") }

// TestWhatCannotBeKeptIsRefused in one line, before anything is written.
func TestWhatCannotBeKeptIsRefused(t *testing.T) {
	s := usedStick(t, stickImage(t, 3, 4))
	before := bytes.Clone(s.data)
	_, err := keep(t, stickImage(t, 4, 9), s)
	assert.ErrorContains(t, err, "ROOT-A of the image needs 1 MiB more than the stick has before DATA: save what is on DATA, or give it up with --forget")
	_, err = keep(t, image(t), s)
	assert.ErrorContains(t, err, "it has no partition SITE, so it is no image of a stick")
	assert.True(t, bytes.Equal(before, s.data))
}
