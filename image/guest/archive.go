package guest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/guest"
	"firstlight.dev/firstlight/assets/layer"
)

// layoutDir is the OCI layout on the stick's root.
const layoutDir = "usr/share/firstlight/images"

// containerdName is how containerd names what it imports (pkg/images/annotations.go).
const containerdName = "io.containerd.image.name"

// repositories are those of the stick's layout that a guest's pods are made of. The others are of a Kubernetes that the
// appliance owns, or of nodes, which get them from the appliance.
func repositories() []string {
	return []string{
		"firstlight", "installer", "ironic", "baremetal-operator",
		"cluster-api-controller", "kubeadm-bootstrap-controller", "kubeadm-control-plane-controller",
	}
}

// rootImage is the image with the stick's root.
const rootImage = assets.ImageDomain + "/appliance:" + assets.Version

// archive is an OCI image layout that is written as a tar file.
type archive struct {
	file    *os.File
	tar     *tar.Writer
	written map[digest.Digest]bool
	index   imagespec.Index
}

// WriteArchive writes, to an empty file, an OCI archive of all images that a guest's pods are made of: those of the
// layout in a root tree, and the root itself. root is where the tree is. It returns their names.
func WriteArchive(file *os.File, root string) (names []string, err error) {
	a := &archive{file: file, tar: tar.NewWriter(file), written: map[digest.Digest]bool{}}
	a.index.Versioned, a.index.MediaType = specs.Versioned{SchemaVersion: 2}, imagespec.MediaTypeImageIndex
	if err := a.add(imagespec.ImageLayoutFile, []byte(`{"imageLayoutVersion":"`+imagespec.ImageLayoutVersion+`"}`)); err != nil {
		return nil, err
	}
	if err := a.addRoot(root, rootImage); err != nil {
		return nil, fmt.Errorf("write image of the root: %w", err)
	}
	if err := a.addLayout(filepath.Join(root, layoutDir)); err != nil {
		return nil, err
	}

	text, err := json.Marshal(a.index)
	if err != nil {
		return nil, err
	}
	for _, d := range a.index.Manifests {
		names = append(names, d.Annotations[imagespec.AnnotationRefName])
	}
	return names, errors.Join(a.add(imagespec.ImageIndexFile, text), a.tar.Close())
}

// name adds an image to the index, by an index of its own that says its platform: a node or a registry of another one
// sees that without reading more.
func (a *archive) name(manifest imagespec.Descriptor, platform imagespec.Platform, name string) error {
	manifest.Platform = &platform
	d, err := a.addJSON(imagespec.MediaTypeImageIndex, imagespec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: imagespec.MediaTypeImageIndex,
		Manifests: []imagespec.Descriptor{manifest},
	})
	if err != nil {
		return err
	}
	d.Annotations = map[string]string{containerdName: name, imagespec.AnnotationRefName: name}
	a.index.Manifests = append(a.index.Manifests, d)
	return nil
}

func (a *archive) add(name string, content []byte) error {
	if err := a.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Format: tar.FormatGNU}); err != nil {
		return err
	}
	_, err := a.tar.Write(content)
	return err
}

func (a *archive) addBlob(d digest.Digest, size int64, content io.Reader) error {
	if a.written[d] {
		return nil
	}
	a.written[d] = true
	if err := a.tar.WriteHeader(&tar.Header{Name: blobName(d), Mode: 0o644, Size: size, Format: tar.FormatGNU}); err != nil {
		return err
	}
	if _, err := io.Copy(a.tar, content); err != nil {
		return fmt.Errorf("write %s: %w", d, err)
	}
	return nil
}

func blobName(d digest.Digest) string {
	return path.Join(imagespec.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}

// addJSON adds a small blob and returns where it is.
func (a *archive) addJSON(mediaType string, v any) (imagespec.Descriptor, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return imagespec.Descriptor{}, err
	}
	d := imagespec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(text), Size: int64(len(text))}
	return d, a.addBlob(d.Digest, d.Size, bytes.NewReader(text))
}

// addLayout adds the images of the stick's layout.
func (a *archive) addLayout(dir string) error {
	var index imagespec.Index
	if err := readJSON(filepath.Join(dir, imagespec.ImageIndexFile), &index); err != nil {
		return err
	}

	found := map[string]bool{}
	for _, d := range index.Manifests {
		name := d.Annotations[imagespec.AnnotationRefName]
		rest, _ := strings.CutPrefix(name, assets.ImageDomain+"/")
		repository, _, _ := strings.Cut(rest, ":")
		if !slices.Contains(repositories(), repository) {
			continue
		}
		if err := a.addImage(dir, d, name); err != nil {
			return fmt.Errorf("write image %s: %w", name, err)
		}
		found[repository] = true
	}
	for _, r := range repositories() {
		if !found[r] {
			return fmt.Errorf("the root has no image %s; it is of another version than this program", r)
		}
	}
	return nil
}

