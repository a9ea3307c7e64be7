package packages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// indexes are the stanzas of each suite. A package that the stick has comes from the stick alone, in whatever
// version: nobody who uploads packages changes what the appliance made nodes of.
func (r *Repository) indexes(ctx context.Context) (map[string][]byte, error) {
	leave := r.LeftOut
	if leave == nil {
		leave = func(string, string) {}
	}

	suites, err := r.suites()
	if err != nil {
		return nil, err
	}

	lists := map[string][]string{}
	for _, suite := range suites {
		lists[suite] = nil
	}

	ofStick, seen := map[string]int{}, map[string]string{} // which of the pools has a name first
	for i, p := range slices.SortedStableFunc(slices.Values(r.Pools), stickFirst) {
		stanzas, err := p.stanzas(ctx, leave)
		if err != nil {
			return nil, err
		}

		for _, s := range stanzas {
			name, file := Field(s, "Package"), Field(s, "Filename")
			suite := p.suite(file)
			pool, taken := ofStick[name]
			id := suite + " " + name + " " + Field(s, "Version") + " " + Field(s, "Architecture")
			switch {
			case p.Owner != nil && suite == Suite:
				leave(file, "the suite "+Suite+" is the stick's; upload it under another owner's name")
			case taken && pool != i:
				leave(file, "the stick carries "+name+", which stays as it is")
			case seen[id] != "":
				leave(file, seen[id]+" is the same package in the same version")
			default:
				seen[id] = file
				lists[suite] = append(lists[suite], s)
				if p.Owner == nil {
					ofStick[name] = i
				}
			}
		}
	}

	indexes := map[string][]byte{}
	for suite, list := range lists {
		slices.Sort(list)
		indexes[suite] = []byte(strings.Join(list, "\n"))
	}

	return indexes, nil
}

// stickFirst orders pools: the names in the stick's are taken.
func stickFirst(a, b Pool) int {
	switch {
	case (a.Owner == nil) == (b.Owner == nil):
		return 0
	case a.Owner == nil:
		return -1
	}
	return 1
}

// suite is that of a file of the pool.
func (p Pool) suite(file string) string {
	if p.Owner == nil {
		return Suite
	}
	return p.Owner(path.Base(file))
}

// suites are those that there must be, whatever is in them: the stick's, those of r.Owners, and each that was ever
// written, since a node may still ask for it.
func (r *Repository) suites() ([]string, error) {
	written, err := os.ReadDir(filepath.Join(r.Dir, "dists"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read suites of packages: %w", err)
	}

	all := append([]string{Suite}, r.Owners...)
	for _, e := range written {
		all = append(all, e.Name())
	}

	return all, nil
}
