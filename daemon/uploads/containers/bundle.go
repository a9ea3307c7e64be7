package containers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"firstlight.dev/firstlight/assets/bundle"
)

// packedBundle is a bundle in an archive: what is said of it, and its objects, which are read when they are asked for.
type packedBundle struct {
	bundle.Bundle
	objects func() ([]byte, error) // YAML, of the digest that the bundle says
}

// findBundle reads what is said of an archive's bundle; nil if it has none. What it names must be in the archive, unless
// another archive is to bring it.
func (a *archive) findBundle(index v1.IndexManifest, images []archiveImage) (*packedBundle, error) {
	isBundle := func(d v1.Descriptor) bool { return d.ArtifactType == bundle.ArtifactType }
	i := slices.IndexFunc(index.Manifests, isBundle)
	if i < 0 {
		return nil, nil
	}
	if slices.ContainsFunc(index.Manifests[i+1:], isBundle) {
		return nil, errors.New("it has two bundles; make an archive of each with: firstlight pack")
	}

	b, err := a.readBundle(index.Manifests[i])
	if err != nil {
		return nil, fmt.Errorf("its bundle cannot be read: %w", err)
	}
	return b, checkImages(b.Bundle, images)
}

func (a *archive) readBundle(d v1.Descriptor) (*packedBundle, error) {
	var m v1.Manifest
	text, err := a.readChecked(d, maxText)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	if len(m.Layers) == 0 || m.Layers[0].MediaType != bundle.ObjectsType {
		return nil, fmt.Errorf("its first layer is not of the type %s", bundle.ObjectsType)
	}

	b := &packedBundle{objects: func() ([]byte, error) { return a.readChecked(m.Layers[0], bundle.MaxObjects) }}
	if text, err = a.readChecked(m.Config, bundle.MaxDescription); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &b.Bundle); err != nil {
		return nil, err
	}
	b.Objects, b.Missing, b.NotServed = m.Layers[0].Digest.String(), nil, "" // only the appliance says these

	// Whoever reads the objects later must not find that they cannot be read.
	if _, err := b.objects(); err != nil {
		return nil, err
	}
	return b, b.Check()
}

// readChecked reads a blob and checks its digest.
func (a *archive) readChecked(d v1.Descriptor, limit int64) ([]byte, error) {
	text, err := a.readUpTo(blobPath(d.Digest), limit)
	if err != nil {
		return nil, err
	}
	got, _, err := v1.SHA256(bytes.NewReader(text))
	if err == nil && got != d.Digest {
		err = fmt.Errorf("%s has the content of %s", d.Digest, got)
	}
	return text, err
}

// checkImages says which image a bundle has that it names no image of, or that the archive lacks.
func checkImages(b bundle.Bundle, images []archiveImage) error {
	names := map[string]bool{}
	for _, i := range images {
		for _, n := range i.names {
			names[n] = true
		}
	}

	for _, i := range b.Images {
		if _, err := reference.ParseNormalizedNamed(i.Name); err != nil {
			return fmt.Errorf("its bundle says %q, which is no name of an image: %w", shorten(i.Name), err)
		}
		if !i.Absent && !names[i.Tag] {
			return fmt.Errorf("its bundle says that it has image %s, and it has not", shorten(i.Asked))
		}
	}
	return nil
}
