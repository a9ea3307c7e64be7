package containers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"firstlight.dev/firstlight/assets/bundle"
)

// What tools write an image's name to, the whole one first (containerd's and podman's; OCI image-spec,
// annotations).
var nameAnnotations = []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"}

func (a *archive) ociContents() (all contents, err error) {
	var index v1.IndexManifest
	if err := a.decode("index.json", &index); err != nil {
		return contents{}, err
	}

	if all.images, err = a.ociImages(index); err != nil {
		return contents{}, err
	}

	all.bundle, err = a.findBundle(index, all.images)
	return all, err
}

func (a *archive) ociImages(index v1.IndexManifest) (all []archiveImage, err error) {
	for _, d := range index.Manifests {
		i := slices.IndexFunc(
			nameAnnotations, func(key string) bool { return strings.ContainsAny(d.Annotations[key], ":/") },
		)
		if i < 0 || d.ArtifactType == bundle.ArtifactType {
			continue // a tag alone names nothing
		}

		parsed, err := parseName(d.Annotations[nameAnnotations[i]])
		if err != nil {
			return nil, err
		}
		if len(all) == maxNames {
			return nil, fmt.Errorf("it has more than %d images; make several archives of it", maxNames)
		}

		c, err := a.image(d)
		if err != nil {
			return nil, fmt.Errorf("image %s of the archive cannot be read: %w", parsed, err)
		}

		all = append(all, archiveImage{[]string{parsed.String()}, c.manifest.Config.Digest.Hex, func() (v1.Image, error) {
			c, err := a.image(d)
			if err != nil {
				return nil, err
			}
			return partial.CompressedToImage(c)
		}})
	}

	return all, nil
}

func blobPath(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

// image is what a descriptor names; of an image for several platforms, the one for our nodes.
func (a *archive) image(d v1.Descriptor) (*ociImage, error) {
	if d.MediaType.IsIndex() {
		var index v1.IndexManifest
		if err := a.decode(blobPath(d.Digest), &index); err != nil {
			return nil, err
		}

		i := slices.IndexFunc(index.Manifests, func(m v1.Descriptor) bool {
			return m.Platform != nil && m.Platform.OS == "linux" && m.Platform.Architecture == "amd64"
		})
		if i < 0 {
			return nil, errors.New("it has none for linux/amd64")
		}

		d = index.Manifests[i]
	}

	raw, err := a.readText(blobPath(d.Digest))
	if err != nil {
		return nil, err
	}

	c := &ociImage{archive: a, raw: raw, mediaType: d.MediaType}
	if err := json.Unmarshal(raw, &c.manifest); err != nil {
		return nil, err
	}
	if n := len(c.manifest.Layers); n > maxLayers {
		return nil, fmt.Errorf("it has %d layers, more than %d", n, maxLayers)
	}

	return c, nil
}

// ociImage is an image of an OCI layout, for partial.CompressedToImage.
type ociImage struct {
	*archive
	raw       []byte
	manifest  v1.Manifest
	mediaType types.MediaType
}

func (c *ociImage) RawManifest() ([]byte, error) { return c.raw, nil }

func (c *ociImage) MediaType() (types.MediaType, error) { return c.mediaType, nil }

func (c *ociImage) RawConfigFile() ([]byte, error) {
	return c.readText(blobPath(c.manifest.Config.Digest))
}

func (c *ociImage) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	all := append([]v1.Descriptor{c.manifest.Config}, c.manifest.Layers...)
	i := slices.IndexFunc(all, func(d v1.Descriptor) bool { return d.Digest == h })
	if i < 0 {
		return nil, fmt.Errorf("the image has no layer %s", h)
	}

	return layer{c.archive, all[i]}, nil
}

type layer struct {
	archive    *archive
	descriptor v1.Descriptor
}

func (l layer) Digest() (v1.Hash, error) { return l.descriptor.Digest, nil }

func (l layer) Size() (int64, error) { return l.descriptor.Size, nil }

func (l layer) MediaType() (types.MediaType, error) { return l.descriptor.MediaType, nil }

func (l layer) Compressed() (io.ReadCloser, error) {
	r, _, err := l.archive.open(blobPath(l.descriptor.Digest))
	return r, err
}
