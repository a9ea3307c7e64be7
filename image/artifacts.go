package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/debian/pool"
	"firstlight.dev/firstlight/image/recipe"
	"firstlight.dev/firstlight/image/tree"

	"go.yaml.in/yaml/v3"
)

// buildArtifacts makes every artifact by its kind.
func (b *build) buildArtifacts(ctx context.Context) error {
	kinds := map[string]func(context.Context, *recipe.Artifact) (cache.Item, error){
		recipe.KindFile:      b.fileArtifact,
		recipe.KindExtract:   b.extractArtifact,
		recipe.KindInitramfs: b.initramfsArtifact,
		recipe.KindDisk:      b.diskArtifact,
		recipe.KindModule:    b.moduleArtifact,
		recipe.KindPackages:  b.packagesArtifact,
	}
	for i := range b.r.Artifacts {
		a := &b.r.Artifacts[i]
		item, err := kinds[a.Kind](ctx, a)
		if err != nil {
			return err
		}
		b.files[a.Name] = item
	}
	return nil
}

// fileArtifact is a file of the repository, or of a URL with a known digest.
func (b *build) fileArtifact(ctx context.Context, a *recipe.Artifact) (cache.Item, error) {
	if a.File != "" {
		digest, err := cache.FileDigest(b.path(a.File))
		if err != nil {
			return cache.Item{}, a.Errorf("%v", err)
		}
		if a.SHA256 != "" && a.SHA256 != digest {
			return cache.Item{}, a.Errorf("sha256 of %s is %s and not %s; update it if the file is right", a.File, digest, a.SHA256)
		}
		return cache.Item{Path: b.path(a.File), Digest: digest}, nil
	}
	return b.makePart(ctx, "artifact", a.Name, Inputs{"its sha256": a.SHA256}, func(out string) error {
		if err := download(ctx, a.URL, out); err != nil {
			return a.Errorf("%v", err)
		}
		digest, err := cache.FileDigest(out)
		if err != nil {
			return err
		}
		if digest != a.SHA256 {
			return a.Errorf("sha256 of %s is %s and not %s", a.URL, digest, a.SHA256)
		}
		return nil
	})
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
func (b *build) extractArtifact(ctx context.Context, a *recipe.Artifact) (cache.Item, error) {
	in := Inputs{"packages of " + a.Root: b.packages[a.Root].Digest, "path": a.Path}
	return b.makePart(ctx, "artifact", a.Name, in, func(out string) error {
		t, err := b.packagesTree(a.Root)
		if err != nil {
			return err
		}
		file, err := onlyFile(t, a.Path)
		if err != nil {
			return a.Errorf("%v", err)
		}
		content := t.Get(file).Content
		if content == nil {
			return a.Errorf("%s is empty", file)
		}
		r, err := content.Open()
		if err != nil {
			return a.Errorf("%v", err)
		}
		defer r.Close()
		f, err := os.Create(out)
		if err != nil {
			return fmt.Errorf("extract %s: %w", file, err)
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	})
}

// moduleArtifact is one file of a Go module, in the version that a go.mod selects, or the
// objects of it that are wanted. The go command holds it to go.sum.
func (b *build) moduleArtifact(ctx context.Context, a *recipe.Artifact) (cache.Item, error) {
	dir, err := b.goBuilder(b.l.Toolchain).SelectedDir(ctx, a.Module, a.From)
	if err != nil {
		return cache.Item{}, a.Errorf("%v", err)
	}
	file := filepath.Join(dir, filepath.FromSlash(a.Path))
	digest, err := cache.FileDigest(file)
	if err != nil {
		return cache.Item{}, a.Errorf("%v", err)
	}
	if len(a.Only) == 0 {
		return cache.Item{Path: file, Digest: digest}, nil
	}
	in := Inputs{"file of " + a.From: digest, "objects": strings.Join(a.Only, " ")}
	return b.makePart(ctx, "artifact", a.Name, in, func(out string) error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		taken, err := selectObjects(string(text), a.Only)
		if err != nil {
			return a.Errorf("%v", err)
		}
		return os.WriteFile(out, []byte(taken), 0o644)
	})
}

// packagesArtifact is a directory with the packages of a root as they are and an index of them.
func (b *build) packagesArtifact(ctx context.Context, a *recipe.Artifact) (cache.Item, error) {
	packages := b.l.Root(a.Root)
	code, err := b.codeDigest(codeOfPools)
	if err != nil {
		return cache.Item{}, err
	}
	in := Inputs{"the builder's code": code}
	for _, p := range packages {
		in["package "+p.Name] = p.SHA256
	}
	return b.makePart(ctx, "artifact", a.Name, in, func(out string) error {
		files, err := b.fetch(ctx, "artifact "+a.Name, packages)
		if err != nil {
			return err
		}
		return pool.Make(ctx, packages, files, out)
	})
}

// addPool puts the files of a packages artifact into a tree.
func (b *build) addPool(t *tree.Tree, a *recipe.Artifact) error {
	all, err := os.ReadDir(b.files[a.Name].Path)
	if err != nil {
		return fmt.Errorf("read packages: %w", err)
	}
	for _, e := range all {
		if err := t.HostFile(path.Join(a.To, e.Name()), 0o644, filepath.Join(b.files[a.Name].Path, e.Name()), "artifact "+a.Name); err != nil {
			return err
		}
	}
	return nil
}

// selectObjects keeps the documents of a Kubernetes manifest whose Kind or Kind/name is
// wanted, each as it stands. A wish that nothing answers is an error.
func selectObjects(manifest string, only []string) (string, error) {
	var out []string
	found := map[string]bool{}
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		var object struct {
			Kind     string `yaml:"kind"`
			Metadata struct {
				Name string `yaml:"name"`
			} `yaml:"metadata"`
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return "", fmt.Errorf("read manifest: %w", err)
		}
		for _, wish := range []string{object.Kind, object.Kind + "/" + object.Metadata.Name} {
			if slices.Contains(only, wish) {
				found[wish] = true
				out = append(out, strings.TrimSuffix(document, "\n"))
				break
			}
		}
	}
	for _, wish := range only {
		if !found[wish] {
			return "", fmt.Errorf("only: the manifest has no %s", wish)
		}
	}
	return strings.Join(out, "\n---\n") + "\n", nil
}
