// Package oci writes container images as one OCI image layout, without a daemon or a
// registry. Images that share a layer share it here too. A layer is stored as the files that it
// unpacks to, so that it can be run from where it lies; package layer makes its archive of them again.
package oci

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"firstlight.dev/firstlight/assets/layer"
	"firstlight.dev/firstlight/image/tree"
)

// Annotations by which container runtimes learn an image's name from an index.
const (
	annotationContainerd = "io.containerd.image.name"
	annotationOCI        = "org.opencontainers.image.ref.name"
)

// Config is how an image starts.
type Config struct {
	Entrypoint []string
	Command    []string
	User       string
	WorkDir    string
	Env        map[string]string
}

// Layout is an image layout being put together. Blobs stay where they are until the
// layout is written into a tree.
type Layout struct {
	epoch  int64
	index  v1.ImageIndex
	blobs  map[string]tree.Content // by hex digest
	layers map[string]string       // archives, by hex digest
	names  map[string]string       // full reference to digest
}

// New makes an empty layout. Its images were created at epoch, seconds since 1970.
func New(epoch int64) *Layout {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	return &Layout{
		epoch:  epoch,
		index:  index,
		blobs:  map[string]tree.Content{},
		layers: map[string]string{},
		names:  map[string]string{},
	}
}

// Add adds an image of one layer, a tar archive with its sha256, under all its names,
// which are full references such as firstlight.internal/pause:3.10. It returns the
// image's digest.
func (l *Layout) Add(layerFile, layerDigest string, c Config, names []string) (string, error) {
	info, err := os.Stat(layerFile)
	if err != nil {
		return "", fmt.Errorf("add image %s: %w", names[0], err)
	}

	only := blob{file: layerFile, hash: v1.Hash{Algorithm: "sha256", Hex: layerDigest}, size: info.Size()}
	created := v1.Time{Time: time.Unix(l.epoch, 0).UTC()}
	base := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	image, err := mutate.Append(
		base, mutate.Addendum{Layer: only, History: v1.History{CreatedBy: "firstlight build", Created: created}},
	)
	if err != nil {
		return "", fmt.Errorf("add image %s: %w", names[0], err)
	}

	file, err := image.ConfigFile()
	if err != nil {
		return "", fmt.Errorf("add image %s: %w", names[0], err)
	}

	file = file.DeepCopy()
	file.Architecture, file.OS, file.Created = "amd64", "linux", created
	file.Config = v1.Config{Entrypoint: c.Entrypoint, Cmd: c.Command, User: c.User, WorkingDir: c.WorkDir}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		file.Config.Env = append(file.Config.Env, name+"="+c.Env[name])
	}

	if image, err = mutate.ConfigFile(image, file); err != nil {
		return "", fmt.Errorf("add image %s: %w", names[0], err)
	}

	l.layers[layerDigest] = layerFile
	return l.AddImage(image, names)
}

// AddImage adds an image under names. Its layers must have been added, by AddPulled or Add.
func (l *Layout) AddImage(image v1.Image, names []string) (string, error) {
	fail := func(err error) (string, error) { return "", fmt.Errorf("add image %s: %w", names[0], err) }
	manifest, err := image.RawManifest()
	if err != nil {
		return fail(err)
	}

	digest, err := image.Digest()
	if err != nil {
		return fail(err)
	}

	config, err := image.RawConfigFile()
	if err != nil {
		return fail(err)
	}

	configDigest, err := image.ConfigName()
	if err != nil {
		return fail(err)
	}

	for _, name := range names {
		if _, twice := l.names[name]; twice {
			return fail(fmt.Errorf("%s is there already; give one image that name", name))
		}
	}

	l.blobs[digest.Hex], l.blobs[configDigest.Hex] = tree.Bytes(manifest), tree.Bytes(config)
	for _, name := range names {
		l.names[name] = digest.String()
		l.index = mutate.AppendManifests(l.index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Annotations: map[string]string{annotationContainerd: name, annotationOCI: name},
		}})
	}

	return digest.String(), nil
}

// WriteInto writes the layout below a directory of a tree. Files of layers that the tree has already, in
// another layer or outside of them, become hard links to those.
func (l *Layout) WriteInto(t *tree.Tree, dir string) error {
	index, err := l.index.RawManifest()
	if err != nil {
		return fmt.Errorf("write image layout: %w", err)
	}

	files := map[string]tree.Content{
		"oci-layout": tree.Bytes(`{"imageLayoutVersion":"1.0.0"}`),
		"index.json": tree.Bytes(index),
	}
	for hex, content := range l.blobs {
		files["blobs/sha256/"+hex] = content
	}

	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := t.File(path.Join(dir, name), 0o644, files[name], "container images"); err != nil {
			return err
		}
	}

	for _, hex := range slices.Sorted(maps.Keys(l.layers)) {
		if err := unpack(t, path.Join(dir, layer.Dir, hex), l.layers[hex]); err != nil {
			return err
		}
	}

	return t.LinkDuplicates(path.Join(dir, layer.Dir))
}

// WriteLayer writes a tree as an uncompressed layer to a file.
func WriteLayer(t *tree.Tree, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("write layer: %w", err)
	}
	if err := t.WriteTar(f); err != nil {
		f.Close()
		return fmt.Errorf("write layer %s: %w", file, err)
	}

	return f.Close()
}

// blob is a layer stored as the archive itself, so that its digest is its diff id.
type blob struct {
	file string
	hash v1.Hash
	size int64
}

func (b blob) Digest() (v1.Hash, error)             { return b.hash, nil }
func (b blob) DiffID() (v1.Hash, error)             { return b.hash, nil }
func (b blob) Size() (int64, error)                 { return b.size, nil }
func (b blob) MediaType() (types.MediaType, error)  { return types.OCIUncompressedLayer, nil }
func (b blob) Compressed() (io.ReadCloser, error)   { return os.Open(b.file) }
func (b blob) Uncompressed() (io.ReadCloser, error) { return os.Open(b.file) }
