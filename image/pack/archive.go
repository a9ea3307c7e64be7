package pack

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/bundle"
	"firstlight.dev/firstlight/image/sbom"
)

// blob is content of the archive, read when it is written.
type blob struct {
	size int64
	open func() (io.ReadCloser, error)
}

// archiveLayout is the archive before it is written.
type archiveLayout struct {
	index imagespec.Index
	blobs map[digest.Digest]blob
}

// writeArchive writes an OCI image layout as a tar (OCI image-spec, "Image Layout"): the index first, blobs in the order
// of their digests, no times and no owners.
func writeArchive(w io.Writer, b bundle.Bundle, objects, bill []byte, images []packedImage) error {
	l := &archiveLayout{blobs: map[digest.Digest]blob{}}
	l.index.Versioned = specs.Versioned{SchemaVersion: 2}
	l.index.MediaType = imagespec.MediaTypeImageIndex
	for _, i := range images {
		if i.content == nil {
			continue
		}
		if err := l.addImage(i); err != nil {
			return fmt.Errorf("add image %s: %w", i.Asked, err)
		}
	}
	if err := l.addBundle(b, objects, bill); err != nil {
		return err
	}

	index, err := json.Marshal(l.index)
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	if err := addText(t, imagespec.ImageLayoutFile, []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	if err := addText(t, imagespec.ImageIndexFile, index); err != nil {
		return err
	}
	for _, d := range slices.Sorted(maps.Keys(l.blobs)) {
		if err := addBlob(t, d, l.blobs[d]); err != nil {
			return fmt.Errorf("write %s: %w", d, err)
		}
	}
	return t.Close()
}

func addText(t *tar.Writer, name string, text []byte) error {
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err := t.Write(text)
	return err
}

// addBlob writes a blob and checks its digest on the way: a registry may have sent anything.
func addBlob(t *tar.Writer, d digest.Digest, b blob) error {
	r, err := b.open()
	if err != nil {
		return err
	}
	defer r.Close()

	name := "blobs/" + d.Algorithm().String() + "/" + d.Encoded()
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: b.size}); err != nil {
		return err
	}
	check := d.Verifier()
	n, err := io.Copy(io.MultiWriter(t, check), r)
	switch {
	case err != nil:
		return err
	case n != b.size || !check.Verified():
		return fmt.Errorf("it has %d bytes of another digest, not %d", n, b.size)
	}
	return nil
}

func (l *archiveLayout) addBytes(mediaType string, text []byte) imagespec.Descriptor {
	d := digest.FromBytes(text)
	l.blobs[d] = blob{int64(len(text)), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }}
	return imagespec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(text))}
}

func (l *archiveLayout) addImage(i packedImage) error {
	manifest, err := i.content.RawManifest()
	if err != nil {
		return err
	}
	config, err := i.content.RawConfigFile()
	if err != nil {
		return err
	}
	kind, err := i.content.MediaType()
	if err != nil {
		return err
	}
	layers, err := i.content.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		hash, err := layer.Digest()
		if err != nil {
			return err
		}
		size, err := layer.Size()
		if err != nil {
			return err
		}
		l.blobs[digest.Digest(hash.String())] = blob{size, layer.Compressed}
	}

	l.addBytes("", config)
	d := l.addBytes(string(kind), manifest)
	d.Platform = &imagespec.Platform{OS: platform.OS, Architecture: platform.Architecture}
	d.Annotations = map[string]string{}
	for _, key := range nameAnnotations {
		d.Annotations[key] = i.Tag
	}
	l.index.Manifests = append(l.index.Manifests, d)
	return nil
}

// addBundle adds the objects and what is said of them. Its name in the index is a version alone: to whatever only
// knows images, it names none.
func (l *archiveLayout) addBundle(b bundle.Bundle, objects, bill []byte) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if len(text) > bundle.MaxDescription {
		return fmt.Errorf("it names too many images (%d)", len(b.Images))
	}
	manifest, err := json.Marshal(imagespec.Manifest{
		Versioned:    specs.Versioned{SchemaVersion: 2},
		MediaType:    string(types.OCIManifestSchema1),
		ArtifactType: bundle.ArtifactType,
		Config:       l.addBytes(bundle.ArtifactType, text),
		Layers:       []imagespec.Descriptor{l.addBytes(bundle.ObjectsType, objects), l.addBytes(bundle.BillType, bill)},
	})
	if err != nil {
		return err
	}

	d := l.addBytes(string(types.OCIManifestSchema1), manifest)
	d.ArtifactType = bundle.ArtifactType
	d.Annotations = map[string]string{imagespec.AnnotationTitle: b.Name, imagespec.AnnotationVersion: b.Version}
	l.index.Manifests = append(l.index.Manifests, d)
	return nil
}

// writeBill lists the images, as SPDX.
func writeBill(b bundle.Bundle, objects []byte) ([]byte, error) {
	var parts []sbom.Package
	for _, i := range b.Images {
		if n, err := parseName(i.Asked); err == nil && !i.Absent {
			parts = append(parts, sbom.ImagePackage(n.Name(), i.Digest, strings.TrimPrefix(i.Asked, n.Name()+":")))
		}
	}
	return sbom.Encode(sbom.Image{
		Name: b.Name, Version: b.Version, SHA256: digest.FromBytes(objects).Encoded(), Tool: assets.Version, Purpose: "APPLICATION",
	}, parts)
}
