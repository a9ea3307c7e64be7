package firmware

import (
	"bytes"
	"fmt"
	"path"
	"strings"

	"github.com/ulikunitz/xz"

	"firstlight.dev/firstlight/image/tree"
)

// docs is where packages have their licences, which must be where the files are.
const docs = "/usr/share/doc"

// Choose returns a tree with what a system needs of packages, an unpacked tree of Debian's packages of firmware: the
// files that drivers name, compressed, the archive of microcode, and the packages' licences. It is an error if a
// driver names a file that packages does not have, unless that is known, with a reason (lacking).
func Choose(all []Driver, packages *tree.Tree, epoch int64) (*tree.Tree, error) {
	c := chooser{packages: packages, chosen: tree.New(epoch)}
	for _, d := range all {
		for _, name := range d.Names {
			if err := c.take(name); err != nil {
				return nil, fmt.Errorf("choose firmware of %s: %w", d.Module(), err)
			}
		}
	}

	if misses := WithoutReason(FindMisses(all, c.has)); len(misses) > 0 {
		var lines []string
		for _, m := range misses {
			lines = append(lines, m.String())
		}
		return nil, fmt.Errorf("choose firmware: add the package that has it to the recipe's root of firmware, or the "+
			"reason why not to image/firmware/lacking.go: %s", strings.Join(lines, "; "))
	}

	if err := c.addMicrocode(); err != nil {
		return nil, err
	}

	return c.chosen, c.addLicences()
}

type chooser struct {
	packages *tree.Tree
	chosen   *tree.Tree
}

func (c chooser) has(glob string) bool { return len(c.chosen.Paths(Dir+"/"+glob)) > 0 }

// take adds what a name, which may be a glob, stands for: files, and the links that lead to them.
func (c chooser) take(name string) error {
	if target, ok := links[name]; ok && c.packages.Get(Dir+"/"+name) == nil {
		if err := c.link(Dir+"/"+name, Dir+"/"+target); err != nil {
			return err
		}
		name = target
	}

	for _, p := range c.packages.Paths(Dir + "/" + name) {
		if err := c.takePath("/" + p); err != nil {
			return err
		}
	}

	return nil
}

// takePath adds a file; of links, each on the way to it.
func (c chooser) takePath(p string) error {
	file, err := follow(c.packages, p)
	if err != nil {
		return err
	}

	for ; p != file; p = path.Join(path.Dir(p), c.packages.Get(p).Target) {
		if err := c.link(p, path.Join(path.Dir(p), c.packages.Get(p).Target)); err != nil {
			return err
		}
	}

	if c.packages.Get(file).Type != tree.File { // a directory that a glob matches
		return nil
	}

	return c.compress(file)
}

func (c chooser) link(p, target string) error {
	up := strings.Count(path.Dir(p), "/")
	relative := strings.Repeat("../", up) + strings.TrimPrefix(target, "/")
	if path.Dir(p) == path.Dir(target) {
		relative = path.Base(target)
	}
	if c.chosen.Get(p+".xz") != nil {
		return nil
	}
	return c.chosen.Link(p+".xz", relative+".xz", "firmware")
}

// compress adds a file as the kernel reads it: with a checksum of 32 bits (lib/xz; xz --check=crc32).
func (c chooser) compress(p string) error {
	if c.chosen.Get(p+".xz") != nil {
		return nil
	}

	content, err := c.packages.ReadFile(p)
	if err != nil {
		return err
	}

	var b bytes.Buffer
	w, err := xz.WriterConfig{CheckSum: xz.CRC32, DictCap: 1 << 23}.NewWriter(&b)
	if err != nil {
		return fmt.Errorf("compress %s: %w", p, err)
	}
	if _, err := w.Write(content); err != nil {
		return fmt.Errorf("compress %s: %w", p, err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("compress %s: %w", p, err)
	}

	return c.chosen.File(p+".xz", 0o644, tree.Bytes(b.Bytes()), "firmware")
}

// addLicences adds each package's copyright file, equal ones once: the others are links to it.
func (c chooser) addLicences() error {
	first := map[string]string{}
	for _, p := range c.packages.Paths(docs + "/*/copyright") {
		text, err := c.packages.ReadFile(p)
		if err != nil {
			return err
		}

		if other, ok := first[string(text)]; ok {
			if err := c.chosen.Link(p, "../"+path.Base(path.Dir(other))+"/copyright", "firmware"); err != nil {
				return err
			}
			continue
		}

		first[string(text)] = p
		if err := c.chosen.File(p, 0o644, tree.Bytes(text), "firmware"); err != nil {
			return err
		}
	}
	return nil
}

// addMicrocode adds the archive of all microcode that packages has; none if it has none.
func (c chooser) addMicrocode() error {
	archive, err := microcode(c.packages)
	if err != nil || archive == nil {
		return err
	}
	return c.chosen.File(MicrocodePath, 0o644, tree.Bytes(archive), "microcode")
}
