package devices

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
)

// ReadConfigs reads the files NAME.json of folders, in the order of the folders and of their names. A resource that two
// files name is the first one's.
func ReadConfigs(dirs []string) (all []Resource, faults []error) {
	for _, dir := range dirs {
		files, _ := filepath.Glob(filepath.Join(dir, "*.json")) // the pattern is sound
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				faults = append(faults, fmt.Errorf("read the configuration: %w", err))
				continue
			}

			resources, wrong := ParseConfig(text)
			for _, err := range wrong {
				faults = append(faults, fmt.Errorf("%s: %w", filepath.Base(file), err))
			}
			for _, r := range resources {
				same := func(other Resource) bool { return other.String() == r.String() }
				if slices.ContainsFunc(all, same) {
					faults = append(faults, fmt.Errorf("%s: %s is in another file, too; rename one of them",
						filepath.Base(file), r))
					continue
				}
				all = append(all, r)
			}
		}
	}
	return all, faults
}

// FindRouted returns the network interfaces by which a default route of this network namespace goes.
func FindRouted() (map[string]bool, error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("read the node's routes: %w", err)
	}

	names := map[string]bool{}
	for _, r := range routes {
		if r.Dst != nil {
			if ones, _ := r.Dst.Mask.Size(); ones != 0 {
				continue
			}
		}
		indexes := []int{r.LinkIndex}
		for _, hop := range r.MultiPath {
			indexes = append(indexes, hop.LinkIndex)
		}
		for _, i := range indexes {
			if link, err := netlink.LinkByIndex(i); err == nil {
				names[link.Attrs().Name] = true
			}
		}
	}
	return names, nil
}
