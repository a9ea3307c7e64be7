// Package lock is what a recipe was resolved to: every Debian package by version and
// digest, every Go module, the Go toolchain, every registry image by digest. The text
// form is kept in git as assets/recipe.lock, one fact per line, so that a change to
// the image reads as a change to it.
package lock

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/debian"
	"firstlight.dev/firstlight/image/recipe"
)

// Lock is a resolved recipe.
type Lock struct {
	Epoch     int64             // seconds since 1970: no file of the image is younger
	Toolchain string            // go1.26.8
	Requested map[string]string // root to the digest of what it asked for
	Debs      map[string]Deb    // by name
	Modules   []Module
	Images    map[string]string // image name to registry/name@sha256:...
}

// Deb is a package and the roots that have it.
type Deb struct {
	debian.Package
	Roots []string // sorted
}

// Module is a Go module that a program is compiled from.
type Module struct {
	Dir     string // of the go.mod that selects it
	Path    string
	Version string
	Sum     string // h1:...; empty for a directory of this repository
}

// Sum is the sum of a module; empty when the lock does not have it.
func (l *Lock) Sum(path, version string) string {
	for _, m := range l.Modules {
		if m.Path == path && m.Version == version {
			return m.Sum
		}
	}
	return ""
}

// RequestDigest is the digest of everything that decides which packages a root gets.
func RequestDigest(r *recipe.Recipe, root *recipe.Root) string {
	parts := []string{"1", r.Debian.Suite, strings.Join(r.Debian.Components, " "), root.Variant}
	parts = append(parts, strings.Join(slices.Sorted(slices.Values(root.Packages)), " "))
	parts = append(parts, strings.Join(slices.Sorted(slices.Values(root.Unpack)), " "))
	return cache.Key(parts...)[:16]
}

// StaleRoots names the roots whose packages the recipe asks differently than when the lock
// was written, each with the reason, sorted.
func (l *Lock) StaleRoots(r *recipe.Recipe) []string {
	var stale []string
	for i := range r.Roots {
		root := &r.Roots[i]
		switch was, there := l.Requested[root.Name]; {
		case !there:
			stale = append(stale, "root "+root.Name+" is new")
		case was != RequestDigest(r, root):
			stale = append(stale, "root "+root.Name+" asks for other packages")
		}
	}

	for _, image := range r.Images {
		if image.Reference != "" && l.Images[image.Name] != image.Reference {
			stale = append(stale, "image "+image.Name+" asks for another digest")
		}
	}

	slices.Sort(stale)
	return stale
}

// Root lists the packages of a root, sorted by name.
func (l *Lock) Root(name string) []debian.Package {
	var packages []debian.Package
	for _, deb := range slices.Sorted(maps.Keys(l.Debs)) {
		if slices.Contains(l.Debs[deb].Roots, name) {
			packages = append(packages, l.Debs[deb].Package)
		}
	}
	return packages
}

// Packages lists every package, sorted by name.
func (l *Lock) Packages() []debian.Package {
	var packages []debian.Package
	for _, name := range slices.Sorted(maps.Keys(l.Debs)) {
		packages = append(packages, l.Debs[name].Package)
	}
	return packages
}

// AddRoot records what a root was resolved to.
func (l *Lock) AddRoot(name, asked string, packages []debian.Package) error {
	if l.Requested == nil {
		l.Requested, l.Debs = map[string]string{}, map[string]Deb{}
	}

	l.Requested[name] = asked
	for _, p := range packages {
		deb, there := l.Debs[p.Name]
		if there && deb.Package != p {
			return fmt.Errorf(
				"lock root %s: %s is %s here and %s in root %s", name, p.Name, p.Version, deb.Version, deb.Roots[0],
			)
		}

		deb.Package = p
		deb.Roots = append(deb.Roots, name)
		slices.Sort(deb.Roots)
		l.Debs[p.Name] = deb
	}

	return nil
}

const heading = "# What assets/recipe.yaml was resolved to. Written by `firstlight lock`; read docs/image.md."

