// Package firmware chooses the firmware that the image carries: the files that the kernel's drivers name, out of
// Debian's packages, each compressed as the kernel reads it, and the processors' microcode as an archive that the
// kernel reads before all else. The same code tells which drivers lack a file, so that what is missing has a reason.
package firmware

import (
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/image/drivers"
	"firstlight.dev/firstlight/image/tree"
)

// Dir is where the kernel looks for firmware (drivers/base/firmware_loader/main.c, fw_path).
const Dir = "/usr/lib/firmware"

// suffixes are the forms in which the kernel finds a file: plain, and compressed with xz or zstd
// (CONFIG_FW_LOADER_COMPRESS_XZ and _ZSTD, which Debian's kernel has).
var suffixes = []string{"", ".xz", ".zst"}

// directories are where a driver whose device must work on a server lies, below kernel/: networks, disks, what
// both hang on, and accelerators of cryptography.
var directories = []string{
	"drivers/ata/", "drivers/atm/", "drivers/block/", "drivers/crypto/", "drivers/gpu/drm/ast/", "drivers/infiniband/",
	"drivers/message/", "drivers/mmc/", "drivers/net/", "drivers/nvme/", "drivers/ptp/", "drivers/scsi/",
	"drivers/usb/host/", "drivers/usb/storage/",
}

// Driver is a kernel module that asks for firmware.
type Driver struct {
	File  string   // below the directory of modules: kernel/drivers/net/ethernet/broadcom/bnx2.ko.xz
	Names []string // of files below Dir, sorted; a name may be a glob
}

// Module is the name that the kernel knows the driver by.
func (d Driver) Module() string { return drivers.ModuleName(d.File) }

// ReadDrivers lists the drivers of networks, disks and accelerators that name firmware, sorted by file. dir is a
// directory such as /usr/lib/modules/6.12.
func ReadDrivers(dir fs.FS) ([]Driver, error) {
	var files []string
	for _, top := range directories {
		err := fs.WalkDir(dir, path.Join("kernel", top), func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.Contains(path.Base(name), ".ko") {
				files = append(files, name)
			}
			if d == nil { // a kernel may have none of a kind
				return nil
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list drivers: %w", err)
		}
	}

	if len(files) == 0 {
		return nil, fmt.Errorf("list drivers: there are none of networks and disks")
	}

	return readNames(dir, files)
}

func readNames(dir fs.FS, files []string) ([]Driver, error) {
	var mu sync.Mutex
	var found []Driver
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, file := range files {
		group.Go(func() error {
			info, err := drivers.ReadInfo(dir, file)
			if err != nil {
				return fmt.Errorf("read driver %s: %w", file, err)
			}

			names := slices.Concat(info["firmware"], unnamed[drivers.ModuleName(file)])
			if len(names) == 0 {
				return nil
			}

			slices.Sort(names)
			mu.Lock()
			found = append(found, Driver{File: file, Names: slices.Compact(names)})
			mu.Unlock()
			return nil
		})
	}

	err := group.Wait()
	slices.SortFunc(found, func(a, b Driver) int { return strings.Compare(a.File, b.File) })
	return found, err
}

// Miss is a file that a driver names and that is not there.
type Miss struct {
	Driver string // file of the module
	Name   string // of the firmware, below Dir
	Reason string // why it is not carried; empty where nobody knows
}

func (m Miss) String() string {
	if m.Reason == "" {
		return fmt.Sprintf("%s names the firmware %s/%s, which is not there", m.Driver, Dir, m.Name)
	}
	return fmt.Sprintf("%s: %s: %s", m.Driver, m.Name, m.Reason)
}

// FindMisses lists the files that drivers name and that are not there, each with its reason if it has one. has
// reports whether something matches a path or a glob below Dir.
func FindMisses(all []Driver, has func(glob string) bool) []Miss {
	var misses []Miss
	for _, d := range all {
		for _, name := range d.Names {
			if !slices.ContainsFunc(suffixes, func(suffix string) bool { return has(name + suffix) }) {
				misses = append(misses, Miss{d.File, name, reasonFor(name)})
			}
		}
	}
	return misses
}

// WithoutReason are the misses that nobody has accounted for.
func WithoutReason(misses []Miss) []Miss {
	return slices.DeleteFunc(slices.Clone(misses), func(m Miss) bool { return m.Reason != "" })
}

// Files returns the files that a driver's name of firmware stands for in a root, below Dir, by the names that the kernel
// asks for, with the suffix of what they are compressed with; links are followed. None if there are none.
func Files(root *tree.Tree, name string) (map[string][]byte, error) {
	found := map[string][]byte{}
	for _, suffix := range suffixes {
		for _, p := range root.Paths(Dir + "/" + name + suffix) {
			file, err := follow(root, "/"+p)
			if err != nil {
				return nil, err
			}
			if root.Get(file).Type != tree.File {
				continue
			}
			if found[strings.TrimPrefix("/"+p, Dir+"/")], err = root.ReadFile(file); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// maxLinks is where Linux gives up too.
const maxLinks = 40

// follow returns what a path leads to by links.
func follow(t *tree.Tree, p string) (string, error) {
	for range maxLinks {
		n := t.Get(p)
		switch {
		case n == nil:
			return "", fmt.Errorf("a link leads to %s, which is not there", p)
		case n.Type != tree.Symlink:
			return p, nil
		}
		p = path.Join(path.Dir(p), n.Target)
	}
	return "", fmt.Errorf("links at %s lead in a circle", p)
}
