package pack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// archives are images that were brought as files. OCI archives are unpacked: their blobs are read in any order.
type archives struct {
	byName   map[string]func() (v1.Image, error)
	byDigest map[string]func() (v1.Image, error)
	unpacked []string
}

func openArchives(paths []string) (*archives, error) {
	a := &archives{byName: map[string]func() (v1.Image, error){}, byDigest: map[string]func() (v1.Image, error){}}
	for _, p := range paths {
		if err := a.open(p); err != nil {
			return nil, errors.Join(fmt.Errorf("read images of %s: %w", p, err), a.Close())
		}
	}
	return a, nil
}

// Close removes what was unpacked.
func (a *archives) Close() error {
	var failed []error
	for _, dir := range a.unpacked {
		failed = append(failed, os.RemoveAll(dir))
	}
	return errors.Join(failed...)
}

// find is an image of the archives; nil if none has it.
func (a *archives) find(n reference.Named) (v1.Image, error) {
	get := a.byName[n.String()]
	if d, is := n.(reference.Digested); is {
		get = a.byDigest[d.Digest().String()]
	}
	if get == nil {
		return nil, nil
	}
	image, err := get()
	if err != nil {
		return nil, err
	}
	return image, checkPlatform(image)
}

func (a *archives) open(p string) error {
	info, err := os.Stat(p)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return a.addLayout(p)
	}

	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(p) })
	if err == nil {
		return a.addDocker(p, manifest)
	}
	dir, err := os.MkdirTemp(filepath.Dir(p), ".unpacked-")
	if err != nil {
		return err
	}
	a.unpacked = append(a.unpacked, dir)
	if err := unpack(p, dir); err != nil {
		return err
	}
	return a.addLayout(dir)
}

// addDocker adds the images that docker save, podman save or skopeo wrote.
func (a *archives) addDocker(p string, manifest tarball.Manifest) error {
	for _, d := range manifest {
		for _, text := range d.RepoTags {
			n, err := parseName(text)
			if err != nil {
				return err
			}
			tag, err := name.NewTag(text)
			if err != nil {
				return err
			}
			a.byName[n.String()] = func() (v1.Image, error) { return tarball.ImageFromPath(p, &tag) }
		}
	}
	return nil
}

// nameAnnotations are where tools write an image's name, the whole one first.
var nameAnnotations = []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"}

func (a *archives) addLayout(dir string) error {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	all, err := index.IndexManifest()
	if err != nil {
		return err
	}

	for _, d := range all.Manifests {
		get := func() (v1.Image, error) { return imageOf(index, d) }
		a.byDigest[d.Digest.String()] = get
		for _, key := range nameAnnotations {
			if text := d.Annotations[key]; strings.ContainsAny(text, ":/") {
				n, err := parseName(text)
				if err != nil {
					return err
				}
				a.byName[n.String()] = get
			}
		}
	}
	return nil
}

// imageOf is what a descriptor names; of an image for several platforms, the one for the nodes.
func imageOf(index v1.ImageIndex, d v1.Descriptor) (v1.Image, error) {
	if !d.MediaType.IsIndex() {
		return index.Image(d.Digest)
	}

	inner, err := index.ImageIndex(d.Digest)
	if err != nil {
		return nil, err
	}
	all, err := inner.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, m := range all.Manifests {
		if m.Platform != nil && m.Platform.Satisfies(platform) {
			return inner.Image(m.Digest)
		}
	}
	return nil, fmt.Errorf("it has none for %s", platform)
}

// unpack unpacks the files of an OCI archive, and nothing outside of dir.
func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()

	for t := tar.NewReader(f); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("it is no archive of images, or a compressed one: %w", err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := unpackFile(root, path.Clean(h.Name), t); err != nil {
			return err
		}
	}
}

func unpackFile(root *os.Root, name string, from io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := root.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
