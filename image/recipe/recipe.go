// Package recipe reads what the image is asked to contain: assets/recipe.yaml.
// A recipe names things by hand-written names and wishes; package lock turns it
// into versions and digests, and only those are built (docs/image.md).
package recipe

import (
	"cmp"
	"fmt"
	"os"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// Pos says where a part of the recipe was written.
type Pos = yamldoc.Pos

// Recipe is everything that is asked for.
type Recipe struct {
	Debian    Debian     `yaml:"debian" need:"the Debian suite that packages come from"`
	Programs  []Program  `yaml:"programs"`
	Omissions []Omission `yaml:"omissions"`
	Roots     []Root     `yaml:"roots"`
	Images    []Image    `yaml:"images"`
	Artifacts []Artifact `yaml:"artifacts"`
	Stick     Stick      `yaml:"stick" need:"what goes onto the stick and how it is divided"`
}

// Debian says where packages come from. The mirror is not part of a recipe: it is
// this machine's own, or the one given by --mirror.
type Debian struct {
	Pos
	Suite      string   `yaml:"suite" need:"a release name such as trixie"`
	Components []string `yaml:"components" need:"archive components such as [main]"`
}

// Program is a static Go program for linux/amd64, built without cgo, with -trimpath
// and stripped.
type Program struct {
	Pos
	Name    string   `yaml:"name" need:"the name that roots and images use"`
	Module  string   `yaml:"module"` // directory with the go.mod, from the top; "." when empty
	Package string   `yaml:"package" need:"the package to build, such as ./cmd/firstlightd"`
	LDFlags []string `yaml:"ldflags"` // added to -s -w; one flag with its value each, such as "-X=path.Name=value"
	Tags    []string `yaml:"tags"`
	Patches []Patch  `yaml:"mends"` // of the modules it is compiled from
}

// Patch is a guarded text edit of a file of a Go module, made while a program is compiled: the
// old text must be there exactly once, else the build stops.
type Patch struct {
	Pos
	Module string `yaml:"module" need:"the path of the module, such as k8s.io/kubernetes"`
	File   string `yaml:"file" need:"the file in the module"`
	Old    string `yaml:"old" need:"the text to replace"`
	New    string `yaml:"new" need:"the text to put there"`
	Why    string `yaml:"why" need:"the reason, in a sentence"`
}

// Omission is a list of what several roots leave out of packages.
type Omission struct {
	Pos
	Name  string   `yaml:"name" need:"the name that roots use"`
	Paths []string `yaml:"paths" need:"dpkg path patterns"`
}

// Variants of a root.
const (
	VariantEssential = "essential" // mmdebstrap: Debian's essential packages, then those asked for
	VariantUnpacked  = "unpacked"  // .debs and what they need unpacked side by side; no script runs
)

// Root is a named Debian file tree.
type Root struct {
	Pos
	Name     string            `yaml:"name" need:"the name that images, artifacts and the stick use"`
	Variant  string            `yaml:"variant"`  // essential when empty
	Packages []string          `yaml:"packages"` // Debian packages; what they depend on comes along, what they recommend does not
	Unpack   []string          `yaml:"unpack"`   // Debian packages unpacked over the tree without what they depend on, scripts not run
	Firmware string            `yaml:"firmware"` // the unpacked root whose packages have the firmware that its drivers name
	Omit     []string          `yaml:"omit"`     // omissions, whose paths are excluded too
	Exclude  []string          `yaml:"exclude"`  // dpkg path patterns that are never unpacked
	Include  []string          `yaml:"include"`  // dpkg path patterns kept though excluded
	Hooks    []string          `yaml:"hooks"`    // shell scripts of this repository, run inside the tree after the packages
	Remove   []string          `yaml:"remove"`   // globs (** crosses directories) taken out of the tree afterwards
	Replace  []Replace         `yaml:"replace"`  // guarded text edits
	Overlays []Overlay         `yaml:"overlays"` // directories of this repository copied into the tree
	Programs map[string]string `yaml:"programs"` // program: path in the tree
	Links    map[string]string `yaml:"links"`    // path in the tree: what the symbolic link says
	Dirs     []string          `yaml:"dirs"`     // empty directories, 0755 root:root
}

// Replace is a guarded text edit of a package's file: the old text must be there
// exactly once, or the new text already, else the build stops.
type Replace struct {
	Pos
	Path string `yaml:"path" need:"the file in the tree"`
	Find string `yaml:"find" need:"the text to replace"`
	With string `yaml:"with" need:"the text to put there"`
}

// Overlay is a directory copied verbatim. A file of it that exists already in the
// tree is a collision unless it is listed in replaces.
type Overlay struct {
	Pos
	Dir      string   `yaml:"dir" need:"a directory of this repository"`
	At       string   `yaml:"at"`       // where in the tree; / when empty
	Replaces []string `yaml:"replaces"` // paths that are meant to replace a package's file
}

// Image is a container image named firstlight.internal/NAME:TAG, or one fetched
// from a registry by digest.
type Image struct {
	Pos
	Name       string            `yaml:"name" need:"the image's name below the image domain"`
	Tags       []string          `yaml:"tags" need:"at least one tag"`
	Programs   map[string]string `yaml:"programs"`   // program: path in the image
	Root       string            `yaml:"root"`       // a root as its file system
	Links      map[string]string `yaml:"links"`      // path: what the symbolic link says
	Dirs       []string          `yaml:"dirs"`       // empty directories
	Overlays   []Overlay         `yaml:"overlays"`   // directories of this repository
	Layer      string            `yaml:"layer"`      // the image whose file system this one has too
	Entrypoint []string          `yaml:"entrypoint"` // argv
	Command    []string          `yaml:"command"`    // default arguments
	User       string            `yaml:"user"`       // uid[:gid]
	WorkDir    string            `yaml:"workdir"`
	Env        map[string]string `yaml:"env"`
	Reference  string            `yaml:"reference"` // registry/name@sha256:..., instead of all the above but name and tags
}

// Kinds of artifacts.
const (
	KindFile      = "file"      // a file of this repository or from a URL
	KindExtract   = "extract"   // a file out of a root
	KindInitramfs = "initramfs" // a root as cpio, zstd
	KindDisk      = "disk"      // a root as a whole-disk image that boots by BIOS and UEFI; its sha256 lies beside it
	KindModule    = "module"    // a file out of a Go module
	KindKustomize = "kustomize" // the objects that a kustomization out of a Go module describes
	KindPackages  = "packages"  // the .debs of an unpacked root, with their index: what a Debian repository is made from
)

// Artifact is a file that the appliance carries below /usr/share/firstlight.
type Artifact struct {
	Pos
	Name    string   `yaml:"name" need:"a name"`
	Kind    string   `yaml:"kind" need:"file, extract, initramfs, disk, module, kustomize or packages"`
	To      string   `yaml:"to" need:"the path on the appliance, below /usr/share/firstlight/"`
	File    string   `yaml:"file"`    // kind file: a file of this repository
	URL     string   `yaml:"url"`     // kind file: where to get it when the cache does not have it
	SHA256  string   `yaml:"sha256"`  // kind file: what it must be
	Root    string   `yaml:"root"`    // kinds extract, initramfs, disk, packages
	Path    string   `yaml:"path"`    // kind extract: one file in the root, may be a glob with one match; kind module: the file in it; kind kustomize: the directory in it
	Module  string   `yaml:"module"`  // kinds module, kustomize: directory with the go.mod that selects its version
	From    string   `yaml:"from"`    // kinds module, kustomize: the module's path
	Image   string   `yaml:"image"`   // kind kustomize: the image of its Deployments' containers
	Only    []string `yaml:"only"`    // kind module: of a Kubernetes manifest, the objects to take: Kind, or Kind/name
	Size    string   `yaml:"size"`    // kind disk: whole disk, such as 1200MiB
	CmdLine string   `yaml:"cmdline"` // kind disk: kernel parameters besides root=
}

// Stick is the disk image itself.
type Stick struct {
	Pos
	Name   string            `yaml:"name" need:"the file name of the image without .img"`
	Root   string            `yaml:"root" need:"the root that becomes the appliance's file system"`
	Boot   string            `yaml:"boot" need:"the unpacked root with shim and GRUB"`
	Tools  string            `yaml:"tools" need:"the unpacked root with the programs that make file systems"`
	Init   string            `yaml:"init" need:"the program that is PID 1 of the initramfs"`
	Kernel string            `yaml:"kernel" need:"the kernel in the root, a glob with one match"`
	ESP    string            `yaml:"esp" need:"the directory copied to the EFI system partition"`
	Site   string            `yaml:"site" need:"the directory that becomes the SITE partition"`
	Sizes  map[string]string `yaml:"sizes"` // least size of a partition by name, such as 64MiB

	// Appended is a directory at the top of the root. The root's programs in it are appended to the
	// file system of everything else, which then need not be made anew when they change.
	Appended string `yaml:"appended"`
}

// ReadFile reads and checks a recipe. Every problem is one line that says where, what
// and what to do.
func ReadFile(path string) (*Recipe, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read recipe: %w", err)
	}
	return Parse(path, data)
}

