package recipe

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/module"

	"firstlight.dev/firstlight/assets/yamldoc"
)

var (
	nameForm    = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)
	imageForm   = regexp.MustCompile(`^[a-z0-9]+([._/-][a-z0-9]+)*$`)
	tagForm     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	packageForm = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)
	suiteForm   = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	sha256Form  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	digestForm  = regexp.MustCompile(`^[^@\s]+@sha256:[0-9a-f]{64}$`)
)

// checker holds what the types cannot say: names that exist, paths that stay inside.
type checker struct {
	*Recipe
	document *yamldoc.Document
	broken   yamldoc.Problems // what could not be read
}

// report adds a problem, unless what is there could not be read as a whole: then that is said already.
func (c *checker) report(at Pos, format string, args ...any) {
	for _, p := range c.broken {
		if at.Path == "" || p.Path == at.Path || strings.HasPrefix(p.Path, at.Path+".") {
			return
		}
	}
	c.document.Report(at.Path, format, args...)
}

func (c *checker) check() {
	if !suiteForm.MatchString(c.Debian.Suite) {
		c.report(c.Debian.Pos, "suite %q is not a release name; write one such as trixie", c.Debian.Suite)
	}

	for _, component := range c.Debian.Components {
		if !suiteForm.MatchString(component) {
			c.report(
				c.Debian.Pos, "component %q is not a component; write main, contrib or non-free-firmware", component,
			)
		}
	}

	c.checkNames()
	for i := range c.Programs {
		c.checkProgram(&c.Programs[i])
	}

	for _, o := range c.Omissions {
		for _, pattern := range o.Paths {
			if !strings.HasPrefix(pattern, "/") {
				c.report(o.Pos, "path %q must begin at the top of the tree, such as /usr/share/doc/*", pattern)
			}
		}
	}

	for i := range c.Roots {
		c.checkRoot(&c.Roots[i])
	}

	for i := range c.Images {
		c.checkImage(&c.Images[i], i)
	}

	for i := range c.Artifacts {
		c.checkArtifact(&c.Artifacts[i])
	}

	c.checkStick()
}

// checkNames holds names to their form, and to be there once.
func (c *checker) checkNames() {
	seen := map[string]Pos{}
	once := func(kind, name string, at Pos, form *regexp.Regexp) {
		if form != nil && !form.MatchString(name) {
			c.report(at, "name %q has other characters than a-z 0-9 . _ -", name)
		}
		if first, there := seen[kind+name]; there {
			c.report(at, "%s%s exists already at line %d; choose another name", kind, name, first.Line)
		}
		seen[kind+name] = at
	}
	for _, p := range c.Programs {
		once("program ", p.Name, p.Pos, nameForm)
	}

	for _, o := range c.Omissions {
		once("omission ", o.Name, o.Pos, nameForm)
	}

	for _, root := range c.Roots {
		once("root ", root.Name, root.Pos, nameForm)
	}

	for _, image := range c.Images {
		once("image ", image.Name, image.Pos, imageForm)
	}

	for _, a := range c.Artifacts {
		once("artifact ", a.Name, a.Pos, nameForm)
		once("artifact path ", strings.TrimPrefix(path.Clean(a.To), "/"), a.Pos, nil)
	}
}

func (c *checker) checkProgram(p *Program) {
	c.checkInside(p.Pos, "module", p.Module)
	if strings.HasPrefix(p.Package, "-") || p.Package == "" {
		c.report(p.Pos, "package %q is not a Go package; write ./cmd/name or an import path", p.Package)
	}
	for _, m := range p.Patches {
		if err := module.CheckPath(m.Module); err != nil {
			c.report(m.Pos, "module %q is not the path of a Go module; write one such as k8s.io/kubernetes", m.Module)
		}

		if m.File == "" || m.File == "." || !isInside(m.File) {
			c.report(m.Pos, "file %q must be a clean path from the top of the module, such as pkg/name.go", m.File)
		}

		if m.Old == "" || m.Old == m.New {
			c.report(m.Pos, "old must be text that new changes")
		}

		if m.Why == "" {
			c.report(m.Pos, "why is empty; say what the patch is for")
		}
	}
}

