package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/layer"
)

// Where the registry library keeps things (its package storage, "pathFor").
const (
	blobsRoot        = "/docker/registry/v2/blobs"
	repositoriesRoot = "/docker/registry/v2/repositories"
)

// entry is a file or directory of the bundle as the registry library would have stored it.
type entry struct {
	children []string // of a directory: their whole paths, sorted
	file     string   // the blob in the layout, or
	layer    fs.FS    // the directory of an unpacked layer, or
	content  []byte   // the text of a link
	size     int64
}

func (e *entry) isDir() bool { return e.file == "" && e.layer == nil && e.content == nil }

// imageLayout shows the OCI layout of the stick in the registry library's own storage format, so that
// nothing of it is stored twice. It is read once: the layout lies on a read-only file system.
type imageLayout struct {
	dir     string
	made    time.Time
	entries map[string]*entry
	images  map[string]digest.Digest // repository:tag
}

// openLayout reads the layout in dir. A layout that is not there is an empty bundle: the appliance may
// carry none, and still store what is pushed.
func openLayout(dir string) (*imageLayout, error) {
	b := &imageLayout{dir: dir, entries: map[string]*entry{}, images: map[string]digest.Digest{}}
	b.directory(blobsRoot)
	b.directory(repositoriesRoot)
	name := filepath.Join(dir, "index.json")
	text, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return b, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read image bundle: %w", err)
	}

	if info, err := os.Stat(name); err == nil {
		b.made = info.ModTime()
	}

	var index imagespec.Index
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("read image bundle %s: %w", dir, err)
	}

	for _, d := range index.Manifests {
		full := d.Annotations[imagespec.AnnotationRefName]
		repository, tag, err := split(full)
		if err != nil {
			return nil, fmt.Errorf("read image bundle %s: %w", dir, err)
		}
		if err := b.addImage(repository, d); err != nil {
			return nil, fmt.Errorf("read image %s: %w", full, err)
		}

		tags := path.Join(repositoriesRoot, repository, "_manifests/tags", tag)
		b.addLink(path.Join(tags, "current"), d.Digest)
		b.addLink(path.Join(tags, "index/sha256", d.Digest.Encoded()), d.Digest)
		b.images[repository+":"+tag] = d.Digest
	}

	for _, e := range b.entries {
		slices.Sort(e.children)
	}

	return b, nil
}

// split takes firstlight.internal/NAME:TAG apart.
func split(full string) (repository, tag string, err error) {
	rest, ours := strings.CutPrefix(full, assets.ImageDomain+"/")
	repository, tag, tagged := strings.Cut(rest, ":")
	if !ours || !tagged || repository == "" || tag == "" {
		return "", "", fmt.Errorf("image name %q is not %s/NAME:TAG", full, assets.ImageDomain)
	}

	return repository, tag, nil
}

// addImage adds a manifest, or an index with its manifests, and all that they name.
func (b *imageLayout) addImage(repository string, d imagespec.Descriptor) error {
	if err := b.addBlob(d); err != nil {
		return err
	}

	b.addLink(path.Join(repositoriesRoot, repository, "_manifests/revisions/sha256", d.Digest.Encoded()), d.Digest)
	text, err := os.ReadFile(b.blobFile(d.Digest))
	if err != nil {
		return err
	}

	var m struct {
		Config    *imagespec.Descriptor  `json:"config"`
		Layers    []imagespec.Descriptor `json:"layers"`
		Manifests []imagespec.Descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("read manifest %s: %w", d.Digest, err)
	}

	for _, inner := range m.Manifests {
		if err := b.addImage(repository, inner); err != nil {
			return err
		}
	}

	if m.Config != nil {
		m.Layers = append(m.Layers, *m.Config)
	}

	for _, part := range m.Layers {
		if err := b.addBlob(part); err != nil {
			return err
		}
		b.addLink(path.Join(repositoriesRoot, repository, "_layers/sha256", part.Digest.Encoded()), part.Digest)
	}

	return nil
}

// addBlob adds a blob of the layout, which is a file or an unpacked layer; its size is that of what is there,
// which the image's hash tree vouches for.
func (b *imageLayout) addBlob(d imagespec.Descriptor) error {
	if err := d.Digest.Validate(); err != nil {
		return fmt.Errorf("digest %q: %w", d.Digest, err)
	}

	hex := d.Digest.Encoded()
	as := path.Join(blobsRoot, d.Digest.Algorithm().String(), hex[:2], hex, "data")
	if b.entries[as] != nil {
		return nil
	}

	file := b.blobFile(d.Digest)
	info, err := os.Stat(file)
	if err == nil {
		b.add(as, &entry{file: file, size: info.Size()})
		return nil
	}

	dir, size, unpacked := openLayer(filepath.Join(b.dir, layer.Dir, hex))
	if unpacked != nil {
		return errors.Join(err, unpacked)
	}

	b.add(as, &entry{layer: dir, size: size})
	return nil
}

func (b *imageLayout) blobFile(d digest.Digest) string {
	return filepath.Join(b.dir, "blobs", d.Algorithm().String(), d.Encoded())
}

func (b *imageLayout) addLink(dir string, d digest.Digest) {
	b.add(path.Join(dir, "link"), &entry{content: []byte(d), size: int64(len(d))})
}

func (b *imageLayout) add(name string, e *entry) {
	if _, there := b.entries[name]; there {
		return
	}

	b.entries[name] = e
	parent := b.directory(path.Dir(name))
	parent.children = append(parent.children, name)
}

// directory returns a directory, made with those above it.
func (b *imageLayout) directory(name string) *entry {
	if e := b.entries[name]; e != nil {
		return e
	}

	e := &entry{}
	b.entries[name] = e
	if name != "/" {
		parent := b.directory(path.Dir(name))
		parent.children = append(parent.children, name)
	}

	return e
}

// hasRepository tells whether a repository is the bundle's.
func (b *imageLayout) hasRepository(repository string) bool {
	return b.entries[path.Join(repositoriesRoot, repository, "_manifests")] != nil
}