func (a *archive) addImage(dir string, d imagespec.Descriptor, name string) error {
	file := filepath.Join(dir, blobName(d.Digest))
	var manifest imagespec.Manifest
	if err := readJSON(file, &manifest); err != nil {
		return err
	}

	for _, blob := range append([]imagespec.Descriptor{d, manifest.Config}, manifest.Layers...) {
		content, size, err := openBlob(dir, blob.Digest)
		if err != nil {
			return err
		}
		err = a.addBlob(blob.Digest, size, content)
		if err := errors.Join(err, content.Close()); err != nil {
			return err
		}
	}

	var config imagespec.Image
	if err := readJSON(filepath.Join(dir, blobName(manifest.Config.Digest)), &config); err != nil {
		return err
	}
	if config.OS == "" || config.Architecture == "" {
		return errors.New("its configuration does not say for which platform it is")
	}
	return a.name(imagespec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}, config.Platform, name)
}

// openBlob opens a file of the layout, or a layer that is unpacked there.
func openBlob(dir string, d digest.Digest) (io.ReadCloser, int64, error) {
	unpacked := filepath.Join(dir, layer.Dir, d.Encoded())
	if _, err := os.Stat(unpacked); err == nil {
		l, err := layer.Open(os.DirFS(unpacked))
		if err != nil {
			return nil, 0, err
		}
		return l.Reader(0), l.Size(), nil
	}

	f, err := os.Open(filepath.Join(dir, blobName(d)))
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

func readJSON(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	return nil
}

// addRoot adds an image whose one layer is the root tree.
func (a *archive) addRoot(root, name string) error {
	stored, unpacked, err := a.streamRoot(root)
	if err != nil {
		return err
	}

	platform := imagespec.Platform{OS: "linux", Architecture: guest.Architecture}
	config, err := a.addJSON(imagespec.MediaTypeImageConfig, imagespec.Image{
		Created:  &time.Time{},
		Platform: platform,
		Config: imagespec.ImageConfig{
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Entrypoint: []string{program},
		},
		RootFS: imagespec.RootFS{Type: "layers", DiffIDs: []digest.Digest{unpacked}},
	})
	if err != nil {
		return err
	}
	manifest, err := a.addJSON(imagespec.MediaTypeImageManifest, imagespec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: imagespec.MediaTypeImageManifest,
		Config:    config,
		Layers:    []imagespec.Descriptor{stored},
	})
	if err != nil {
		return err
	}
	return a.name(manifest, platform, name)
}

// streamRoot writes the root as a compressed layer and returns where it is, and the digest of what it unpacks to. Its name
// is its digest and its header has its size, which are known at its end: the header is written again then.
func (a *archive) streamRoot(root string) (stored imagespec.Descriptor, unpacked digest.Digest, err error) {
	if err := a.tar.Flush(); err != nil {
		return stored, "", err
	}
	at, err := a.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return stored, "", err
	}
	begin, err := header(digest.FromString(""), 0)
	if err != nil {
		return stored, "", err
	}
	if _, err := a.file.Write(begin); err != nil {
		return stored, "", err
	}

	packed, plain := counter{hash: sha256.New()}, sha256.New()
	compressor, err := zstd.NewWriter(io.MultiWriter(a.file, &packed), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return stored, "", err
	}
	err = writeTree(io.MultiWriter(compressor, plain), root)
	if err := errors.Join(err, compressor.Close()); err != nil {
		return stored, "", err
	}

	stored = imagespec.Descriptor{
		MediaType: imagespec.MediaTypeImageLayerZstd,
		Digest:    digest.NewDigest(digest.SHA256, packed.hash),
		Size:      packed.size,
	}
	end, err := header(stored.Digest, stored.Size)
	if err != nil {
		return stored, "", err
	}
	if _, err := a.file.WriteAt(end, at); err != nil {
		return stored, "", err
	}
	_, err = a.file.Write(make([]byte, -packed.size&511)) // up to the next header
	a.tar, a.written[stored.Digest] = tar.NewWriter(a.file), true
	return stored, digest.NewDigest(digest.SHA256, plain), err
}

// header is that of a blob, in a tar file.
func header(d digest.Digest, size int64) ([]byte, error) {
	var text bytes.Buffer
	err := tar.NewWriter(&text).WriteHeader(&tar.Header{Name: blobName(d), Mode: 0o644, Size: size, Format: tar.FormatGNU})
	return text.Bytes(), err
}

type counter struct {
	hash hash.Hash
	size int64
}

func (c *counter) Write(b []byte) (int, error) {
	c.size += int64(len(b))
	return c.hash.Write(b)
}

// writeTree writes a directory as a layer of an image.
func writeTree(w io.Writer, root string) error {
	t := tar.NewWriter(w)
	names := map[uint64]string{} // of files with several, by inode
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil || name == "." {
			return err
		}
		return writeEntry(t, file, name, entry, names)
	})
	return errors.Join(err, t.Close())
}
