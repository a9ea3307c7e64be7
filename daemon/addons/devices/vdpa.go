package devices

import (
	"os"
	"path/filepath"
)

// VDPA is a device by which a virtual function speaks virtio.
type VDPA struct {
	Type string // vhost or virtio, by the driver that it has; "" if it has none of these
	File string // of vhost, in /dev; "" of virtio
}

// vdpaTypes are those of upstream, by the drivers of the kernel's bus vdpa.
var vdpaTypes = map[string]string{"vhost_vdpa": "vhost", "virtio_vdpa": "virtio"}

// vdpa finds the first vDPA device below a PCI device. Whoever made it chose its name: the bus alone tells that it is one.
func (s Sysfs) vdpa(address string) (v VDPA) {
	links, _ := filepath.Glob(filepath.Join(string(s), "bus/vdpa/devices/*")) // the pattern is sound
	for _, link := range links {
		if parentOf(link) != address {
			continue
		}
		driver, err := os.Readlink(filepath.Join(link, "driver"))
		if err != nil {
			return v
		}
		v.Type = vdpaTypes[filepath.Base(driver)]
		if files, _ := filepath.Glob(filepath.Join(link, "vhost-vdpa-*")); len(files) > 0 {
			v.File = filepath.Base(files[0])
		}
		return v
	}
	return v
}

// parentOf is the name of the device that the one behind a bus's link is below; "" if there is no such link.
func parentOf(link string) string {
	to, err := os.Readlink(link)
	if err != nil {
		return ""
	}
	return filepath.Base(filepath.Dir(to))
}