func (c *checker) checkRoot(root *Root) {
	for _, name := range root.Omit {
		if c.omission(name) == nil {
			c.report(root.Pos, "omit: there is no omission %s; write one under omissions", name)
		}
	}

	c.checkFirmware(root)
	if !slices.Contains([]string{"", VariantEssential, VariantUnpacked}, root.Variant) {
		c.report(root.Pos, "variant %q is unknown; write %s or %s", root.Variant, VariantEssential, VariantUnpacked)
	}

	for _, name := range slices.Concat(root.Packages, root.Unpack) {
		if !packageForm.MatchString(name) {
			c.report(
				root.Pos, "package %q is not a Debian package name; write it without version or architecture", name,
			)
		}
	}

	for _, hook := range root.Hooks {
		c.checkInside(root.Pos, "hooks", hook)
	}

	for _, replace := range root.Replace {
		c.checkAbsolute(replace.Pos, "path", replace.Path)
		if replace.Find == "" || replace.Find == replace.With {
			c.report(replace.Pos, "find must be text that with changes")
		}
	}

	c.checkTree(root.Pos, root.Overlays, root.Programs, root.Links, root.Dirs)
}

// checkFirmware holds where a root's firmware comes from to a root that is nothing but packages.
func (c *checker) checkFirmware(root *Root) {
	if root.Firmware == "" {
		return
	}

	from := c.Root(root.Firmware)
	switch {
	case from == nil:
		c.report(root.Pos, "firmware: root %q is not among roots; add it there", root.Firmware)
	case from.Variant != VariantUnpacked:
		c.report(root.Pos, "firmware: root %q must have variant %s", root.Firmware, VariantUnpacked)
	case root.Variant == VariantUnpacked:
		c.report(root.Pos, "firmware: a root of variant %s has no drivers that are installed", VariantUnpacked)
	}
}

