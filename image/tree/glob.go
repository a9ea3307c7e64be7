package tree

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Paths lists the paths that match a glob, sorted; the root directory never does.
func (t *Tree) Paths(glob string) []string {
	glob = cleanPath(glob)
	if !strings.ContainsAny(glob, `*?[\`) {
		if _, there := t.nodes[glob]; there && glob != "" {
			return []string{glob}
		}
		return nil
	}

	pattern := strings.Split(glob, "/")
	var found []string
	for p := range maps.Keys(t.nodes) {
		if p != "" && matchParts(pattern, strings.Split(p, "/")) {
			found = append(found, p)
		}
	}

	slices.Sort(found)
	return found
}

// OnlyFile finds the only file that a glob matches.
func (t *Tree) OnlyFile(glob string) (string, error) {
	files := slices.DeleteFunc(t.Paths(glob), func(p string) bool { return t.Get(p).Type != File })
	if len(files) != 1 {
		return "", fmt.Errorf("find %s: %d files match and not one: %s", glob, len(files), strings.Join(files, ", "))
	}
	return files[0], nil
}

func matchParts(pattern, parts []string) bool {
	for i, piece := range pattern {
		if piece == "**" && i == len(pattern)-1 {
			return len(parts) > i // all that is below, not the directory
		}
		if piece == "**" {
			for skip := min(i, len(parts)); skip <= len(parts); skip++ {
				if matchParts(pattern[i+1:], parts[skip:]) {
					return true
				}
			}
			return false
		}
		if i >= len(parts) {
			return false
		}
		if ok, err := path.Match(piece, parts[i]); err != nil || !ok {
			return false
		}
	}
	return len(pattern) == len(parts)
}
