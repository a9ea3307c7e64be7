package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/image/lab"
)

func smallImage(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "stick.img")
	require.NoError(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	return path
}

func TestBootConfig(t *testing.T) {
	image := smallImage(t)
	c, err := bootConfig(image, "/d", bootFlags{secureBoot: true, disk: "nvme", nic: "none", memory: 1024, cpus: 1})
	require.NoError(t, err)
	assert.Equal(t, lab.Config{Name: "firstlight", Dir: "/d", Firmware: lab.SecureBoot, MiB: 1024, CPUs: 1,
		Disks: []lab.Disk{{Image: image, Bus: lab.NVMe, Serial: "stick", Bytes: 1 << 20}}}, c, "size 0 is the image's own")

	for name, f := range map[string]bootFlags{
		"disk": {disk: "tape", nic: "user"},
		"nic":  {disk: "usb", nic: "token-ring"},
	} {
		_, err := bootConfig(image, "/d", f)
		var usage commandline.UsageError
		assert.ErrorAs(t, err, &usage, name)
	}
	_, err = bootConfig(image+"x", "/d", bootFlags{disk: "usb", nic: "user"})
	assert.ErrorContains(t, err, "`firstlight build` makes it")
}

// The serial console of `firstlight boot` is the terminal, with QEMU's keys.
func TestBootPrint(t *testing.T) {
	if _, err := os.Stat("/usr/bin/qemu-img"); err != nil {
		t.Skip("makes an overlay with qemu-img, which is not installed: ", err)
	}
	dir := filepath.Join(t.TempDir(), "m")
	cmd := newBootCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--print", "--dir", dir, "--disk", "usb", "--size", "64", smallImage(t)})
	require.NoError(t, cmd.Execute())
	assert.Contains(t, out.String(), "qemu-system-x86_64 -name firstlight ")
	assert.Contains(t, out.String(), "usb-storage,bus=usb.0,removable=on,drive=drive0,serial=stick,bootindex=1")
	assert.FileExists(t, filepath.Join(dir, "disk0.qcow2"))

	assert.Equal(t, []string{"-chardev", "stdio,id=console,signal=off,mux=on"},
		onTerminal([]string{"-chardev", "stdio,id=console,signal=off"}))
}
