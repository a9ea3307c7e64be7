package image

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/gobuild"
	"firstlight.dev/firstlight/image/lock"
	"firstlight.dev/firstlight/image/recipe"
	"firstlight.dev/firstlight/image/sbom"
	"firstlight.dev/firstlight/image/tree"
)

// isShipped says whether anything of a root gets into the image: the tools stay here.
func (b *build) isShipped(root string) bool { return root != b.r.Stick.Tools }

// listMaterials lists what the image is made of. Reading licences takes seconds, so they are
// kept in the cache by what they were read from.
func (b *build) listMaterials(ctx context.Context, from Made) ([]sbom.Package, error) {
	debian, err := b.debianParts(from)
	if err != nil {
		return nil, err
	}

	modules, err := b.moduleParts(ctx, from)
	if err != nil {
		return nil, err
	}

	return append(debian, modules...), nil
}

// billOfMaterials is the list as SPDX, for the image with this sha256.
func (b *build) billOfMaterials(parts []sbom.Package, imageDigest string) ([]byte, error) {
	about := sbom.Image{Name: b.r.Stick.Name, Version: b.version, SHA256: imageDigest, Epoch: b.l.Epoch}
	return sbom.Encode(about, parts)
}

func (b *build) debianParts(from Made) ([]sbom.Package, error) {
	licenses := map[string]string{} // by package
	for i := range b.r.Roots {
		root := &b.r.Roots[i]
		if !b.isShipped(root.Name) {
			continue
		}

		key := cache.Key("2", root.Name, from[b.packagesTitle(root.Name)].Digest, fmt.Sprint(b.l.Root(root.Name)))
		item, err := b.store.Do("licenses", key, func(out string) error { return b.readLicenses(from, root, out) })
		if err != nil {
			return nil, err
		}

		text, err := os.ReadFile(item.Path)
		if err != nil {
			return nil, fmt.Errorf("read licences: %w", err)
		}
		if err := json.Unmarshal(text, &licenses); err != nil {
			return nil, fmt.Errorf("read licences %s: %w", item.Path, err)
		}
	}

	return b.listDebs(licenses), nil
}

// listDebs lists the Debian packages of what is shipped. licenses are by package; one that is not there has none.
func (b *build) listDebs(licenses map[string]string) []sbom.Package {
	var parts []sbom.Package
	for _, p := range b.l.Packages() {
		roots := slices.DeleteFunc(
			slices.Clone(b.l.Debs[p.Name].Roots), func(root string) bool { return !b.isShipped(root) },
		)
		if len(roots) > 0 {
			parts = append(
				parts,
				sbom.DebianPackage(
					p.Name, p.Version, p.Arch, p.SHA256, licenses[p.Name], "in "+strings.Join(roots, ", "),
				),
			)
		}
	}

	return parts
}

// readLicenses writes a root's packages and their licences as JSON.
func (b *build) readLicenses(from Made, root *recipe.Root, out string) error {
	packages := from.path(b.packagesTitle(root.Name))
	read := func(p string) ([]byte, error) { return os.ReadFile(filepath.Join(packages, p)) }
	if !b.isDirectory(root.Name) {
		t, err := b.packagesTree(from, root.Name)
		if err != nil {
			return err
		}

		alone := root.Unpack
		if root.Variant == recipe.VariantUnpacked { // they are in the tree already
			alone = nil
		}

		for _, name := range alone {
			if err := t.UnpackTar(from.path(titleOf(kindFiles, name)), "package"); err != nil {
				return err
			}
		}

		read = func(p string) ([]byte, error) {
			if n := t.Get(path.Dir(p)); n != nil && n.Type == tree.Symlink { // the documentation of a sibling
				p = path.Join(path.Dir(path.Dir(p)), n.Target, path.Base(p))
			}
			return t.ReadFile(p)
		}
	}

	licenses := map[string]string{}
	for _, p := range b.l.Root(root.Name) {
		licenses[p.Name] = sbom.NoAssertion
		if text, err := read("/usr/share/doc/" + p.Name + "/copyright"); err == nil {
			licenses[p.Name] = sbom.PackageLicense(p.Name, p.Section, text)
		}
	}

	text, err := json.Marshal(licenses)
	if err != nil {
		return fmt.Errorf("keep licences: %w", err)
	}

	return os.WriteFile(out, text, 0o644)
}

// moduleParts lists what the programs say of themselves that they are made of.
func (b *build) moduleParts(ctx context.Context, from Made) ([]sbom.Package, error) {
	builder := b.goBuilder(b.l.Toolchain)
	parts := []sbom.Package{sbom.ModulePackage(
		"std", strings.TrimPrefix(b.l.Toolchain, "go"), "BSD-3-Clause", "in every program",
	)}
	at := map[lock.Module][]*recipe.Program{}
	for i := range b.r.Programs {
		p := &b.r.Programs[i]
		modules, err := gobuild.BuiltModules(from.path(titleOf(kindProgram, p.Name)))
		if err != nil {
			return nil, err
		}

		for _, m := range modules {
			m.Sum = cmp.Or(m.Sum, b.l.Sum(m.Path, m.Version))
			at[m] = append(at[m], p)
		}
	}

	for m, programs := range at {
		license, err := b.moduleLicense(ctx, builder, programs[0], m)
		if err != nil {
			return nil, err
		}

		var in []string
		for _, p := range programs {
			if slices.ContainsFunc(p.Patches, func(mend recipe.Patch) bool { return mend.Module == m.Path }) {
				in = append(in, p.Name+" (patched)")
			} else {
				in = append(in, p.Name)
			}
		}

		parts = append(parts, sbom.ModulePackage(m.Path, m.Version, license, "in "+strings.Join(in, ", ")))
	}

	return parts, nil
}

// moduleLicense recognises a module's licence once and keeps it.
func (b *build) moduleLicense(
	ctx context.Context,
	builder gobuild.Builder,
	p *recipe.Program,
	m lock.Module,
) (string, error) {
	item, err := b.store.Do("license", cache.Key("1", m.Path, m.Version, m.Sum), func(out string) error {
		dir, err := builder.ModuleDir(ctx, p, m)
		if err != nil {
			return err
		}
		return os.WriteFile(out, []byte(sbom.ModuleLicense(os.DirFS(dir))), 0o644)
	})
	if err != nil {
		return "", err
	}

	text, err := os.ReadFile(item.Path)
	if err != nil {
		return "", fmt.Errorf("read licence of %s: %w", m.Path, err)
	}

	return string(text), nil
}
