package image

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/debian"
	"firstlight.dev/firstlight/image/drivers"
	"firstlight.dev/firstlight/image/lock"
	"firstlight.dev/firstlight/image/recipe"
	"firstlight.dev/firstlight/image/tree"
)

// build is one run over the recipe.
type build struct {
	*Builder
	*session
	r *recipe.Recipe
	l *lock.Lock

	programs map[string]cache.Item   // by name
	packages map[string]cache.Item   // installed roots as tar, unpacked ones as directories
	alone    map[string][]cache.Item // packages unpacked over a root, as tar
	layers   map[string]cache.Item   // of images
	files    map[string]cache.Item   // of artifacts

	document   []byte // the site document, checked; nil without
	version    string // of the image, see ReadRevision
	basePlaced bool   // the base of the root lies in disk.PartPath(Out) already
}

// alwaysRemoved is what mmdebstrap, dpkg and maintainer scripts leave of this machine
// and this hour: no secret and no trace of the build gets onto the stick.
var alwaysRemoved = []string{
	"/etc/hostname", "/etc/resolv.conf", "/etc/apt/sources.list", "/etc/ssh/ssh_host_*", "/etc/machine-id",
	"/var/lib/dbus/machine-id", "/etc/nvme/hostid", "/etc/nvme/hostnqn", "/var/lib/systemd/random-seed", "/var/cache/ldconfig/aux-cache", "/var/lib/apt/lists/**",
	"/var/cache/apt/**", "/var/cache/debconf/*-old", "/var/lib/dpkg/*-old", "/var/log/*.log", "/var/log/apt/**", "/run/**", "/tmp/**",
}

// fetch brings a root's packages into the cache.
func (b *build) fetch(ctx context.Context, part string, packages []debian.Package) (map[string]string, error) {
	mirror := func() (debian.Mirror, error) { return debian.FindMirror(ctx, b.Mirror) }
	return debian.Fetch(ctx, b.store, mirror, packages, func(done, all int) {
		b.progress.Advance(part, Position{Doing: "fetching", Done: done, All: all})
	})
}

func (b *build) installPackages(ctx context.Context, root *recipe.Root) error {
	packages := b.l.Root(root.Name)
	alone := slices.DeleteFunc(slices.Clone(packages), func(p debian.Package) bool { return !slices.Contains(root.Unpack, p.Name) })
	code, err := b.codeDigest(codeOfPackages)
	if err != nil {
		return err
	}
	in := Inputs{"the builder's code": code, "the lock's epoch": fmt.Sprint(b.l.Epoch)}
	for _, p := range packages {
		in["package "+p.Name] = p.SHA256
	}
	if root.Name == b.r.Stick.Tools || root.Name == b.r.Stick.Boot {
		item, err := b.makePart(ctx, "unpacked", root.Name, in, func(out string) error {
			files, err := b.fetch(ctx, "unpacked "+root.Name, packages)
			if err != nil {
				return err
			}
			return debian.Unpack(ctx, packages, files, out)
		})
		b.packages[root.Name] = item
		return err
	}
	if root.Variant == recipe.VariantUnpacked {
		in["path patterns"] = patternsKey(root)
		item, err := b.makePart(ctx, "packages", root.Name, in, func(out string) error { return b.unpackTar(ctx, root, packages, out) })
		b.packages[root.Name] = item
		return err
	}
	for _, p := range alone {
		delete(in, "package "+p.Name)
		item, err := b.makePart(ctx, "package files", p.Name, Inputs{"package " + p.Name: p.SHA256}, func(out string) error {
			files, err := b.fetch(ctx, "package files "+p.Name, []debian.Package{p})
			if err != nil {
				return err
			}
			return debian.DataTar(ctx, files[p.SHA256], out)
		})
		if err != nil {
			return err
		}
		b.alone[root.Name] = append(b.alone[root.Name], item)
	}
	var hooks []string
	for _, hook := range root.Hooks {
		digest, err := cache.FileDigest(b.path(hook))
		if err != nil {
			return err
		}
		in["hook "+hook] = digest
		hooks = append(hooks, b.path(hook))
	}
	in["path patterns"] = patternsKey(root)
	item, err := b.makePart(ctx, "packages", root.Name, in, func(out string) error {
		installed := slices.DeleteFunc(slices.Clone(packages), func(p debian.Package) bool { return slices.Contains(root.Unpack, p.Name) })
		files, err := b.fetch(ctx, "packages "+root.Name, installed)
		if err != nil {
			return err
		}
		err = debian.Bootstrap{
			Suite: b.r.Debian.Suite, Packages: installed, Files: files, Exclude: root.Exclude, Include: root.Include,
			Hooks: hooks, Epoch: b.l.Epoch, Log: b.Log,
		}.Run(ctx, out+".raw")
		if err != nil {
			return err
		}
		t := tree.New(b.l.Epoch)
		if err := t.AddTar(out+".raw", "packages"); err != nil {
			return err
		}
		if err := checkInstalled(t, root, installed); err != nil {
			return err
		}
		if err := checkDrivers(t); err != nil {
			return fmt.Errorf("install root %s: %w", root.Name, err)
		}
		// Keys that scripts minted here must not even be in the cache.
		for _, glob := range alwaysRemoved {
			t.Remove(glob)
		}
		return writeTar(t, out)
	})
	b.packages[root.Name] = item
	return err
}

func patternsKey(root *recipe.Root) string {
	return cache.Key(slices.Concat(root.Exclude, []string{"but"}, root.Include)...)
}

