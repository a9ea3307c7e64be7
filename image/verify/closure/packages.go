package closure

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// packagesDir is where the Debian packages lie that nodes are given.
const packagesDir = "/usr/share/firstlight/packages"

// findPackages wants every package of the index to be there, as large as it says, and for each
// dependency a package of the index that is it or provides it. Versions are not compared: all were
// resolved together.
func findPackages(t *Tree) ([]Miss, error) {
	index := packagesDir + "/Packages"
	if !t.Has(index) {
		return nil, nil
	}

	text, err := t.Read(index)
	if err != nil {
		return nil, err
	}

	var all []map[string]string
	have := map[string]bool{}
	for stanza := range strings.SplitSeq(string(text), "\n\n") {
		fields := parseControl(stanza)
		if fields["Package"] == "" {
			continue
		}

		all = append(all, fields)
		have[fields["Package"]] = true
		for _, p := range strings.Split(fields["Provides"], ",") {
			have[packageName(p)] = true
		}
	}

	var misses []Miss
	for _, p := range all {
		by := index + ": " + p["Package"]
		file := path.Join(packagesDir, p["Filename"])
		if real, ok := t.Resolve(file); !ok {
			misses = append(misses, Miss{by, "the package " + file})
		} else if size := t.nodes[real].size; strconv.FormatInt(size, 10) != p["Size"] {
			misses = append(misses, Miss{by, fmt.Sprintf("%s has %d bytes, not %s", file, size, p["Size"])})
		}

		for _, wish := range append(strings.Split(p["Depends"], ","), strings.Split(p["Pre-Depends"], ",")...) {
			if strings.TrimSpace(wish) != "" && !oneOf(have, wish) {
				misses = append(misses, Miss{by, "the package " + strings.TrimSpace(wish)})
			}
		}
	}

	return misses, nil
}

// parseControl reads the fields of a stanza that are one line each (deb-control(5)).
func parseControl(stanza string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(stanza) {
		if key, value, ok := strings.Cut(line, ":"); ok && key != "" && key[0] != ' ' && key[0] != '\t' {
			fields[key] = strings.TrimSpace(value)
		}
	}
	return fields
}

// oneOf tells whether one of the alternatives of a dependency is there.
func oneOf(have map[string]bool, wish string) bool {
	for alternative := range strings.SplitSeq(wish, "|") {
		if have[packageName(alternative)] {
			return true
		}
	}
	return false
}

// packageName is a relation without its version, architecture and qualifier.
func packageName(relation string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(relation), " ")
	name, _, _ = strings.Cut(name, "(")
	name, _, _ = strings.Cut(name, ":")
	return name
}
