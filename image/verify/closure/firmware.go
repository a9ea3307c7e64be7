package closure

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"firstlight.dev/firstlight/image/firmware"
)

// modulesDir is where each kernel has its drivers, in a directory by its release.
const modulesDir = "/usr/lib/modules"

// findFirmware wants the files that drivers of networks, disks and accelerators name, but for those that are left out
// with a reason (image/firmware), and the microcode of processors. Drivers are read, not their index: the index does
// not have it.
func findFirmware(t *Tree) ([]Miss, error) {
	var misses []Miss
	for _, name := range t.names {
		if path.Dir(name) != modulesDir || !t.nodes[name].mode.IsDir() {
			continue
		}

		dir, err := fs.Sub(t.fsys, strings.TrimPrefix(name, "/"))
		if err != nil {
			return nil, err
		}

		all, err := firmware.ReadDrivers(dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}

		for _, m := range firmware.WithoutReason(firmware.FindMisses(all, t.hasFirmware)) {
			misses = append(misses, Miss{path.Join(name, m.Driver), "the firmware " + path.Join(firmware.Dir, m.Name)})
		}
		if !t.Has(firmware.MicrocodePath) {
			misses = append(misses, Miss{name, "the microcode of processors, " + firmware.MicrocodePath})
		}
	}
	return misses, nil
}

// hasFirmware reports whether a path below firmware.Dir, which may be a glob, leads to something.
func (t *Tree) hasFirmware(glob string) bool {
	full := path.Join(firmware.Dir, glob)
	if !strings.ContainsAny(glob, `*?[\`) {
		return t.Has(full)
	}
	for _, name := range t.names {
		if ok, err := path.Match(full, name); err == nil && ok && t.Has(name) {
			return true
		}
	}
	return false
}
