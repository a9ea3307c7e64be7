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

// RDMA is a device by which memory of other computers is reached.
type RDMA struct {
	Name  string   // as mlx5_2
	Files []string // in /dev/infiniband, sorted
}

// rdma returns what a device's folder has of RDMA, with the partition key at index 0 of its first port
// (Documentation/ABI/stable/sysfs-class-infiniband of the kernel).
func (s Sysfs) rdma(dir string) (pkey string, r RDMA) {
	ports, _ := filepath.Glob(filepath.Join(dir, "infiniband/*/ports/1")) // the pattern is sound
	if len(ports) == 0 {
		return "", r
	}
	r.Name = filepath.Base(filepath.Dir(filepath.Dir(ports[0])))
	if text, err := os.ReadFile(filepath.Join(ports[0], "pkeys/0")); err == nil {
		pkey = strings.TrimSpace(string(text))
	}

	for _, kind := range []string{"infiniband_verbs", "infiniband_mad"} { // each only if its module is loaded
		r.Files = append(r.Files, listNames(filepath.Join(dir, kind))...)
	}
	if _, err := os.Stat(filepath.Join(string(s), "class/misc", rdmaManager)); err == nil {
		r.Files = append(r.Files, rdmaManager)
	}
	slices.Sort(r.Files)
	return pkey, r
}