// checkTree checks what roots and images have in common.
func (c *checker) checkTree(at Pos, overlays []Overlay, programs, links map[string]string, dirs []string) {
	for _, overlay := range overlays {
		c.checkInside(overlay.Pos, "dir", overlay.Dir)
		for _, p := range overlay.Replaces {
			c.checkAbsolute(overlay.Pos, "replaces", p)
		}
		if overlay.At != "" {
			c.checkAbsolute(overlay.Pos, "at", overlay.At)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		if c.Program(name) == nil {
			c.report(at, "program %q is not among programs; add it there", name)
		}
		c.checkAbsolute(at, "programs."+name, programs[name])
	}
	for _, p := range slices.Concat(slices.Sorted(maps.Keys(links)), dirs) {
		c.checkAbsolute(at, "links and dirs", p)
	}
}

func (c *checker) checkImage(image *Image, index int) {
	if len(image.Tags) == 0 {
		c.report(image.Pos, "tags is empty; give at least one")
	}

	for _, tag := range image.Tags {
		if !tagForm.MatchString(tag) {
			c.report(image.Pos, "tag %q is not a tag; use letters, digits, . _ -", tag)
		}
	}

	kinds := 0
	for _, given := range []bool{len(image.Programs) > 0, image.Root != "", image.Layer != "", image.Reference != ""} {
		if given {
			kinds++
		}
	}

	if kinds != 1 {
		c.report(image.Pos, "give exactly one of programs, root, layer and reference")
	}

	if image.Root != "" {
		c.checkRootOf(image.Pos, image.Root)
	}

	if image.Layer != "" {
		c.checkLayer(image, c.Images[:index])
	}

	if image.Reference != "" && !digestForm.MatchString(image.Reference) {
		c.report(image.Pos, "reference %q has no digest; write registry/name@sha256:...", image.Reference)
	}

	c.checkTree(image.Pos, image.Overlays, image.Programs, image.Links, image.Dirs)
}

// checkLayer holds an image that shares the layer of another to one before it.
func (c *checker) checkLayer(image *Image, before []Image) {
	i := slices.IndexFunc(before, func(i Image) bool { return i.Name == image.Layer })
	switch {
	case i < 0:
		c.report(image.Pos, "layer %q is not an image before this one; move or add it", image.Layer)
	case before[i].Layer != "" || before[i].Reference != "":
		c.report(image.Pos, "layer %q has no layer; name the image that has one", image.Layer)
	case len(image.Links)+len(image.Dirs)+len(image.Overlays) > 0:
		c.report(image.Pos, "links, dirs and overlays belong to image %q, whose layer this one shares", image.Layer)
	}
}

func (c *checker) checkStick() {
	s := &c.Stick
	if !nameForm.MatchString(s.Name) {
		c.report(s.Pos, "name %q has other characters than a-z 0-9 . _ -", s.Name)
	}

	for _, name := range []string{s.Root, s.Boot, s.Tools} {
		c.checkRootOf(s.Pos, name)
	}

	for _, name := range []string{s.Boot, s.Tools} {
		if root := c.Root(name); root != nil && root.Variant != VariantUnpacked {
			c.report(s.Pos, "root %q must have variant %s", name, VariantUnpacked)
		}
	}

	if root := c.Root(s.Root); root != nil {
		if root.Variant == VariantUnpacked {
			c.report(s.Pos, "root %q must not have variant %s", s.Root, VariantUnpacked)
		}
		c.checkAppended(root)
	}

	const ofBuilder = "root %q is unpacked for the builder; make another root of these packages"
	isOfBuilder := func(root string) bool { return root != "" && (root == s.Boot || root == s.Tools) }
	for _, image := range c.Images {
		if isOfBuilder(image.Root) {
			c.report(image.Pos, ofBuilder, image.Root)
		}
	}

	for _, a := range c.Artifacts {
		if isOfBuilder(a.Root) {
			c.report(a.Pos, ofBuilder, a.Root)
		}
	}

	if c.Program(s.Init) == nil {
		c.report(s.Pos, "init %q is not among programs; add it there", s.Init)
	}

	for _, name := range slices.Sorted(maps.Keys(s.Sizes)) {
		if _, err := ParseBytes(s.Sizes[name]); err != nil {
			c.report(s.Pos, "sizes.%s: %v", name, err)
		}
	}

	c.checkInside(s.Pos, "esp", s.ESP)
	c.checkInside(s.Pos, "site", s.Site)
}

// checkAppended: a directory can only be appended at the top of root, and only as a whole.
func (c *checker) checkAppended(root *Root) {
	s := &c.Stick
	if s.Appended == "" {
		return
	}

	if path.Dir(s.Appended) != "/" || s.Appended != path.Clean(s.Appended) || s.Appended == "/" {
		c.report(s.Pos, "appended %q is not a directory at the top, such as /firstlight", s.Appended)
	}

	for _, p := range slices.Concat(root.Dirs, slices.Sorted(maps.Keys(root.Links))) {
		if p == s.Appended || strings.HasPrefix(p, s.Appended+"/") {
			c.report(root.Pos, "%s is in stick.appended, which only programs can be", p)
		}
	}
}

// checkInside holds that a path of the repository does not leave it.
func (c *checker) checkInside(at Pos, field, p string) {
	if p != "" && !isInside(p) {
		c.report(at, "%s %q must be a clean path from the top of the repository, such as overlays/site", field, p)
	}
}

func isInside(p string) bool {
	return !path.IsAbs(p) && p == path.Clean(p) && p != ".." && !strings.HasPrefix(p, "../")
}

// checkAbsolute holds that a path in a tree is absolute and clean.
func (c *checker) checkAbsolute(at Pos, field, p string) {
	if !path.IsAbs(p) || p != path.Clean(p) {
		c.report(at, "%s %q must be a clean absolute path in the tree, such as /usr/bin/name", field, p)
	}
}

// ParseBytes reads a size such as 64MiB or 2GiB.
func ParseBytes(size string) (int64, error) {
	for unit, shift := range map[string]uint{"KiB": 10, "MiB": 20, "GiB": 30} {
		number, found := strings.CutSuffix(size, unit)
		if !found {
			continue
		}

		n, err := strconv.ParseInt(number, 10, 32)
		if err != nil || n <= 0 {
			break
		}

		return n << shift, nil
	}
	return 0, fmt.Errorf("size %q is not a size; write a whole number and KiB, MiB or GiB, such as 64MiB", size)
}
