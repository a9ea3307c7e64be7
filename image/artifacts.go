package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/debian/pool"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/disk/nodedisk"
	"firstlight.dev/firstlight/image/initramfs"
	"firstlight.dev/firstlight/image/objects"
	"firstlight.dev/firstlight/image/recipe"
	"firstlight.dev/firstlight/image/tree"
)

// artifacts are the artifacts, each by its kind.
func (l *list) artifacts(ctx context.Context) (parts []Part) {
	kinds := map[string]func(context.Context, *recipe.Artifact) Part{
		recipe.KindFile:      l.fileArtifact,
		recipe.KindExtract:   l.extractArtifact,
		recipe.KindInitramfs: l.initramfsArtifact,
		recipe.KindDisk:      l.diskArtifact,
		recipe.KindModule:    l.moduleArtifact,
		recipe.KindKustomize: l.kustomizeArtifact,
		recipe.KindPackages:  l.packagesArtifact,
	}
	for i := range l.r.Artifacts {
		a := &l.r.Artifacts[i]
		p := kinds[a.Kind](ctx, a)
		p.Kind, p.Name = kindArtifact, a.Name
		parts = append(parts, p)
	}
	return parts
}

// fileArtifact is a file of the repository, or of a URL with a known digest.
func (l *list) fileArtifact(_ context.Context, a *recipe.Artifact) Part {
	if a.File != "" {
		l.keep(checkDigest(a, l.path(a.File), a.File))
		return Part{File: l.path(a.File)}
	}
	return Part{
		Inputs: Inputs{"its sha256": a.SHA256},
		Make: func(ctx context.Context, _ Made, out string) error {
			if err := download(ctx, a.URL, out); err != nil {
				return a.Errorf("%v", err)
			}
			return checkDigest(a, out, a.URL)
		},
	}
}

// checkDigest holds a file, which comes from there, to the artifact's digest if it has one.
func checkDigest(a *recipe.Artifact, file, from string) error {
	digest, err := cache.FileDigest(file)
	if err != nil {
		return a.Errorf("%v", err)
	}
	if a.SHA256 != "" && a.SHA256 != digest {
		return a.Errorf("sha256 of %s is %s and not %s; update it if the file is right", from, digest, a.SHA256)
	}

	return nil
}

func download(ctx context.Context, url, out string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	defer response.Body.Close()

	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("fetch %s: %s", url, response.Status)
	}

	f, err := os.Create(out)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", url, err)
	}

	_, err = io.Copy(f, response.Body)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("fetch %s: %w", url, err)
	}

	return nil
}

// extractArtifact is one file that a root's packages brought.
func (l *list) extractArtifact(_ context.Context, a *recipe.Artifact) Part {
	return Part{
		Needs:  []string{l.packagesTitle(a.Root)},
		Inputs: l.code("image/tree").add(Inputs{"path": a.Path}),
		Make: func(_ context.Context, from Made, out string) error {
			t, err := l.packagesTree(from, a.Root)
			if err != nil {
				return err
			}

			file, err := t.OnlyFile(a.Path)
			if err != nil {
				return a.Errorf("%v", err)
			}

			content := t.Get(file).Content
			if content == nil {
				return a.Errorf("%s is empty", file)
			}

			return tree.WriteContent(content, out)
		},
	}
}

// initramfsArtifact is a whole root as initramfs: cpio, zstd.
func (l *list) initramfsArtifact(_ context.Context, a *recipe.Artifact) Part {
	root := l.r.Root(a.Root)
	return Part{
		Needs:  l.rootNeeds(root),
		Inputs: l.rootInputs(root).add(l.code("image/roottree", "image/initramfs")),
		Make: func(_ context.Context, from Made, out string) error {
			t, err := l.rootTree(from, root)
			if err != nil {
				return err
			}
			return initramfs.WriteTree(t, out)
		},
	}
}

