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

// check holds what the types cannot say: names that exist, paths that stay inside.
func (r *Recipe) check() error {
	if !suiteForm.MatchString(r.Debian.Suite) {
		return r.Debian.Errorf("suite %q is not a release name; write one such as trixie", r.Debian.Suite)
	}
	for _, component := range r.Debian.Components {
		if !suiteForm.MatchString(component) {
			return r.Debian.Errorf("component %q is not a component; write main, contrib or non-free-firmware", component)
		}
	}
	seen := map[string]Pos{}
	once := func(kind, name string, at Pos, form *regexp.Regexp) error {
		if !form.MatchString(name) {
			return at.Errorf("name %q has other characters than a-z 0-9 . _ -", name)
		}
		if first, there := seen[kind+name]; there {
			return at.Errorf("%s%s exists already at line %d; choose another name", kind, name, first.Line)
		}
		seen[kind+name] = at
		return nil
	}
	for _, p := range r.Programs {
		if err := once("program ", p.Name, p.Pos, nameForm); err != nil {
			return err
		}
		if err := checkInside(p.Pos, "module", p.Module); err != nil {
			return err
		}
		if strings.HasPrefix(p.Package, "-") || p.Package == "" {
			return p.Errorf("package %q is not a Go package; write ./cmd/name or an import path", p.Package)
		}
		for _, m := range p.Patches {
			if err := checkPatch(m); err != nil {
				return err
			}
		}
	}
	for _, o := range r.Omissions {
		if err := once("omission ", o.Name, o.Pos, nameForm); err != nil {
			return err
		}
		for _, pattern := range o.Paths {
			if !strings.HasPrefix(pattern, "/") {
				return o.Errorf("path %q must begin at the top of the tree, such as /usr/share/doc/*", pattern)
			}
		}
	}
	for i := range r.Roots {
		if err := once("root ", r.Roots[i].Name, r.Roots[i].Pos, nameForm); err != nil {
			return err
		}
		if err := r.checkRoot(&r.Roots[i]); err != nil {
			return err
		}
	}
	for i := range r.Images {
		if err := once("image ", r.Images[i].Name, r.Images[i].Pos, imageForm); err != nil {
			return err
		}
		if err := r.checkImage(&r.Images[i], i); err != nil {
			return err
		}
	}
	for i := range r.Artifacts {
		a := &r.Artifacts[i]
		if err := once("artifact ", a.Name, a.Pos, nameForm); err != nil {
			return err
		}
		if err := once("artifact path ", strings.TrimPrefix(path.Clean(a.To), "/"), a.Pos, regexp.MustCompile(`.`)); err != nil {
			return err
		}
		if err := r.checkArtifact(a); err != nil {
			return err
		}
	}
	return r.checkStick()
}

func checkPatch(m Patch) error {
	if err := module.CheckPath(m.Module); err != nil {
		return m.Errorf("module %q is not the path of a Go module; write one such as k8s.io/kubernetes", m.Module)
	}
	if m.File == "" || m.File == "." || checkInside(m.Pos, "file", m.File) != nil {
		return m.Errorf("file %q must be a clean path from the top of the module, such as pkg/name.go", m.File)
	}
	if m.Old == "" || m.Old == m.New {
		return m.Errorf("old must be text that new changes")
	}
	if m.Why == "" {
		return m.Errorf("why is empty; say what the mend is for")
	}
	return nil
}

func (r *Recipe) checkRoot(root *Root) error {
	for _, name := range root.Omit {
		at := slices.IndexFunc(r.Omissions, func(o Omission) bool { return o.Name == name })
		if at < 0 {
			return root.Errorf("omit: there is no omission %s; write one under omissions", name)
		}
		root.Exclude = append(root.Exclude, r.Omissions[at].Paths...)
	}
	if root.Variant == "" {
		root.Variant = VariantEssential
	}
	if root.Variant != VariantEssential && root.Variant != VariantUnpacked {
		return root.Errorf("variant %q is unknown; write %s or %s", root.Variant, VariantEssential, VariantUnpacked)
	}
	for _, name := range slices.Concat(root.Packages, root.Unpack) {
		if !packageForm.MatchString(name) {
			return root.Errorf("package %q is not a Debian package name; write it without version or architecture", name)
		}
	}
	for _, hook := range root.Hooks {
		if err := checkInside(root.Pos, "hooks", hook); err != nil {
			return err
		}
	}
	for _, replace := range root.Replace {
		if err := checkAbsolute(replace.Pos, "path", replace.Path); err != nil {
			return err
		}
		if replace.Find == "" || replace.Find == replace.With {
			return replace.Errorf("find must be text that with changes")
		}
	}
	return r.checkTree(root.Pos, root.Overlays, root.Programs, root.Links, root.Dirs)
}

