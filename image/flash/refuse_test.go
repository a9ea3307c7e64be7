package flash_test

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/flash"
)

func TestRefuseAndAllow(t *testing.T) {
	good := flash.Device{Name: "sdb", Path: "/dev/sdb", Bytes: 8 << 30, Sector: 512, Removable: true}
	for _, c := range []struct {
		name   string
		change func(*flash.Device)
		forced string
		want   string // "" for allowed
	}{
		{"a stick", func(*flash.Device) {}, "", ""},
		{"not removable", func(d *flash.Device) { d.Removable = false }, "",
			"/dev/sdb is not removable and not on USB; if it is meant, add --force-device sdb"},
		{"not removable, named", func(d *flash.Device) { d.Removable = false }, "sdb", ""},
		{"not removable, another named", func(d *flash.Device) { d.Removable = false }, "sda",
			`/dev/sdb is not removable and not on USB; --force-device sda does not name it, it is "sdb"`},
		{"a disk in a USB case", func(d *flash.Device) { d.Removable, d.USB = false, true }, "", ""},
		{"mounted", func(d *flash.Device) { d.Uses = []string{"/dev/sdb1 is mounted on /mnt"} }, "", "/dev/sdb1 is mounted on /mnt"},
		{"mounted, named", func(d *flash.Device) { d.Uses = []string{"/dev/sdb1 is mounted on /mnt"} }, "sdb", "/dev/sdb1 is mounted on /mnt"},
		{"running system, named", func(d *flash.Device) { d.System = true }, "sdb", "/dev/sdb holds the running system"},
		{"running system, not removable", func(d *flash.Device) { d.System, d.Removable = true, false }, "",
			"/dev/sdb holds the running system; /dev/sdb is not removable and not on USB"},
		{"too small", func(d *flash.Device) { d.Bytes = 1<<30 - 1 }, "sdb", "/dev/sdb has 1073741823 bytes, the image needs 1073741824"},
		{"exactly large enough", func(d *flash.Device) { d.Bytes = 1 << 30 }, "", ""},
		{"write-protected", func(d *flash.Device) { d.ReadOnly = true }, "sdb", "/dev/sdb is write-protected"},
		{"a partition", func(d *flash.Device) { d.Parent = "/dev/sdb" }, "sdb", "/dev/sdb is a partition; name the whole disk, /dev/sdb"},
		{"4K sectors", func(d *flash.Device) { d.Sector = 4096 }, "sdb", "/dev/sdb has sectors of 4096 bytes; the image's table is for 512"},
		{"a file", func(d *flash.Device) { d.File = true }, "", "/dev/sdb is a regular file, not a disk; if it is meant, add --force-device sdb"},
		{"a file, named", func(d *flash.Device) { d.File = true }, "sdb", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := good
			c.change(&d)
			err := flash.CheckAllowed(d, flash.RefusalReasons(d, flash.Image{Bytes: 1 << 30}), c.forced)
			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, c.want)
			}
		})
	}
}

