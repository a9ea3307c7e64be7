package initrd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/stick"
)

const (
	espA = "11111111-0000-4000-8000-00000000000a"
	espB = "22222222-0000-4000-8000-00000000000b"
	hash = "c9ef0e1ac9ef0e1ac9ef0e1ac9ef0e1ac9ef0e1ac9ef0e1ac9ef0e1ac9ef0e1a"
)

func TestParseParams(t *testing.T) {
	p, err := parseParams("BOOT_IMAGE=/x console=tty0 firstlight.esp=" + strings.ToUpper(espA) + " firstlight.verity=" + hash + "\n")
	require.NoError(t, err)
	assert.Equal(t, params{esp: espA, slot: stick.SlotA, verity: hash, version: assets.Version}, p)
	p, err = parseParams("firstlight.version=9.8-dev+x firstlight.esp=" + espA + " firstlight.verity=" + hash)
	require.NoError(t, err)
	assert.Equal(t, "9.8-dev+x", p.version)
	p, err = parseParams("firstlight.slot=b firstlight.trial=1 firstlight.esp=" + espA + " firstlight.verity=" + hash)
	require.NoError(t, err)
	assert.Equal(t, stick.SlotB, p.slot)
	assert.True(t, p.trial)
	for cmdline, want := range map[string]string{
		"":                                   stick.ParamESP,
		"firstlight.esp= firstlight.verity=": stick.ParamESP,
		"firstlight.esp=" + espA:             stick.ParamVerity,
		"firstlight.esp=" + espA + " firstlight.verity=@VERITY@":                  stick.ParamVerity,
		"firstlight.esp=" + espA + " firstlight.verity=" + hash[2:]:               stick.ParamVerity,
		"firstlight.slot=c firstlight.esp=" + espA + " firstlight.verity=" + hash: stick.ParamSlot,
		"firstlight.esp=" + espA[1:] + "0 firstlight.verity=" + hash:              stick.ParamESP,
	} {
		_, err := parseParams(cmdline)
		assert.ErrorContains(t, err, want, cmdline)
	}
}

const aliasTable = `# Aliases extracted from modules themselves.
alias pci:v*d*sv*sd*bc0Csc03i30* xhci-pci
alias usb:v*p*d*dc*dsc*dp*ic08isc06ip50in* usb-storage
alias usb:v0781p5567d*dc*dsc*dp*ic*isc*ip*in* uas
alias pci:v00008086d[ broken
alias crypto-crc32c crc32c_generic
alias crypto-crc32c crc32c-intel
alias fs-ext4 ext4
`

const softdepTable = `# Soft dependencies
softdep ext4 pre: crypto-crc32c
softdep uas pre: usb-storage sd_mod post: other
softdep cifs gcm
`

func TestModulesForADevice(t *testing.T) {
	a := parseAliases(aliasTable, softdepTable)
	for modalias, want := range map[string][]string{
		"pci:v00001B36d0000000Dsv00001AF4sd00001100bc0Csc03i30": {"xhci-pci"},
		"usb:v0781p5567d0100dc00dsc00dp00ic08isc06ip50in00":     {"usb-storage", "uas"},
		"usb:v1234p5567d0100dc00dsc00dp00ic03isc06ip50in00":     nil,
		"acpi:PNP0A08:PNP0A03:":                                 nil,
		"":                                                      nil,
	} {
		assert.Equal(t, want, a.match(modalias), modalias)
	}
	assert.Equal(t, []string{"crc32c_generic", "crc32c-intel"}, a.softDependencies("ext4"), "aliases are resolved")
	assert.Equal(t, []string{"usb-storage", "sd_mod"}, a.softDependencies("uas"), "post: is not before")
	assert.Empty(t, a.softDependencies("cifs"), "words before pre: are no dependency")
}

func FuzzParseAliases(f *testing.F) {
	f.Add(aliasTable, softdepTable, "usb:v0781p5567d0100dc00dsc00dp00ic08isc06ip50in00")
	f.Fuzz(func(t *testing.T, at, st, modalias string) {
		a := parseAliases(at, st)
		for _, m := range a.match(modalias) {
			a.softDependencies(m)
		}
	})
}