// checkTree checks what roots and images have in common.
func (r *Recipe) checkTree(at Pos, overlays []Overlay, programs, links map[string]string, dirs []string) error {
	for _, overlay := range overlays {
		if err := checkInside(overlay.Pos, "dir", overlay.Dir); err != nil {
			return err
		}
		for _, p := range overlay.Replaces {
			if err := checkAbsolute(overlay.Pos, "replaces", p); err != nil {
				return err
			}
		}
		if overlay.At != "" {
			if err := checkAbsolute(overlay.Pos, "at", overlay.At); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		if r.Program(name) == nil {
			return at.Errorf("program %q is not among programs; add it there", name)
		}
		if err := checkAbsolute(at, "programs."+name, programs[name]); err != nil {
			return err
		}
	}
	for _, p := range slices.Concat(slices.Sorted(maps.Keys(links)), dirs) {
		if err := checkAbsolute(at, "links and dirs", p); err != nil {
			return err
		}
	}
	return nil
}

func (r *Recipe) checkImage(image *Image, index int) error {
	if len(image.Tags) == 0 {
		return image.Errorf("tags is empty; give at least one")
	}
	for _, tag := range image.Tags {
		if !tagForm.MatchString(tag) {
			return image.Errorf("tag %q is not a tag; use letters, digits, . _ -", tag)
		}
	}
	kinds := 0
	for _, given := range []bool{len(image.Programs) > 0, image.Root != "", image.Layer != "", image.Reference != ""} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		return image.Errorf("give exactly one of programs, root, layer and reference")
	}
	if image.Root != "" && r.Root(image.Root) == nil {
		return image.Errorf("root %q is not among roots; add it there", image.Root)
	}
	if image.Layer != "" {
		earlier := slices.IndexFunc(r.Images[:index], func(i Image) bool { return i.Name == image.Layer })
		if earlier < 0 {
			return image.Errorf("layer %q is not an image before this one; move or add it", image.Layer)
		}
		if r.Images[earlier].Layer != "" || r.Images[earlier].Reference != "" {
			return image.Errorf("layer %q has no layer of its own; name the image that has", image.Layer)
		}
		if len(image.Links)+len(image.Dirs)+len(image.Overlays) > 0 {
			return image.Errorf("links, dirs and overlays belong to image %q, whose layer this one shares", image.Layer)
		}
	}
	if image.Reference != "" && !digestForm.MatchString(image.Reference) {
		return image.Errorf("reference %q has no digest; write registry/name@sha256:...", image.Reference)
	}
	return r.checkTree(image.Pos, image.Overlays, image.Programs, image.Links, image.Dirs)
}

func (r *Recipe) checkArtifact(a *Artifact) error {
	if !strings.HasPrefix(path.Clean(a.To), "/usr/share/firstlight/") {
		return a.Errorf("to %q is not below /usr/share/firstlight/", a.To)
	}
	needRoot := func() error {
		if a.File != "" || a.URL != "" || a.SHA256 != "" {
			return a.Errorf("file, url and sha256 belong to kind file")
		}
		if r.Root(a.Root) == nil {
			return a.Errorf("root %q is not among roots; add it there", a.Root)
		}
		return nil
	}
	switch a.Kind {
	case KindFile:
		if (a.File == "") == (a.URL == "") {
			return a.Errorf("give either file or url")
		}
		if a.URL != "" && !sha256Form.MatchString(a.SHA256) {
			return a.Errorf("sha256 %q is not 64 hexadecimal digits; a url needs it", a.SHA256)
		}
		if a.Root != "" || a.Path != "" {
			return a.Errorf("root and path do not belong to kind file")
		}
		return checkInside(a.Pos, "file", a.File)
	case KindExtract:
		if a.Path == "" {
			return a.Errorf("path is missing; give the file in the root")
		}
		return needRoot()
	case KindModule:
		if a.Module == "" || a.From == "" || a.Path == "" || path.IsAbs(a.Path) {
			return a.Errorf("kind module needs module (the directory of a go.mod), from (a module's path) and path (a file in it)")
		}
		return checkInside(a.Pos, "path", a.Path)
	case KindInitramfs:
		return needRoot()
	case KindPackages:
		if err := needRoot(); err != nil {
			return err
		}
		return r.checkPool(a)
	case KindDisk:
		if _, err := ParseBytes(a.Size); err != nil {
			return a.Errorf("%v", err)
		}
		return needRoot()
	}
	return a.Errorf("kind %q is unknown; write file, extract, initramfs, disk, module or packages", a.Kind)
}