// machine has a stick sdb with one partition, a system disk nvme0n1 with LVM for the
// root, and what does not count.
func machine() (flash.SysFS, fstest.MapFS, fstest.MapFS) {
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }
	link := func(to string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink | 0o777}
	}
	const usb = "devices/pci0000:00/usb1/1-2/1-2:1.0/host6/target6/6:0:0:0/block/sdb"
	const nvme = "devices/pci0000:00/nvme/nvme0/nvme0n1"
	sys := fstest.MapFS{
		"class/block/sdb":       link("../../" + usb),
		"class/block/sdb1":      link("../../" + usb + "/sdb1"),
		"class/block/nvme0n1":   link("../../" + nvme),
		"class/block/nvme0n1p1": link("../../" + nvme + "/nvme0n1p1"),
		"class/block/nvme0n1p2": link("../../" + nvme + "/nvme0n1p2"),
		"class/block/dm-0":      link("../../devices/virtual/block/dm-0"),
		"class/block/loop0":     link("../../devices/virtual/block/loop0"),
		"class/block/sdc":       link("../../devices/reader/sdc"),

		usb + "/size": text("15728640"), usb + "/removable": text("1"), usb + "/ro": text("0"), usb + "/dev": text("8:16"),
		usb + "/device/vendor": text("ACME    "), usb + "/device/model": text("Stick 3000      "),
		usb + "/queue/logical_block_size": text("512"),
		usb + "/sdb1/partition":           text("1"), usb + "/sdb1/dev": text("8:17"), usb + "/sdb1/size": text("2048"),
		"devices/pci0000:00/usb1/1-2/serial": text("0123ABC"),

		nvme + "/size": text("1000215216"), nvme + "/removable": text("0"), nvme + "/ro": text("0"), nvme + "/dev": text("259:0"),
		nvme + "/device/model": text("Fast Disk"), nvme + "/device/serial": text("S1"),
		nvme + "/nvme0n1p1/partition": text("1"), nvme + "/nvme0n1p1/dev": text("259:1"), nvme + "/nvme0n1p1/size": text("2048"),
		nvme + "/nvme0n1p2/partition": text("2"), nvme + "/nvme0n1p2/dev": text("259:2"), nvme + "/nvme0n1p2/size": text("2048"),
		nvme + "/nvme0n1p2/holders/dm-0": text(""),

		"devices/virtual/block/dm-0/dev": text("253:0"), "devices/virtual/block/dm-0/size": text("2048"),
		"devices/virtual/block/loop0/dev": text("7:0"), "devices/virtual/block/loop0/size": text("2048"),
		"devices/reader/sdc/size": text("0"), "devices/reader/sdc/removable": text("1"), "devices/reader/sdc/dev": text("8:32"),
	}
	proc := fstest.MapFS{
		"self/mountinfo": text("22 1 253:0 / / rw - ext4 /dev/mapper/root rw\n23 22 0:5 / /proc rw - proc proc rw"),
		"swaps":          text("Filename Type Size Used Priority\n/dev/nvme0n1p1 partition 100 0 -2"),
	}
	return flash.SysFS{Sys: sys, Proc: proc}, sys, proc
}

func TestDeviceOfMachine(t *testing.T) {
	w, sys, proc := machine()
	d, err := w.Device("sdb")
	require.NoError(t, err)
	assert.Equal(t, flash.Device{Name: "sdb", Path: "/dev/sdb", Model: "ACME Stick 3000", Serial: "0123ABC", Bytes: 15728640 * 512, Sector: 512, Removable: true, USB: true}, d)

	d, err = w.Device("nvme0n1")
	require.NoError(t, err)
	assert.Equal(t, "S1", d.Serial)
	assert.True(t, d.System, "the root is on it through device mapper")
	assert.Equal(t, []string{"/dev/dm-0 is mounted on /", "/dev/nvme0n1p1 is swap", "/dev/nvme0n1p2 is part of /dev/dm-0"}, d.Uses)

	d, err = w.Device("sdb1")
	require.NoError(t, err)
	assert.Equal(t, "/dev/sdb", d.Parent)

	_, err = w.Device("sdz")
	assert.ErrorContains(t, err, "read device sdz: it is no block device")

	proc["self/mountinfo"] = &fstest.MapFile{Data: []byte("30 22 8:17 / /media/my\\040stick rw - vfat /dev/sdb1 rw\n31 22 0:40 / /data rw - btrfs /dev/sdb1 rw\n")}
	d, err = w.Device("sdb")
	require.NoError(t, err)
	assert.Equal(t, []string{"/dev/sdb1 is mounted on /data", "/dev/sdb1 is mounted on /media/my stick"}, d.Uses)
	assert.False(t, d.System)

	proc["self/mountinfo"] = &fstest.MapFile{Data: []byte("30 22 8:17 / /boot/efi rw - vfat /dev/sdb1 rw\n")}
	d, err = w.Device("sdb")
	require.NoError(t, err)
	assert.True(t, d.System)
	_ = sys
}

func TestListLeavesOutWhatIsNoDisk(t *testing.T) {
	w, _, _ := machine()
	devices, err := w.List()
	require.NoError(t, err)
	var names []string
	for _, d := range devices {
		names = append(names, d.Name)
	}
	assert.Equal(t, []string{"nvme0n1", "sdb"}, names, "no partition, loop, mapper, nor a reader without a card")
}
