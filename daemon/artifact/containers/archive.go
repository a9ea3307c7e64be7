// Package containers gives container images that were brought to the appliance's registry, under
// their own names, so that the nodes of clusters pull them as from anywhere else.
//
// An image comes as the archive that docker save, podman save or skopeo copy make: one in Docker's
// form (manifest.json) or an OCI layout in a tar (index.json). Its names are those that the archive
// says.
package containers

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Limits of what is believed of an archive.
const (
	maxFiles = 10000
	maxText  = 4 << 20 // octets of a manifest
)

// named is an image of an archive.
type named struct {
	names []Name
	image v1.Image
}

// Name is an image's name, whole: registry, path and tag.
type Name struct{ Domain, Path, Tag string }

func (n Name) String() string { return n.Domain + "/" + n.Path + ":" + n.Tag }

// parseName completes a name as containerd does.
func parseName(text string) (Name, error) {
	ref, err := reference.ParseDockerRef(text)
	if err != nil {
		return Name{}, fmt.Errorf("%q is no name of an image: %w", text, err)
	}
	tagged, ok := ref.(reference.Tagged)
	if !ok {
		return Name{}, fmt.Errorf("%q has a digest and no tag; give it a tag", text)
	}
	n := Name{reference.Domain(ref), reference.Path(ref), tagged.Tag()}
	if strings.Contains(n.Domain, ":") {
		return Name{}, fmt.Errorf("%q names a registry with a port, which cannot be served; give the image a name without one", text)
	}
	return n, nil
}

// errNone says that an archive does not say what its image is called.
var errNone = errors.New("the archive names no image; write it with: docker save -o FILE NAME:TAG, or skopeo copy … docker-archive:FILE:NAME:TAG")

// open reads the images of an archive and their names. Layers are read when they are asked for. What
// it says of an archive that is none is meant for who brought it.
func open(file string) ([]named, error) {
	a, err := indexOf(file)
	if err != nil {
		return nil, err
	}
	switch {
	case a.files["manifest.json"].size > 0:
		return a.docker()
	case a.files["index.json"].size > 0:
		return a.oci()
	}
	return nil, errors.New("it is a tar archive without manifest.json and index.json, so it is no container image")
}

// archive is where the files of a tar archive begin and how long they are.
type archive struct {
	path  string
	files map[string]section
}

type section struct{ at, size int64 }

func indexOf(file string) (*archive, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	defer f.Close()
	a := &archive{path: file, files: map[string]section{}}
	for t := tar.NewReader(f); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return nil, errors.New("it is no tar archive, or a compressed one; write it with docker save or skopeo copy, uncompressed")
		}
		if len(a.files) == maxFiles {
			return nil, fmt.Errorf("it has more than %d files, so it is no container image", maxFiles)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		at, err := f.Seek(0, io.SeekCurrent) // the reader of a file that can seek is exactly at the content
		if err != nil {
			return nil, fmt.Errorf("read archive: %w", err)
		}
		a.files[path.Clean(h.Name)] = section{at, h.Size}
	}
}

func (a *archive) open(name string) (io.ReadCloser, int64, error) {
	s, there := a.files[name]
	if !there {
		return nil, 0, fmt.Errorf("the archive lacks %s", name)
	}
	f, err := os.Open(a.path)
	if err != nil {
		return nil, 0, fmt.Errorf("read archive: %w", err)
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, s.at, s.size), f}, s.size, nil
}

func (a *archive) text(name string) ([]byte, error) {
	r, size, err := a.open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > maxText {
		return nil, fmt.Errorf("%s has %d octets, more than %d", name, size, maxText)
	}
	return io.ReadAll(r)
}

func (a *archive) docker() (all []named, err error) {
	opener := func() (io.ReadCloser, error) { return os.Open(a.path) }
	manifest, err := tarball.LoadManifest(opener)
	if err != nil {
		return nil, fmt.Errorf("manifest.json of the archive cannot be read: %w", err)
	}
	for _, d := range manifest {
		if len(d.RepoTags) == 0 {
			continue
		}
		tag, err := name.NewTag(d.RepoTags[0])
		if err != nil {
			return nil, fmt.Errorf("%q is no name of an image: %w", d.RepoTags[0], err)
		}
		image, err := tarball.Image(opener, &tag)
		if err != nil {
			return nil, fmt.Errorf("image %s of the archive cannot be read: %w", d.RepoTags[0], err)
		}
		n := named{image: image}
		for _, text := range d.RepoTags {
			parsed, err := parseName(text)
			if err != nil {
				return nil, err
			}
			n.names = append(n.names, parsed)
		}
		all = append(all, n)
	}
	if len(all) == 0 {
		return nil, errNone
	}
	return all, nil
}

// What tools write an image's name to, the whole one first (containerd's and podman's; OCI image-spec,
// annotations).
var nameAnnotations = []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"}

func (a *archive) oci() (all []named, err error) {
	var index v1.IndexManifest
	if err := a.decode("index.json", &index); err != nil {
		return nil, err
	}
	for _, d := range index.Manifests {
		i := slices.IndexFunc(nameAnnotations, func(key string) bool { return strings.ContainsAny(d.Annotations[key], ":/") })
		if i < 0 {
			continue // a tag alone names nothing
		}
		parsed, err := parseName(d.Annotations[nameAnnotations[i]])
		if err != nil {
			return nil, err
		}
		image, err := a.image(d)
		if err != nil {
			return nil, fmt.Errorf("image %s of the archive cannot be read: %w", parsed, err)
		}
		all = append(all, named{[]Name{parsed}, image})
	}
	if len(all) == 0 {
		return nil, errNone
	}
	return all, nil
}

func (a *archive) decode(name string, into any) error {
	text, err := a.text(name)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s of the archive cannot be read: %w", name, err)
	}
	return nil
}

func blobPath(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

// image is what a descriptor names; of an image for several platforms, the one for our nodes.
func (a *archive) image(d v1.Descriptor) (v1.Image, error) {
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
	raw, err := a.text(blobPath(d.Digest))
	if err != nil {
		return nil, err
	}
	c := &core{archive: a, raw: raw, mediaType: d.MediaType}
	if err := json.Unmarshal(raw, &c.manifest); err != nil {
		return nil, err
	}
	return partial.CompressedToImage(c)
}

// core is an image of an OCI layout, for partial.CompressedToImage.
type core struct {
	*archive
	raw       []byte
	manifest  v1.Manifest
	mediaType types.MediaType
}

func (c *core) RawManifest() ([]byte, error)        { return c.raw, nil }
func (c *core) MediaType() (types.MediaType, error) { return c.mediaType, nil }
func (c *core) RawConfigFile() ([]byte, error)      { return c.text(blobPath(c.manifest.Config.Digest)) }
func (c *core) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
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

func (l layer) Digest() (v1.Hash, error)            { return l.descriptor.Digest, nil }
func (l layer) Size() (int64, error)                { return l.descriptor.Size, nil }
func (l layer) MediaType() (types.MediaType, error) { return l.descriptor.MediaType, nil }
func (l layer) Compressed() (io.ReadCloser, error) {
	r, _, err := l.archive.open(blobPath(l.descriptor.Digest))
	return r, err
}