// sysfs is a machine with a stick, an NVMe disk, a card reader without a card, a loop
// device and a CD-ROM.
func sysfs() fstest.MapFS {
	fs := fstest.MapFS{}
	add := func(path, content string) { fs["block/"+path] = &fstest.MapFile{Data: []byte(content + "\n")} }
	add("sda/size", "61440000")
	add("sda/dev", "8:0")
	add("sda/diskseq", "9")
	add("sda/queue/logical_block_size", "512")
	add("sda/device/vendor", "SanDisk ")
	add("sda/device/model", "Ultra Fit       ")
	for i := 1; i <= 5; i++ {
		add(fmt.Sprintf("sda/sda%d/partition", i), fmt.Sprint(i))
	}
	add("nvme0n1/size", "3907029168")
	add("nvme0n1/dev", "259:0")
	add("nvme0n1/device/model", "INTEL SSDPE2KX020T8")
	add("nvme0n1/device/vendor", "0x8086")
	add("nvme0n1/nvme0n1p1/partition", "1")
	add("sdb/size", "0")
	add("loop0/size", "100")
	add("sr0/size", "100")
	return fs
}

func stickTable(esp string) stick.Table {
	t := stick.Table{GUID: "disk-of-" + esp}
	for i, name := range []string{stick.PartitionBIOS, stick.PartitionESP, stick.PartitionSite, stick.PartitionRootA, stick.PartitionRootB} {
		e := stick.Entry{Index: i + 1, Name: name, GUID: name + esp, Start: int64(i+1) << 20, Bytes: 1 << 20}
		if name == stick.PartitionESP {
			e.GUID = esp
		}
		t.Entries = append(t.Entries, e)
	}
	return t
}

func disksOf(t *testing.T) []disk {
	disks, err := listDisks(sysfs())
	require.NoError(t, err)
	require.Len(t, disks, 2)
	return disks
}

func TestListDisks(t *testing.T) {
	disks := disksOf(t)
	assert.Equal(t, "nvme0n1", disks[0].name)
	assert.Equal(t, "INTEL SSDPE2KX020T8", disks[0].model)
	assert.Equal(t, "SanDisk Ultra Fit", disks[1].model)
	assert.Equal(t, "8:0", disks[1].number)
	assert.EqualValues(t, 61440000*512, disks[1].bytes)
	assert.Equal(t, map[int]string{1: "sda1", 2: "sda2", 3: "sda3", 4: "sda4", 5: "sda5"}, disks[1].nodes)
}

func TestChooseDisk(t *testing.T) {
	disks := disksOf(t)
	_, err := chooseDisk(disks, params{esp: espA, slot: stick.SlotA})
	assert.ErrorIs(t, err, errNotSeen)

	disks[0].table = stickTable(espB) // another stick's copy: the same names, other GUIDs
	disks[1].table = stickTable(espA)
	boot, err := chooseDisk(disks, params{esp: espA, slot: stick.SlotA})
	require.NoError(t, err)
	assert.Equal(t, "/dev/sda", boot.Disk.Path)
	root, _ := boot.Partition(stick.PartitionRootA)
	assert.Equal(t, "/dev/sda4", root.Path)

	boot, err = chooseDisk(disks, params{esp: espA, slot: stick.SlotB, trial: true, version: "2"})
	require.NoError(t, err)
	root, _ = boot.Partition(boot.Slot.Root())
	assert.Equal(t, "/dev/sda5", root.Path)
	assert.True(t, boot.Trial)
	assert.Equal(t, "2", boot.Version)

	_, err = chooseDisk(disks, params{esp: espB, slot: stick.SlotA})
	assert.ErrorIs(t, err, errNoDevices, "the kernel has not made all partitions")

	disks[0].table = stickTable(espA)
	_, err = chooseDisk(disks, params{esp: espA, slot: stick.SlotA})
	assert.ErrorIs(t, err, errDuplicateGUID)

	disks[0].table = stick.Table{Entries: []stick.Entry{{Index: 1, Name: stick.PartitionESP, GUID: espB}}}
	_, err = chooseDisk(disks, params{esp: espB, slot: stick.SlotA})
	assert.ErrorIs(t, err, errNoRoot)
}

