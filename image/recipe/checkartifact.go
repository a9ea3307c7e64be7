package recipe

import (
	"path"
	"strings"
)

func (c *checker) checkArtifact(a *Artifact) {
	if !strings.HasPrefix(path.Clean(a.To), "/usr/share/firstlight/") {
		c.report(a.Pos, "to %q is not below /usr/share/firstlight/", a.To)
	}

	switch a.Kind {
	case KindFile:
		c.checkFile(a)
		return
	case KindModule, KindKustomize:
		c.checkModule(a)
		return
	case KindExtract:
		if a.Path == "" {
			c.report(a.Pos, "path is missing; give the file in the root")
		}
	case KindDisk:
		if _, err := ParseBytes(a.Size); err != nil {
			c.report(a.Pos, "%v", err)
		}
	case KindPackages:
		c.checkPool(a)
	case KindInitramfs:
	default:
		c.report(a.Pos, "kind %q is unknown; write file, extract, initramfs, disk, module, kustomize or packages", a.Kind)
		return
	}

	if a.File != "" || a.URL != "" || a.SHA256 != "" {
		c.report(a.Pos, "file, url and sha256 belong to kind file")
	}

	c.checkRootOf(a.Pos, a.Root)
}

// checkModule checks an artifact that is made from the files of a Go module.
func (c *checker) checkModule(a *Artifact) {
	what := map[string]string{KindModule: "a file", KindKustomize: "a directory"}[a.Kind]
	switch {
	case a.Module == "" || a.From == "" || a.Path == "" || path.IsAbs(a.Path):
		c.report(
			a.Pos, "kind %s needs module (the directory of a go.mod), from (a module's path) and path (%s in it)",
			a.Kind, what,
		)
	case a.Kind == KindKustomize && len(a.Only) > 0:
		c.report(a.Pos, "only belongs to kind module")
	case a.Kind == KindModule && a.Image != "":
		c.report(a.Pos, "image belongs to kind kustomize")
	default:
		c.checkInside(a.Pos, "path", a.Path)
	}
}

func (c *checker) checkFile(a *Artifact) {
	if (a.File == "") == (a.URL == "") {
		c.report(a.Pos, "give either file or url")
	}

	if a.URL != "" && !sha256Form.MatchString(a.SHA256) {
		c.report(a.Pos, "sha256 %q is not 64 hexadecimal digits; a url needs it", a.SHA256)
	}

	if a.Root != "" || a.Path != "" {
		c.report(a.Pos, "root and path do not belong to kind file")
	}

	c.checkInside(a.Pos, "file", a.File)
}

// checkRootOf holds the name of a root to those that there are.
func (c *checker) checkRootOf(at Pos, name string) {
	if c.Root(name) == nil {
		c.report(at, "root %q is not among roots; add it there", name)
	}
}

// checkPool holds that a root whose packages are kept as they are is nothing else: what else were said of
// it would not be done. (It is unpacked all the same, for the licences in it.)
func (c *checker) checkPool(a *Artifact) {
	root := c.Root(a.Root)
	if root == nil {
		return
	}

	if root.Variant != VariantUnpacked {
		c.report(a.Pos, "root %q must have variant %s", a.Root, VariantUnpacked)
	}

	lists := len(root.Unpack) + len(root.Exclude) + len(root.Include) + len(root.Omit) + len(root.Hooks) + len(root.Remove) +
		len(root.Replace) + len(root.Overlays) + len(root.Programs) + len(root.Links) + len(root.Dirs)
	if lists > 0 {
		c.report(a.Pos, "root %q may have packages only; they are kept as they are", a.Root)
	}

	for _, image := range c.Images {
		if image.Root == a.Root {
			c.report(image.Pos, "root %q is kept as packages; make another root of them", a.Root)
		}
	}

	for _, other := range c.Artifacts {
		if other.Root == a.Root && other.Name != a.Name {
			c.report(other.Pos, "root %q is kept as packages; make another root of them", a.Root)
		}
	}
}
