package multus

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"firstlight.dev/firstlight/daemon/addons/cniprogram"
)

// referencePlugins are those of the CNI project that networks of pods are usually made of. dhcp is not among them: it
// needs a daemon.
var referencePlugins = []string{
	"bridge", "host-device", "host-local", "ipvlan", "macvlan", "portmap", "ptp", "static", "tuning",
}

// programFiles installs programs on the node.
type programFiles struct {
	installer *cniprogram.Installer
}

// install puts this program and the reference plugins that are missing in the node's folder of plugins.
func (p *programFiles) install(d Dirs, self, image string) error {
	if p.installer == nil {
		p.installer = &cniprogram.Installer{Programs: d.Programs, State: d.State}
	}
	if err := p.installer.Ensure(self, Name, true); err != nil {
		return err
	}
	for _, name := range referencePlugins {
		from := filepath.Join(image, name)
		if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
			continue // an image without it
		}
		if err := p.installer.Ensure(from, name, false); err != nil {
			return err
		}
	}
	return nil
}