// diskArtifact is a whole root as a disk that boots by itself.
func (l *list) diskArtifact(_ context.Context, a *recipe.Artifact) Part {
	root := l.r.Root(a.Root)
	in := l.rootInputs(root).add(l.code("image/roottree", "image/disk/nodedisk"))
	in["its settings"] = l.settings(a.Size, a.CmdLine)
	size, err := recipe.ParseBytes(a.Size)
	if err != nil {
		l.keep(a.Errorf("%v", err))
	}

	return Part{
		Needs:  append(l.rootNeeds(root), l.bootNeeds()...),
		Inputs: in,
		Make: func(ctx context.Context, from Made, out string) error {
			t, err := l.rootTree(from, root)
			if err != nil {
				return err
			}

			err = nodedisk.Disk{
				Name:    a.Name,
				Root:    t,
				Size:    size,
				CmdLine: a.CmdLine,
				Epoch:   l.l.Epoch,
				Loaders: l.bootLoaders(from),
				Mke2fs:  l.tool(from, "sbin/mke2fs"),
			}.Write(ctx, out)
			if err != nil {
				return a.Errorf("%v", err)
			}

			return nil
		},
	}
}

// bootNeeds are the parts that boot loaders are made from.
func (b *build) bootNeeds() []string {
	return []string{titleOf(kindUnpacked, b.r.Stick.Boot), titleOf(kindUnpacked, b.r.Stick.Tools)}
}

func (b *build) bootLoaders(from Made) disk.BootLoaders {
	return disk.BootLoaders{
		Dir:     from.path(titleOf(kindUnpacked, b.r.Stick.Boot)),
		Mkimage: b.tool(from, "bin/grub-mkimage"),
	}
}

// moduleArtifact is one file of a Go module, in the version that a go.mod selects, or the
// objects of it that are wanted. The go command holds it to go.sum.
func (l *list) moduleArtifact(ctx context.Context, a *recipe.Artifact) Part {
	dir, err := l.goBuilder(l.l.Toolchain).SelectedDir(ctx, a.Module, a.From)
	if err != nil {
		l.keep(a.Errorf("%v", err))
		return Part{}
	}

	file := filepath.Join(dir, filepath.FromSlash(a.Path))
	if len(a.Only) == 0 {
		return Part{File: file}
	}

	digest, err := cache.FileDigest(file)
	if err != nil {
		l.keep(a.Errorf("%v", err))
	}

	return Part{
		Inputs: l.code("image/objects").add(Inputs{"file of " + a.From: digest, "objects": strings.Join(a.Only, " ")}),
		Make: func(_ context.Context, _ Made, out string) error {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}

			chosen, err := objects.Select(string(text), a.Only)
			if err != nil {
				return a.Errorf("%v", err)
			}

			return os.WriteFile(out, []byte(chosen), 0o644)
		},
	}
}

// kustomizeArtifact is the objects that a kustomization of a Go module describes. Its files are those of the module,
// so the module's path and version stand for them.
func (l *list) kustomizeArtifact(ctx context.Context, a *recipe.Artifact) Part {
	dir, err := l.goBuilder(l.l.Toolchain).SelectedDir(ctx, a.Module, a.From)
	if err != nil {
		l.keep(a.Errorf("%v", err))
		return Part{}
	}

	return Part{
		Inputs: l.code("image/objects").add(Inputs{"its module": filepath.Base(dir), "its path": a.From + "/" + a.Path, "its image": a.Image}),
		Make: func(_ context.Context, _ Made, out string) error {
			text, err := objects.Render(filepath.Join(dir, filepath.FromSlash(a.Path)), a.Image)
			if err != nil {
				return a.Errorf("%v", err)
			}
			return os.WriteFile(out, []byte(text), 0o644)
		},
	}
}

// packagesArtifact is a directory with the packages of a root as they are and an index of them.
func (l *list) packagesArtifact(_ context.Context, a *recipe.Artifact) Part {
	packages := l.l.Root(a.Root)
	return Part{
		Inputs: l.code("image/debian/pool").add(packageInputs(packages)),
		Make: func(ctx context.Context, _ Made, out string) error {
			files, err := l.fetch(ctx, titleOf(kindArtifact, a.Name), packages)
			if err != nil {
				return err
			}
			return pool.Make(ctx, packages, files, out)
		},
	}
}