// unpackTar unpacks packages over each other into one tar archive.
func (b *build) unpackTar(ctx context.Context, root *recipe.Root, packages []debian.Package, out string) error {
	files, err := b.fetch(ctx, "packages "+root.Name, packages)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "firstlight-unpack-")
	if err != nil {
		return fmt.Errorf("unpack root %s: %w", root.Name, err)
	}
	defer os.RemoveAll(dir)
	t := tree.New(b.l.Epoch)
	for _, p := range debian.SortBaseFirst(packages) {
		tar := filepath.Join(dir, p.SHA256)
		if err := debian.DataTar(ctx, files[p.SHA256], tar); err != nil {
			return err
		}
		if err := t.UnpackTar(tar, "package "+p.Name); err != nil {
			return err
		}
	}
	t.Filter(func(p string) bool { return !debian.IsExcluded("/"+p, root.Exclude, root.Include) })
	return writeTar(t, out)
}

// checkInstalled holds the installed tree to the lock.
func checkInstalled(t *tree.Tree, root *recipe.Root, want []debian.Package) error {
	status, err := t.ReadFile("/var/lib/dpkg/status")
	if err != nil {
		return err
	}
	installed := debian.ParseInstalled(status)
	for _, p := range want {
		if installed[p.Name] != p.Version {
			return fmt.Errorf("install root %s: %s is %q and locked is %s", root.Name, p.Name, installed[p.Name], p.Version)
		}
		delete(installed, p.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(installed)) {
		return fmt.Errorf("install root %s: %s %s got in and is not locked", root.Name, name, installed[name])
	}
	return nil
}

// checkDrivers holds what a root leaves out of its kernel's modules to what the others need.
func checkDrivers(t *tree.Tree) error {
	for _, dir := range t.Paths("/usr/lib/modules/*") {
		if err := drivers.Check(t.FS(dir)); err != nil {
			return err
		}
	}
	return nil
}

// rootInputs are what a root's finished tree is made from.
func (b *build) rootInputs(root *recipe.Root) (Inputs, error) {
	edits, err := json.Marshal([]any{root.Remove, root.Replace, root.Links, root.Dirs, alwaysRemoved})
	if err != nil {
		return nil, err
	}
	code, err := b.codeDigest(codeOfTrees)
	if err != nil {
		return nil, err
	}
	in := Inputs{
		"the builder's code":       code,
		"packages of " + root.Name: b.packages[root.Name].Digest,
		"edits of " + root.Name:    cache.Key(string(edits)),
		"the version":              assets.Version,
		"the lock's epoch":         fmt.Sprint(b.l.Epoch),
	}
	for i, item := range b.alone[root.Name] {
		in["package "+root.Unpack[i]] = item.Digest
	}
	return in, b.contentInputs(in, root.Overlays, root.Programs)
}

// contentInputs adds what overlays and programs bring.
func (b *build) contentInputs(in Inputs, overlays []recipe.Overlay, programs map[string]string) error {
	for _, overlay := range overlays {
		digest, err := tree.DirDigest(b.path(overlay.Dir))
		if err != nil {
			return fmt.Errorf("%w; make the directory or take it out of %s", err, RecipePath)
		}
		in["overlay "+overlay.Dir] = cache.Key(append([]string{digest, overlay.At}, overlay.Replaces...)...)
	}
	for name, at := range programs {
		item := b.programs[name]
		in["program "+name] = item.Digest
		in["path of "+name] = at
	}
	return nil
}

// rootTree is a root's finished tree.
func (b *build) rootTree(root *recipe.Root) (*tree.Tree, error) {
	t := tree.New(b.l.Epoch)
	if err := t.AddTar(b.packages[root.Name].Path, "packages of root "+root.Name); err != nil {
		return nil, err
	}
	for i, item := range b.alone[root.Name] {
		if err := t.UnpackTar(item.Path, "package "+root.Unpack[i]); err != nil {
			return nil, err
		}
	}
	for _, glob := range append(slices.Clone(alwaysRemoved), root.Remove...) {
		t.Remove(glob)
	}
	for _, edit := range root.Replace {
		if err := t.ReplaceText(edit.Path, edit.Find, edit.With); err != nil {
			return nil, edit.Errorf("%v", err)
		}
	}
	if err := b.addContent(t, root.Overlays, root.Programs, root.Links, root.Dirs); err != nil {
		return nil, fmt.Errorf("make root %s: %w", root.Name, err)
	}
	return t, nil
}

// addContent puts overlays, programs, links and directories into a tree.
func (b *build) addContent(t *tree.Tree, overlays []recipe.Overlay, programs, links map[string]string, dirs []string) error {
	for _, overlay := range overlays {
		if err := t.Overlay(b.path(overlay.Dir), path.Join("/", overlay.At), overlay.Replaces); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		if err := t.HostFile(programs[name], 0o755, b.programs[name].Path, "program "+name); err != nil {
			return err
		}
	}
	for _, dir := range dirs {
		if err := t.Mkdir(dir, "dirs of the recipe"); err != nil {
			return err
		}
	}
	for _, link := range slices.Sorted(maps.Keys(links)) {
		if err := t.Link(link, links[link], "links of the recipe"); err != nil {
			return err
		}
	}
	return nil
}

// nameVersion adds to os-release which image this is.
func nameVersion(t *tree.Tree) error {
	const file = "/usr/lib/os-release"
	text, err := t.ReadFile(file)
	if err != nil {
		return err
	}
	text = fmt.Appendf(text, "VARIANT=\"Firstlight\"\nVARIANT_ID=firstlight\nIMAGE_ID=firstlight\nIMAGE_VERSION=%s\n", assets.Version)
	n := *t.Get(file)
	n.Content = tree.Bytes(text)
	return t.Swap(file, &n)
}

// writeTar writes a tree to a file.
func writeTar(t *tree.Tree, out string) error {
	f, err := os.Create(out)
	if err != nil {
		return fmt.Errorf("write tree: %w", err)
	}
	if err := t.WriteTar(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