// checkPool holds that a root whose packages are kept as they are is nothing else: what else were said of
// it would not be done. (It is unpacked all the same, for the licences in it.)
func (r *Recipe) checkPool(a *Artifact) error {
	root := r.Root(a.Root)
	if root.Variant != VariantUnpacked {
		return a.Errorf("root %q must have variant %s", a.Root, VariantUnpacked)
	}
	if len(root.Unpack)+len(root.Exclude)+len(root.Include)+len(root.Hooks)+len(root.Remove)+len(root.Replace)+len(root.Overlays)+
		len(root.Programs)+len(root.Links)+len(root.Dirs) > 0 {
		return a.Errorf("root %q may have packages only; they are kept as they are", a.Root)
	}
	for _, image := range r.Images {
		if image.Root == a.Root {
			return image.Errorf("root %q is kept as packages; make another root of them", a.Root)
		}
	}
	for _, other := range r.Artifacts {
		if other.Root == a.Root && other.Name != a.Name {
			return other.Errorf("root %q is kept as packages; make another root of them", a.Root)
		}
	}
	return nil
}

func (r *Recipe) checkStick() error {
	s := &r.Stick
	if !nameForm.MatchString(s.Name) {
		return s.Errorf("name %q has other characters than a-z 0-9 . _ -", s.Name)
	}
	for _, root := range []string{s.Root, s.Boot, s.Tools} {
		if r.Root(root) == nil {
			return s.Errorf("root %q is not among roots; add it there", root)
		}
	}
	for _, root := range []string{s.Boot, s.Tools} {
		if r.Root(root).Variant != VariantUnpacked {
			return s.Errorf("root %q must have variant %s", root, VariantUnpacked)
		}
	}
	if r.Root(s.Root).Variant == VariantUnpacked {
		return s.Errorf("root %q must not have variant %s", s.Root, VariantUnpacked)
	}
	for _, image := range r.Images {
		if image.Root == s.Boot || image.Root == s.Tools {
			return image.Errorf("root %q is unpacked for the builder; make another root of these packages", image.Root)
		}
	}
	for _, a := range r.Artifacts {
		if a.Root != "" && (a.Root == s.Boot || a.Root == s.Tools) {
			return a.Errorf("root %q is unpacked for the builder; make another root of these packages", a.Root)
		}
	}
	if r.Program(s.Init) == nil {
		return s.Errorf("init %q is not among programs; add it there", s.Init)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Sizes)) {
		if _, err := ParseBytes(s.Sizes[name]); err != nil {
			return s.Errorf("sizes.%s: %v", name, err)
		}
	}
	if err := checkInside(s.Pos, "esp", s.ESP); err != nil {
		return err
	}
	if err := r.checkAppended(); err != nil {
		return err
	}
	return checkInside(s.Pos, "site", s.Site)
}

// checkAppended: a directory can only be appended at the top, and only as a whole.
func (r *Recipe) checkAppended() error {
	s := &r.Stick
	if s.Appended == "" {
		return nil
	}
	if path.Dir(s.Appended) != "/" || s.Appended != path.Clean(s.Appended) || s.Appended == "/" {
		return s.Errorf("appended %q is not a directory at the top, such as /firstlight", s.Appended)
	}
	root := r.Root(s.Root)
	for _, p := range slices.Concat(root.Dirs, slices.Collect(maps.Keys(root.Links))) {
		if p == s.Appended || strings.HasPrefix(p, s.Appended+"/") {
			return root.Errorf("%s is in stick.appended, which only programs can be", p)
		}
	}
	return nil
}

// checkInside holds that a path of the repository does not leave it.
func checkInside(at Pos, field, p string) error {
	if p == "" {
		return nil
	}
	if path.IsAbs(p) || p != path.Clean(p) || p == ".." || strings.HasPrefix(p, "../") {
		return at.Errorf("%s %q must be a clean path from the top of the repository, such as overlays/site", field, p)
	}
	return nil
}

// checkAbsolute holds that a path in a tree is absolute and clean.
func checkAbsolute(at Pos, field, p string) error {
	if !path.IsAbs(p) || p != path.Clean(p) {
		return at.Errorf("%s %q must be a clean absolute path in the tree, such as /usr/bin/name", field, p)
	}
	return nil
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