// A disk that does not answer must not keep the others waiting, and a disk that failed
// once is read again.
func TestTablesAreReadInTheBackground(t *testing.T) {
	hang, changed := make(chan struct{}), make(chan struct{}, 1)
	defer close(hang)
	tries := make(chan string, 10)
	tb := &tables{changed: changed, seen: map[string]tableRead{}, open: func(name string) (io.ReaderAt, io.Closer, error) {
		if name == "nvme0n1" {
			<-hang
		}
		tries <- name
		return nil, nil, errors.New("input/output error")
	}}
	disks := disksOf(t)
	tb.fill(disks)
	assert.True(t, disks[0].reading && disks[1].reading)
	<-changed
	tb.fill(disks)
	assert.True(t, disks[0].reading, "still hangs")
	assert.False(t, disks[1].reading)
	assert.EqualError(t, disks[1].err, "input/output error")
	<-changed
	assert.Equal(t, "sda", <-tries)
	assert.Equal(t, "sda", <-tries, "tried again")
}

func TestScreens(t *testing.T) {
	p := params{esp: espA, verity: hash, version: assets.Version}
	disks := disksOf(t)
	disks[0].err = stick.ErrNoTable
	disks[1].table = stickTable(espB)
	disks[1].table.Entries[0].Name = "Grün \x1b[2J"
	boot := stick.BootInfo{Version: assets.Version, Disk: stick.Disk{Path: "/dev/sda", Model: "SanDisk Ultra Fit", GUID: espB},
		Verity: stick.Verity{RootHash: hash}, MachineID: stick.MachineID{ID: strings.Repeat("7", 32), Source: stick.MachineIDMinted}}
	_, noParam := parseParams("")
	w := watcher{device: "/dev/dm-0", disk: "/dev/sda"}
	w.handleEvent(uevent{"SUBSYSTEM": "block", "DEVNAME": "dm-0", "DM_VERITY_ERR_BLOCK_NR": "0,4711"})
	for name, got := range map[string]string{
		"search-nothing":    searchScreen(errNotSeen, p, nil, 8*time.Second),
		"search-others":     searchScreen(errNotSeen, p, disks, 93*time.Second),
		"search-reading":    searchScreen(errNotSeen, p, []disk{{name: "sda", bytes: 1 << 33, reading: true}, {name: "sdb", bytes: 1 << 41, err: io.ErrUnexpectedEOF}}, 8*time.Second),
		"search-duplicates": searchScreen(fmt.Errorf("%w: sda and sdb", errDuplicateGUID), p, []disk{{name: "sda", bytes: 1 << 33, table: stickTable(espA)}}, 8*time.Second),
		"failure":           failureScreen(boot, errors.New("mount /run/firstlight/root: input/output error")),
		"stuck":             stuckScreen(noParam),
		"damage":            w.screen(),
		"gone":              removedScreen("/dev/sda"),
		"handover":          handoverLine(boot),
	} {
		got = strings.ReplaceAll(got, assets.Version, "VERSION")
		goldentest.Check(t, "testdata/"+name+".txt", got)
		for _, r := range got {
			assert.True(t, r == '\n' || r >= ' ' && r <= '~', "%s: %q is not plain ASCII", name, r)
		}
	}
}

