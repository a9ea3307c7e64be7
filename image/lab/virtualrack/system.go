package virtualrack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/lab"
)

// A rack whose appliance is installed on a machine with a system of its own: that starts from its own disk, and
// cloud-init, which every cloud image has, does what its owner would do. The stick is nothing but the image there.

// System is the name by which ssh reaches the machine itself. Appliance leads to the appliance that runs on it.
const System = system

// Files of such a rack.
const (
	systemImage = "system.img" // the system's disk, which is only read
	seedImage   = "seed.img"   // what cloud-init is told, the command, and the site
)

const (
	systemCard = 0x05 // number of the machine's own card
	systemHost = 1    // of its address on that card's network
)

// nicModels are devices of QEMU that the appliance's cards may be.
var nicModels = []string{"virtio-net-pci", "e1000", "e1000e", "rtl8139", "vmxnet3"}

// seedLabel is of the volume on which cloud-init looks for what it shall do (its data source NoCloud).
const seedLabel = "CIDATA"

// checkSystem tells whether the files are there that an installation needs.
func checkSystem(o Order) error {
	if o.System == "" {
		return nil
	}
	info, err := os.Stat(o.System)
	if err != nil {
		return fmt.Errorf("%w; --system names the raw image of a disk with a system, such as one by scripts/debian-disk", err)
	}
	if size := int64(o.StickGiB) << 30; info.Size() > size {
		return fmt.Errorf("%s has %d MiB and the appliance's disk %d GiB; give a larger --stick", o.System, info.Size()>>20, o.StickGiB)
	}
	return nil
}

// systemDisks are those of the machine, the first of which it starts from.
func (r Rack) systemDisks(bytes int64) []lab.Disk {
	return []lab.Disk{
		{Image: systemImage, Bus: lab.Virtio, Serial: "system", Bytes: bytes, Quick: true},
		{Image: stickImage, Bus: lab.Virtio, Serial: stickSerial, Quick: true},
		{Image: seedImage, Bus: lab.Virtio, Serial: "seed", Quick: true},
	}
}

// makeSystem writes what the machine has besides the stick. program is the firstlight command, document the site, key
// that of whoever may log in.
func makeSystem(dir, program string, o Order, document, key string) error {
	if err := lab.LinkImage(o.System, filepath.Join(dir, systemImage)); err != nil {
		return err
	}

	info, err := os.Stat(program)
	if err != nil {
		return err
	}

	files := []disk.File{
		disk.HostFile("firstlight", program),
		disk.TextFile("site.yaml", []byte(document)),
		disk.TextFile("meta-data", []byte("instance-id: lab\n")),
	}
	for name, form := range map[string]*template.Template{"user-data": userData, "network-config": networkConfig} {
		var text strings.Builder
		if err := form.Execute(&text, map[string]any{
			"Key":     key,
			"Label":   seedLabel,
			"Serial":  stickSerial,
			"MAC":     macOf(0, systemCard),
			"Address": prefixOf(system, systemHost),
			"Begins":  lineInstalling,
			"Done":    lineInstalled,
			"Failed":  lineNotInstalled,
		}); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		files = append(files, disk.TextFile(name, []byte(text.String())))
	}

	return writeSeed(filepath.Join(dir, seedImage), info.Size(), files)
}

// writeSeed writes the image of a disk of one volume, on which cloud-init looks for what it shall do. bytes is the size
// of what is large among the files.
func writeSeed(path string, bytes int64, files []disk.File) error {
	if err := os.WriteFile(disk.PartPath(path), nil, 0o600); err != nil { // the site has passwords
		return err
	}
	const mib = 1 << 20
	return disk.Finish(context.Background(), path, disk.Layout{
		GUID: "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c300",
		Partitions: []disk.Partition{{
			Name: seedLabel, Type: gpt.TypeBasicData, GUID: "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c301",
			Size:    bytes/mib*mib + 64*mib,
			Content: disk.FAT{Label: seedLabel, VolumeID: 0xF125_5EED, Files: files},
		}},
	})
}

// Lines of the machine's console by which an installation is followed.
const (
	lineKernel       = "Linux version "
	lineInstalling   = "firstlight lab: installing"
	lineInstalled    = "firstlight lab: installed"
	lineNotInstalled = "firstlight lab: not installed"
)

// userData is what cloud-init does: the owner's key, and the installation. What that prints is on the console.
var userData = template.Must(template.New("user-data").Parse(`#cloud-config
disable_root: false
ssh_authorized_keys: ["{{.Key}}"]
runcmd:
  - |
    exec >/dev/console 2>&1
    echo '{{.Begins}}'
    mount -o ro LABEL={{.Label}} /mnt
    if /mnt/firstlight install --image /dev/disk/by-id/virtio-{{.Serial}} --site /mnt/site.yaml
    then echo '{{.Done}}'; else echo '{{.Failed}}'; fi
    umount /mnt
`))

// networkConfig is of the machine's own card alone: the others are for the appliance.
var networkConfig = template.Must(template.New("network-config").Parse(`version: 2
ethernets:
  own:
    match: {macaddress: "{{.MAC}}"}
    addresses: [{{.Address}}]
`))

// handleSystemLine takes a line of a machine that has a system of its own.
func (c *phaseTracker) handleSystemLine(line string) {
	switch {
	case strings.Contains(line, lineKernel):
		c.powerOn() // it may have restarted by itself
		c.phase = PhaseSystem
	case strings.Contains(line, lineInstalling):
		c.phase = PhaseInstalling
	case strings.Contains(line, lineInstalled):
		c.phase = PhaseStarting
	case strings.Contains(line, lineNotInstalled):
		c.phase = PhaseNotInstalled
	}
}

// isBeforeAppliance reports whether a phase is of the machine, and not of the appliance on it.
func isBeforeAppliance(phase string) bool {
	return slices.Contains([]string{"", PhaseOff, PhaseFirmware, PhaseSystem, PhaseInstalling, PhaseNotInstalled}, phase)
}

// systemFailure says why the appliance will not come up by itself; "" if nothing is wrong.
func (c *phaseTracker) systemFailure() string {
	if c.phase != PhaseNotInstalled {
		return ""
	}
	return "the appliance is not installed; `firstlight lab console " + Appliance + "` has the reasons"
}
