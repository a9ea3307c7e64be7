package image

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/debian"
	"firstlight.dev/firstlight/image/disk/mkfs"
	"firstlight.dev/firstlight/image/initramfs"
	"firstlight.dev/firstlight/image/oci"
	"firstlight.dev/firstlight/image/recipe"
	"firstlight.dev/firstlight/image/rootfs"
	"firstlight.dev/firstlight/image/roottree"
	"firstlight.dev/firstlight/image/tree"
)

// list puts together the parts of a recipe. It keeps the first error, so that a part reads as one literal.
type list struct {
	*build
	err error
}

// listParts lists the parts of the image, each behind all that it needs; the stick is the last.
func (b *build) listParts(ctx context.Context) ([]Part, error) {
	l := &list{build: b}
	late := b.latePrograms()
	parts := slices.Concat(
		l.programs(func(name string) bool { return !slices.Contains(late, name) }),
		l.packages(),
		l.layers(),
		l.artifacts(ctx),
		[]Part{l.kernel(), l.base()},
		l.programs(func(name string) bool { return slices.Contains(late, name) }), // nothing before needs them
	)
	return append(parts, l.stick(parts)), l.err
}

func (l *list) keep(err error) {
	if l.err == nil {
		l.err = err
	}
}

// code is the builder's own code that makes a part: packages of this repository with all that they import.
func (l *list) code(packages ...string) Inputs {
	digest, err := l.sources.Digest(packages...)
	l.keep(err)
	return Inputs{"the builder's code": digest}
}

// settings digests what the recipe says, but for where it says so.
func (l *list) settings(values ...any) string {
	text, err := json.Marshal(values)
	l.keep(err)
	return cache.Key(string(text))
}

func (l *list) epoch() Inputs { return Inputs{"the lock's epoch": fmt.Sprint(l.l.Epoch)} }

// rootNeeds names the parts that a root's finished tree is made from.
func (l *list) rootNeeds(root *recipe.Root) []string {
	needs := []string{l.packagesTitle(root.Name)}
	for _, name := range root.Unpack {
		needs = append(needs, titleOf(kindFiles, name))
	}
	return append(needs, programTitles(root.Programs)...)
}

// rootInputs are what the recipe says of a root's finished tree, with the code that makes it.
func (l *list) rootInputs(root *recipe.Root) Inputs {
	in := l.code("image/roottree").add(l.epoch()).add(l.contentInputs(root.Overlays, root.Programs))
	in["edits of "+root.Name] = l.settings(root.Unpack, root.Remove, root.Replace, root.Links, root.Dirs)
	return in
}

// contentInputs are what overlays and programs bring besides the programs themselves.
func (l *list) contentInputs(overlays []recipe.Overlay, programs map[string]string) Inputs {
	in := Inputs{}
	for _, overlay := range overlays {
		digest, err := tree.DirDigest(l.path(overlay.Dir))
		if err != nil {
			l.keep(fmt.Errorf("%w; make the directory or take it out of %s", err, RecipePath))
		}
		in["overlay "+overlay.Dir] = cache.Key(append([]string{digest, overlay.At}, overlay.Replaces...)...)
	}

	for name, at := range programs {
		in["path of "+name] = at
	}

	return in
}

func programTitles(programs map[string]string) []string {
	var titles []string
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		titles = append(titles, titleOf(kindProgram, name))
	}
	return titles
}

// trees makes trees of parts that were made.
func (b *build) trees(from Made) roottree.Source {
	program := func(name string) string { return from.path(titleOf(kindProgram, name)) }
	return roottree.Source{Top: b.Top, Epoch: b.l.Epoch, Program: program}
}

// rootTree is a root's finished tree; from has what rootNeeds names.
func (b *build) rootTree(from Made, root *recipe.Root) (*tree.Tree, error) {
	var unpacked []string
	for _, name := range root.Unpack {
		unpacked = append(unpacked, from.path(titleOf(kindFiles, name)))
	}
	return b.trees(from).Root(root, from.path(b.packagesTitle(root.Name)), unpacked)
}

// packagesTree is a root as its packages left it.
func (b *build) packagesTree(from Made, root string) (*tree.Tree, error) {
	t := tree.New(b.l.Epoch)
	return t, t.AddTar(from.path(b.packagesTitle(root)), "packages of root "+root)
}

// layers are the layers of the images that have one of their own.
func (l *list) layers() (parts []Part) {
	for i := range l.r.Images {
		image := &l.r.Images[i]
		switch {
		case image.Layer != "":
		case image.Reference != "":
			parts = append(parts, Part{
				Kind:   kindPulled,
				Name:   image.Name,
				Inputs: Inputs{"its reference": image.Reference}, // with the digest
				Make: func(ctx context.Context, _ Made, out string) error {
					return oci.Pull(ctx, image.Reference, out)
				},
			})
		default:
			parts = append(parts, l.layer(image, l.r.Root(image.Root)))
		}
	}
	return parts
}