func TestWatcherNotes(t *testing.T) {
	w := watcher{device: "/dev/dm-0", disk: "/dev/sda"}
	assert.Empty(t, w.screen())
	bad := uevent{"ACTION": "change", "SUBSYSTEM": "block", "DEVNAME": "dm-0", "DM_VERITY_ERR_BLOCK_NR": "1,12"}
	assert.Equal(t, "hash block 12 of the root is not what was written", w.handleEvent(bad))
	assert.Empty(t, w.handleEvent(bad), "each block is told once")
	bad["DEVNAME"] = "dm-1"
	assert.Empty(t, w.handleEvent(bad), "another device")
	assert.Empty(t, w.handleEvent(uevent{"ACTION": "remove", "SUBSYSTEM": "block", "DEVNAME": "sdb"}))
	assert.NotEmpty(t, w.handleEvent(uevent{"ACTION": "remove", "SUBSYSTEM": "block", "DEVNAME": "sda"}))
	assert.Contains(t, w.screen(), "THE STICK IS GONE")
}

func TestParseUevent(t *testing.T) {
	u := parseUevent([]byte("add@/devices/x\x00ACTION=add\x00SUBSYSTEM=block\x00DEVNAME=sda\x00"))
	assert.Equal(t, uevent{"ACTION": "add", "SUBSYSTEM": "block", "DEVNAME": "sda"}, u)
	assert.Empty(t, parseUevent(nil))
}

// sealed is a squashfs of 5000 bytes with the superblock of its hash tree.
func sealed() []byte {
	b := make([]byte, 4*stick.BlockSize)
	le := binary.LittleEndian
	copy(b, "hsqs")
	le.PutUint64(b[40:], 5000)
	sb := b[2*stick.BlockSize:]
	copy(sb, "verity\x00\x00")
	le.PutUint32(sb[8:], 1)
	le.PutUint32(sb[12:], 1)
	copy(sb[32:], "sha256")
	le.PutUint32(sb[64:], stick.BlockSize)
	le.PutUint32(sb[68:], stick.BlockSize)
	le.PutUint64(sb[72:], 2)
	le.PutUint16(sb[80:], 2)
	copy(sb[88:], "\xab\xcd")
	return b
}

func TestReadVerity(t *testing.T) {
	v, err := readVerity(bytes.NewReader(sealed()))
	require.NoError(t, err)
	assert.Equal(t, "1 /dev/sda4 /dev/sda4 4096 4096 2 3 sha256 "+hash+" abcd", v.table("/dev/sda4", hash))
	for name, at := range map[string]int{"squashfs": 0, "signature": 8192, "version": 8200, "algorithm": 8192 + 32,
		"block size": 8192 + 65, "blocks": 8192 + 72, "salt": 8192 + 81, "length": 46} {
		b := sealed()
		b[at] ^= 0x81
		_, err := readVerity(bytes.NewReader(b))
		assert.Error(t, err, name)
	}
}

func FuzzReadVerity(f *testing.F) {
	f.Add(sealed())
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := readVerity(bytes.NewReader(b)); err == nil {
			assert.LessOrEqual(t, v.blocks*stick.BlockSize, uint64(len(b)))
		}
	})
}

func TestMintMachineID(t *testing.T) {
	a, b := mintMachineID(), mintMachineID()
	assert.NotEqual(t, a, b)
	assert.Regexp(t, `^[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}$`, a)
}

func TestTheSystemSaysWhichVersionItIs(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"etc", "usr/lib"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	lower, upper := filepath.Join(root, "usr/lib/os-release"), filepath.Join(root, "etc/os-release")
	require.NoError(t, os.WriteFile(lower, []byte("ID=debian\nIMAGE_VERSION=0.1.0\nVARIANT_ID=firstlight\n"), 0o644))
	require.NoError(t, os.Symlink("../usr/lib/os-release", upper))

	require.NoError(t, nameVersion(root, "0.1.0-dev+0123456789ab"))
	text, err := os.ReadFile(upper)
	require.NoError(t, err)
	assert.Equal(t, "ID=debian\nIMAGE_VERSION=\"0.1.0-dev+0123456789ab\"\nVARIANT_ID=firstlight\n", string(text))
	text, err = os.ReadFile(lower)
	require.NoError(t, err)
	assert.Contains(t, string(text), "IMAGE_VERSION=0.1.0\n", "the link is replaced, not followed")
}