// Parse reads a recipe from its text; name is used in errors. It tells every problem, one a line.
func Parse(name string, data []byte) (*Recipe, error) {
	var r Recipe
	d := yamldoc.Document{File: name, Kind: "a recipe", FreeText: true}
	if d.Decode(data, &r) {
		c := checker{Recipe: &r, document: &d, broken: d.Problems()}
		c.check()
	} else if len(d.Problems()) == 0 {
		d.Report("", "the recipe is empty; start from the one in git")
	}

	if err := d.Problems().Err(); err != nil {
		return nil, err
	}

	r.complete()
	return &r, nil
}

// complete fills in what roots may leave out, and what they leave out by the name of an omission.
func (r *Recipe) complete() {
	for i := range r.Roots {
		root := &r.Roots[i]
		root.Variant = cmp.Or(root.Variant, VariantEssential)
		for _, name := range root.Omit {
			root.Exclude = append(root.Exclude, r.omission(name).Paths...)
		}
	}
}

// Program finds a program by name; nil when there is none.
func (r *Recipe) Program(name string) *Program {
	for i := range r.Programs {
		if r.Programs[i].Name == name {
			return &r.Programs[i]
		}
	}
	return nil
}

// Root finds a root by name; nil when there is none.
func (r *Recipe) Root(name string) *Root {
	for i := range r.Roots {
		if r.Roots[i].Name == name {
			return &r.Roots[i]
		}
	}
	return nil
}

// Image finds an image by name; nil when there is none.
func (r *Recipe) Image(name string) *Image {
	for i := range r.Images {
		if r.Images[i].Name == name {
			return &r.Images[i]
		}
	}
	return nil
}

// omission finds an omission by name; nil when there is none.
func (r *Recipe) omission(name string) *Omission {
	for i := range r.Omissions {
		if r.Omissions[i].Name == name {
			return &r.Omissions[i]
		}
	}
	return nil
}
