package oci

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Pull fetches the linux/amd64 image of a reference with digest into a new directory,
// as an image layout of its own.
func Pull(ctx context.Context, reference, dir string) error {
	digest, err := name.NewDigest(reference)
	if err != nil {
		return fmt.Errorf("pull image: %w", err)
	}
	image, err := remote.Image(digest, remote.WithContext(ctx), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"}))
	if err != nil {
		return fmt.Errorf("pull image %s: %w", reference, err)
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("pull image %s: %w", reference, err)
	}
	if err := path.AppendImage(image); err != nil {
		return fmt.Errorf("pull image %s: %w", reference, err)
	}
	return nil
}

// AddPulled adds the image that Pull fetched, under names.
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
		if err := l.AddBlob(digest.Hex, filepath.Join(dir, "blobs", digest.Algorithm, digest.Hex)); err != nil {
			return fail(err)
		}
	}
	_, err = l.AddImage(image, names)
	return err
}
