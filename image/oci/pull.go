package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"firstlight.dev/firstlight/image/tree"
)

// Pull fetches the linux/amd64 image of a reference with digest into a new directory,
// as an image layout of its own.
func Pull(ctx context.Context, reference, dir string) error {
	digest, err := name.NewDigest(reference)
	if err != nil {
		return fmt.Errorf("pull image: %w", err)
	}

	image, err := remote.Image(
		digest, remote.WithContext(ctx), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"}),
	)
	if err != nil {
		return fmt.Errorf("pull image %s: %w", reference, err)
	}
	if err := Save(image, dir); err != nil {
		return fmt.Errorf("pull image %s: %w", reference, err)
	}

	return nil
}

// unpackedDir is where Keep puts the archives of layers, uncompressed.
const unpackedDir = "unpacked"

// Save writes an image to a new directory: a layout of its own, and beside it the archive of each layer
// under its diff id.
func Save(image v1.Image, dir string) error {
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("keep image: %w", err)
	}
	if err := to.AppendImage(image); err != nil {
		return fmt.Errorf("keep image: %w", err)
	}

	layers, err := image.Layers()
	if err != nil {
		return fmt.Errorf("keep image: %w", err)
	}

	for _, l := range layers {
		if err := saveLayer(l, filepath.Join(dir, unpackedDir)); err != nil {
			return fmt.Errorf("keep image: %w", err)
		}
	}

	return nil
}

func saveLayer(l v1.Layer, dir string) error {
	id, err := l.DiffID()
	if err != nil {
		return err
	}

	archive, err := l.Uncompressed()
	if err != nil {
		return err
	}
	defer archive.Close()

	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	f, err := os.Create(filepath.Join(dir, id.Hex))
	if err != nil {
		return err
	}

	_, err = io.Copy(f, archive)
	return errors.Join(err, f.Close())
}

// AddPulled adds the image that Pull fetched, under names. A layer that came compressed is in the layout as
// it came, too: nodes are served that, and nothing makes it of its files again.
func (l *Layout) AddPulled(dir string, names []string) error {
	fail := func(err error) error { return fmt.Errorf("add image %s: %w", names[0], err) }
	path, err := layout.FromPath(dir)
	if err != nil {
		return fail(err)
	}

	index, err := path.ImageIndex()
	if err != nil {
		return fail(err)
	}

	manifest, err := index.IndexManifest()
	if err != nil {
		return fail(err)
	}
	if len(manifest.Manifests) != 1 {
		return fail(fmt.Errorf("%s holds %d images and not one", dir, len(manifest.Manifests)))
	}

	image, err := path.Image(manifest.Manifests[0].Digest)
	if err != nil {
		return fail(err)
	}

	layers, err := image.Layers()
	if err != nil {
		return fail(err)
	}

	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return fail(err)
		}

		id, err := layer.DiffID()
		if err != nil {
			return fail(err)
		}

		l.layers[id.Hex] = filepath.Join(dir, unpackedDir, id.Hex)
		if digest == id {
			continue
		}

		packed := filepath.Join(dir, "blobs", digest.Algorithm, digest.Hex)
		info, err := os.Stat(packed)
		if err != nil {
			return fail(err)
		}

		l.blobs[digest.Hex] = tree.Section{Path: packed, Length: info.Size()}
	}

	_, err = l.AddImage(image, names)
	return err
}
