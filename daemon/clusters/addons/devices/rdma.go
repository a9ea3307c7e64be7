package devices

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	infinibandDir = "/dev/infiniband"
	rdmaManager   = "rdma_cm" // the file of the connection manager, which all devices share
)

// rdma returns what a device has of RDMA: the partition key at index 0 of its first port, and the names of its files in
// /dev/infiniband (Documentation/ABI/stable/sysfs-class-infiniband of the kernel).
func (s Sysfs) rdma(address string) (pkey string, files []string) {
	ports, _ := filepath.Glob(s.device(address, "infiniband/*/ports/1")) // the pattern is sound
	if len(ports) == 0 {
		return "", nil
	}
	if text, err := os.ReadFile(filepath.Join(ports[0], "pkeys/0")); err == nil {
		pkey = strings.TrimSpace(string(text))
	}

	for _, kind := range []string{"infiniband_verbs", "infiniband_mad"} {
		entries, _ := os.ReadDir(s.device(address, kind)) // there is none if its module is not loaded
		for _, e := range entries {
			files = append(files, e.Name())
		}
	}
	if _, err := os.Stat(filepath.Join(string(s), "class/misc", rdmaManager)); err == nil {
		files = append(files, rdmaManager)
	}
	slices.Sort(files)
	return pkey, files
}

// VDPA is a device by which a virtual function speaks virtio.
type VDPA struct {
	Type string // vhost or virtio, by the driver that it has; "" if it has none of these
	File string // of vhost, in /dev; "" of virtio
}

// vdpaTypes are those of upstream, by the drivers of the kernel's bus vdpa.
var vdpaTypes = map[string]string{"vhost_vdpa": "vhost", "virtio_vdpa": "virtio"}

func (s Sysfs) vdpa(address string) (v VDPA) {
	dirs, _ := filepath.Glob(s.device(address, "vdpa[0-9]*")) // the pattern is sound
	if len(dirs) == 0 {
		return v
	}
	driver, err := os.Readlink(filepath.Join(dirs[0], "driver"))
	if err != nil {
		return v
	}
	v.Type = vdpaTypes[filepath.Base(driver)]
	if files, _ := filepath.Glob(filepath.Join(dirs[0], "vhost-vdpa-*")); len(files) > 0 {
		v.File = filepath.Base(files[0])
	}
	return v
}
