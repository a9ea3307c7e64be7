package image

import (
	"context"
	"slices"

	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/debian"
	"firstlight.dev/firstlight/image/debian/install"
	"firstlight.dev/firstlight/image/recipe"
)

// packages are the Debian packages of every root: installed or laid over each other as a tar archive, for tools and
// boot loaders as a directory.
func (l *list) packages() (parts []Part) {
	for _, root := range l.rootsInOrder() {
		locked := l.l.Root(root.Name)
		switch {
		case l.isDirectory(root.Name):
			parts = append(parts, Part{
				Kind:   kindUnpacked,
				Name:   root.Name,
				Inputs: l.code("image/debian").add(l.epoch()).add(packageInputs(locked)),
				Make: func(ctx context.Context, _ Made, out string) error {
					files, err := l.fetch(ctx, titleOf(kindUnpacked, root.Name), locked)
					if err != nil {
						return err
					}
					return debian.Unpack(ctx, locked, files, out)
				},
			})
		case root.Variant == recipe.VariantUnpacked:
			parts = append(parts, l.packageSet(root, locked, install.Root.Unpack))
			if l.isFirmware(root.Name) {
				parts = append(parts, l.firmware(root))
			}
		default:
			var installed []debian.Package
			for _, p := range locked {
				title := titleOf(kindFiles, p.Name)
				isListed := slices.ContainsFunc(parts, func(other Part) bool { return other.Title() == title })
				switch {
				case !slices.Contains(root.Unpack, p.Name):
					installed = append(installed, p)
				case !isListed: // else another root has it too
					parts = append(parts, l.packageFiles(p))
				}
			}
			parts = append(parts, l.packageSet(root, installed, install.Root.Install))
		}
	}
	return parts
}

// isDirectory reports whether a root's packages are a directory, and not a tar archive.
func (b *build) isDirectory(root string) bool {
	return root == b.r.Stick.Tools || root == b.r.Stick.Boot
}

func (b *build) packagesTitle(root string) string {
	if b.isDirectory(root) {
		return titleOf(kindUnpacked, root)
	}
	return titleOf(kindPackages, root)
}

// packageSet is a root's packages as one tar archive.
func (l *list) packageSet(
	root *recipe.Root, packages []debian.Package, write func(install.Root, context.Context, string) error,
) Part {
	in := l.code("image/debian/install").add(l.epoch()).add(packageInputs(packages))
	in["path patterns"] = l.settings(root.Exclude, root.Include)
	var hooks []string
	for _, hook := range root.Hooks {
		digest, err := cache.FileDigest(l.path(hook))
		l.keep(err)
		in["hook "+hook] = digest
		hooks = append(hooks, l.path(hook))
	}

	var needs []string
	if root.Firmware != "" {
		needs = append(needs, titleOf(kindFirmware, root.Firmware))
	}

	return Part{
		Kind:   kindPackages,
		Name:   root.Name,
		Needs:  needs,
		Inputs: in,
		Make: func(ctx context.Context, from Made, out string) error {
			files, err := l.fetch(ctx, titleOf(kindPackages, root.Name), packages)
			if err != nil {
				return err
			}
			var firmware string
			if root.Firmware != "" {
				firmware = from.path(titleOf(kindFirmware, root.Firmware))
			}
			return write(install.Root{
				Name:     root.Name,
				Suite:    l.r.Debian.Suite,
				Packages: packages,
				Files:    files,
				Exclude:  root.Exclude,
				Include:  root.Include,
				Hooks:    hooks,
				Firmware: firmware,
				Epoch:    l.l.Epoch,
				Log:      l.Log,
			}, ctx, out)
		},
	}
}

// packageFiles is a package that is unpacked over a root.
func (l *list) packageFiles(p debian.Package) Part {
	return Part{
		Kind:   kindFiles,
		Name:   p.Name,
		Inputs: l.code("image/debian").add(packageInputs([]debian.Package{p})),
		Make: func(ctx context.Context, _ Made, out string) error {
			files, err := l.fetch(ctx, titleOf(kindFiles, p.Name), []debian.Package{p})
			if err != nil {
				return err
			}
			return debian.DataTar(ctx, files[p.SHA256], out)
		},
	}
}

func packageInputs(packages []debian.Package) Inputs {
	in := Inputs{}
	for _, p := range packages {
		in["package "+p.Name] = p.SHA256
	}
	return in
}

// fetch brings packages into the cache and returns their files by SHA256; part is what is shown as waiting for them.
func (b *build) fetch(ctx context.Context, part string, packages []debian.Package) (map[string]string, error) {
	mirror := func() (debian.Mirror, error) { return debian.FindMirror(ctx, b.Mirror) }
	return debian.Fetch(ctx, b.store, mirror, packages, func(done, all int) {
		b.progress.Advance(part, Position{Doing: "fetching", Done: done, All: all})
	})
}