// Text is the form kept in git.
func (l *Lock) Text() []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, heading)
	fmt.Fprintf(&b, "epoch %d\n", l.Epoch)
	fmt.Fprintf(&b, "toolchain %s\n", l.Toolchain)
	for _, name := range slices.Sorted(maps.Keys(l.Requested)) {
		fmt.Fprintf(&b, "root %s asked=%s\n", name, l.Requested[name])
	}

	for _, name := range slices.Sorted(maps.Keys(l.Images)) {
		fmt.Fprintf(&b, "image %s %s\n", name, l.Images[name])
	}

	for _, name := range slices.Sorted(maps.Keys(l.Debs)) {
		d := l.Debs[name]
		fmt.Fprintf(
			&b, "deb %s %s %s %s %d %s %s %s\n", d.Name, d.Version, d.Arch, d.Section, d.Size, d.SHA256, d.Path,
			strings.Join(d.Roots, ","),
		)
	}

	for _, m := range l.Modules {
		sum := m.Sum
		if sum == "" {
			sum = "-"
		}
		fmt.Fprintf(&b, "module %s %s %s %s\n", m.Dir, m.Path, m.Version, sum)
	}

	return b.Bytes()
}

// ReadFile reads a lock.
func ReadFile(path string) (*Lock, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read lock: %w", err)
	}
	return Parse(path, text)
}

// WriteFile writes a lock, whole or not at all.
func (l *Lock) WriteFile(path string) error { return atomicfile.Write(path, l.Text(), 0o644) }

var digest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Parse reads the text form; name is used in errors, which say line and remedy.
func Parse(name string, text []byte) (*Lock, error) {
	l := &Lock{Requested: map[string]string{}, Debs: map[string]Deb{}, Images: map[string]string{}}
	scanner := bufio.NewScanner(bytes.NewReader(text))
	scanner.Buffer(nil, 1<<20)
	for n := 1; scanner.Scan(); n++ {
		line := scanner.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := l.parseLine(strings.Fields(line)); err != nil {
			return nil, fmt.Errorf("%s:%d: %w; restore the file from git or run `firstlight lock`", name, n, err)
		}
	}

	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if l.Epoch == 0 || l.Toolchain == "" {
		return nil, fmt.Errorf(
			"%s:1: epoch or toolchain is missing; restore the file from git or run `firstlight lock`", name,
		)
	}

	return l, nil
}

func (l *Lock) parseLine(words []string) error {
	want := map[string]int{"epoch": 2, "toolchain": 2, "root": 3, "image": 3, "deb": 9, "module": 5}
	if len(words) == 0 {
		return nil
	}
	if n, known := want[words[0]]; !known || len(words) != n {
		return fmt.Errorf("%q is not a line of a lock", strings.Join(words, " "))
	}

	switch words[0] {
	case "epoch":
		epoch, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil || epoch <= 0 {
			return fmt.Errorf("epoch %q is not a time", words[1])
		}
		l.Epoch = epoch
	case "toolchain":
		l.Toolchain = words[1]
	case "root":
		asked, ok := strings.CutPrefix(words[2], "asked=")
		if !ok {
			return fmt.Errorf("root %s does not say asked=", words[1])
		}
		l.Requested[words[1]] = asked
	case "image":
		l.Images[words[1]] = words[2]
	case "deb":
		size, err := strconv.ParseInt(words[5], 10, 64)
		if err != nil || size <= 0 {
			return fmt.Errorf("size %q of %s is not a number", words[5], words[1])
		}
		if !digest.MatchString(words[6]) {
			return fmt.Errorf("sha256 %q of %s is not a digest", words[6], words[1])
		}
		if _, twice := l.Debs[words[1]]; twice {
			return fmt.Errorf("deb %s is there twice", words[1])
		}

		l.Debs[words[1]] = Deb{
			Package: debian.Package{
				Name:    words[1],
				Version: words[2],
				Arch:    words[3],
				Section: words[4],
				Size:    size,
				SHA256:  words[6],
				Path:    words[7],
			},
			Roots: strings.Split(words[8], ","),
		}
	case "module":
		m := Module{Dir: words[1], Path: words[2], Version: words[3], Sum: words[4]}
		if m.Sum == "-" {
			m.Sum = ""
		}
		l.Modules = append(l.Modules, m)
	}

	return nil
}