func (l *list) layer(image *recipe.Image, root *recipe.Root) Part {
	p := Part{Kind: kindLayer, Name: image.Name, Needs: programTitles(image.Programs), Inputs: l.epoch()}
	if root != nil {
		p.Needs = append(p.Needs, l.rootNeeds(root)...)
		p.Inputs.add(l.rootInputs(root))
	}

	p.Inputs.add(l.contentInputs(image.Overlays, image.Programs)).add(l.code("image/roottree", "image/oci"))
	p.Inputs["its links and directories"] = l.settings(image.Links, image.Dirs)
	p.Make = func(_ context.Context, from Made, out string) (err error) {
		var below *tree.Tree
		if root != nil {
			if below, err = l.rootTree(from, root); err != nil {
				return err
			}
		}

		t, err := l.trees(from).Image(image, below)
		if err != nil {
			return err
		}

		return oci.WriteLayer(t, out)
	}
	return p
}

// layerTitle names the part that an image has as its layer.
func (b *build) layerTitle(image *recipe.Image) string {
	if image.Layer != "" {
		image = b.r.Image(image.Layer)
	}
	if image.Reference != "" {
		return titleOf(kindPulled, image.Name)
	}
	return titleOf(kindLayer, image.Name)
}

// kernel is the kernel of the appliance's root with the initramfs that fits it.
func (l *list) kernel() Part {
	s := l.r.Stick
	in := l.code("image/initramfs")
	in["path of the kernel"] = s.Kernel
	return Part{
		Kind:   kindKernel,
		Needs:  []string{l.packagesTitle(s.Root), titleOf(kindProgram, s.Init)},
		Inputs: in,
		Make: func(_ context.Context, from Made, out string) error {
			t, err := l.packagesTree(from, s.Root)
			if err != nil {
				return err
			}
			return initramfs.WriteWithKernel(t, s.Kernel, from.path(titleOf(kindProgram, s.Init)), out)
		},
	}
}

// base is the appliance's root file system without the programs that are appended.
func (l *list) base() Part {
	root, _ := l.splitRoot()
	needs := append(l.rootNeeds(root), titleOf(kindUnpacked, l.r.Stick.Tools))
	for i := range l.r.Images {
		needs = append(needs, l.layerTitle(&l.r.Images[i]))
	}

	var paths []string
	for _, a := range l.r.Artifacts {
		needs = append(needs, titleOf(kindArtifact, a.Name))
		paths = append(paths, a.Name, a.Kind, a.To)
	}

	in := l.rootInputs(root).add(l.code("image/roottree", "image/rootfs"))
	in["settings of the images"], in["paths of artifacts"] = l.settings(l.r.Images), l.settings(paths)
	in["the version"], in["what is appended"] = assets.Version, l.r.Stick.Appended
	return Part{
		Kind:   kindBase,
		Needs:  needs,
		Inputs: in,
		Make: func(ctx context.Context, from Made, out string) error {
			t, err := l.rootTree(from, root)
			if err != nil {
				return err
			}
			return rootfs.Source{
				Recipe:    l.r,
				Epoch:     l.l.Epoch,
				Root:      t,
				Layers:    func(image *recipe.Image) cache.Item { return from[l.layerTitle(image)] },
				Artifacts: func(a *recipe.Artifact) cache.Item { return from[titleOf(kindArtifact, a.Name)] },
			}.Write(ctx, l.tool(from, "bin/mksquashfs"), out)
		},
	}
}

// tool is a program of the pinned suite that writes file systems.
func (b *build) tool(from Made, program string) mkfs.Tool {
	return debian.ToolCommand(from.path(titleOf(kindUnpacked, b.r.Stick.Tools)), program)
}

// stick is the disk image with what belongs beside it: it needs all there is. It is not kept in the cache, but where
// the user wants it (makeStick).
func (l *list) stick(parts []Part) Part {
	in := l.code("image").add(l.epoch())
	in["settings of the stick"], in["the version"] = l.settings(l.r.Stick), l.version
	_, appended := l.splitRoot()
	for name, at := range appended {
		in["path of "+name] = at
	}

	for _, dir := range []string{l.r.Stick.ESP, l.r.Stick.Site} {
		digest, err := tree.DirDigest(l.path(dir))
		l.keep(err)
		in["overlay "+dir] = digest
	}

	if l.Site != "" {
		in["the site document"] = fmt.Sprintf("%x", sha256.Sum256(l.document))
	}

	p := Part{Kind: kindStick, Inputs: in}
	for _, other := range parts {
		p.Needs = append(p.Needs, other.Title())
	}

	return p
}

// splitRoot is the appliance's root without the programs that are appended, and these: program to path.
func (b *build) splitRoot() (base *recipe.Root, appended map[string]string) {
	whole := b.r.Root(b.r.Stick.Root)
	root := *whole
	root.Programs, appended = map[string]string{}, map[string]string{}
	for name, at := range whole.Programs {
		if b.r.Stick.Appended != "" && strings.HasPrefix(at, b.r.Stick.Appended+"/") {
			appended[name] = at
		} else {
			root.Programs[name] = at
		}
	}

	return &root, appended
}
