// Package closure checks that a root file system is complete: whatever a manifest, unit or
// script in it names must be in it too, because a machine without internet cannot fetch
// what was forgotten. The rules are a list of finders; a new kind of name is one more line.
package closure

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/layer"
)

// Miss is one name that leads nowhere.
type Miss struct {
	By      string `json:"by"`      // the file that names it, with :line where it has lines
	Missing string `json:"missing"` // what is not there
}

func (m Miss) String() string { return m.By + ": " + m.Missing }

// Finder looks for one kind of name.
type Finder struct {
	Name string
	Find func(*Tree) ([]Miss, error)
}

// Finders are the rules, cheap ones first.
func Finders() []Finder {
	return []Finder{
		{"links", findLinks},       // symbolic links of ours
		{"units", findUnits},       // programs and units that systemd will look for
		{"paths", findPaths},       // absolute paths in units, scripts and settings
		{"urls", findURLs},         // addresses outside the rack
		{"kubeadm", findKubeadm},   // images that kubeadm starts by itself
		{"images", findImages},     // images that manifests name
		{"layout", findLayout},     // blobs of the OCI layout
		{"extents", findExtents},   // what disk images and ramdisks share with the root
		{"firmware", findFirmware}, // files that drivers load into devices
		{"packages", findPackages}, // Debian packages that nodes are given, and what those need
	}
}

// Check runs every finder over the tree and returns the misses by file, without
// repetitions.
func Check(t *Tree, finders []Finder) ([]Miss, error) {
	var all []Miss
	for _, f := range finders {
		misses, err := f.Find(t)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", f.Name, err)
		}
		all = append(all, misses...)
	}

	slices.SortStableFunc(all, func(a, b Miss) int { return strings.Compare(a.String(), b.String()) })
	var out []Miss
	for i, m := range all {
		if i == 0 || m != all[i-1] {
			out = append(out, m)
		}
	}

	return out, nil
}

// Tree is a root file system. Links are resolved within it, never on the machine that
// looks.
type Tree struct {
	fsys  fs.FS
	nodes map[string]node // by absolute path, "/" for the top
	names []string        // sorted
}

type node struct {
	mode fs.FileMode
	size int64
	link string // what a symbolic link says
}

// Load reads the names of a file system, but for those in unpacked layers of container images, which are
// other roots. fsys must implement fs.ReadLinkFS if it has symbolic links.
func Load(fsys fs.FS) (*Tree, error) {
	t := &Tree{fsys: fsys, nodes: map[string]node{}}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		info, err := d.Info()
		if err != nil {
			return err
		}

		n := node{mode: info.Mode(), size: info.Size()}
		if n.mode&fs.ModeSymlink != 0 {
			if n.link, err = fs.ReadLink(fsys, name); err != nil {
				return err
			}
		}

		full := path.Join("/", name)
		if ok, _ := path.Match(imagesDir+"/"+layer.Dir+"/*/"+layer.Files, full); ok {
			return fs.SkipDir
		}

		t.nodes[full] = n
		t.names = append(t.names, full)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list root: %w", err)
	}

	slices.Sort(t.names)
	return t, nil
}

// Len is how many names the tree has.
func (t *Tree) Len() int { return len(t.names) }

// maxLinks is where Linux gives up too.
const maxLinks = 40

// Resolve follows links and returns the path of what name leads to.
func (t *Tree) Resolve(name string) (string, bool) {
	rest := strings.Split(strings.Trim(path.Clean("/"+name), "/"), "/")
	at, links := "/", 0
	for len(rest) > 0 {
		step := rest[0]
		rest = rest[1:]
		switch step {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}

		next := path.Join(at, step)
		n, ok := t.nodes[next]
		if !ok {
			return next, false
		}
		if n.mode&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return next, false
		}

		if path.IsAbs(n.link) {
			at = "/"
		}

		rest = append(strings.Split(n.link, "/"), rest...)
	}

	return at, true
}

// Has says whether name leads to something.
func (t *Tree) Has(name string) bool {
	_, ok := t.Resolve(name)
	return ok
}

// Read returns the content of a file, through links.
func (t *Tree) Read(name string) ([]byte, error) {
	real, ok := t.Resolve(name)
	if !ok {
		return nil, fmt.Errorf("read %s: %w", name, fs.ErrNotExist)
	}
	return fs.ReadFile(t.fsys, strings.TrimPrefix(real, "/"))
}

// Open opens a file, through links.
func (t *Tree) Open(name string) (fs.File, error) {
	real, ok := t.Resolve(name)
	if !ok {
		return nil, fmt.Errorf("open %s: %w", name, fs.ErrNotExist)
	}
	return t.fsys.Open(strings.TrimPrefix(real, "/"))
}

// FilesUnder lists the regular files below a directory, at any depth, sorted.
func (t *Tree) FilesUnder(dir string) []string {
	var out []string
	for _, name := range t.names {
		if strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/") && t.nodes[name].mode.IsRegular() {
			out = append(out, name)
		}
	}
	return out
}

// maxText is the largest file that is read as text.
const maxText = 4 << 20

// ownFiles are the text files that this product puts into the root: what Debian's packages
// name is Debian's business, and resolved by their dependencies.
func (t *Tree) ownFiles() []string {
	var out []string
	for _, name := range t.names {
		n := t.nodes[name]
		if !n.mode.IsRegular() || n.size > maxText || strings.HasPrefix(
			name, imagesDir+"/",
		) || strings.HasPrefix(name, packagesDir+"/") {
			continue
		}
		if isOurs(name) {
			out = append(out, name)
		}
	}
	return out
}

// isOurs says whether this product puts the file into the root.
func isOurs(name string) bool {
	return strings.Contains(name, "firstlight") || strings.HasPrefix(name, "/etc/kubernetes/") ||
		strings.Contains(name, "/kubelet.service")
}

// line is one line of a text file, for people to find.
type line struct {
	by   string // file:number
	text string
}

// readLines reads the text files of ours; binary files have none.
func (t *Tree) readLines(names []string) ([]line, error) {
	var out []line
	for _, name := range names {
		b, err := t.Read(name)
		if err != nil {
			return nil, err
		}
		if strings.IndexByte(string(b[:min(len(b), 8000)]), 0) >= 0 {
			continue
		}

		for i, text := range strings.Split(string(b), "\n") {
			out = append(out, line{fmt.Sprintf("%s:%d", name, i+1), text})
		}
	}
	return out, nil
}

// isComment says whether a line is one, in units, shell, YAML and sysctl files.
func (l line) isComment() bool {
	s := strings.TrimSpace(l.text)
	return s == "" || s[0] == '#' && !strings.HasPrefix(s, "#!") || s[0] == ';'
}
