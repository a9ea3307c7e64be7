// Package containers gives container images that were brought to the appliance's registry, under
// their own names, so that the nodes of clusters pull them as from anywhere else.
//
// An image comes as the archive that docker save, podman save or skopeo copy make: one in Docker's
// form (manifest.json) or an OCI layout in a tar (index.json). Its names are those that the archive
// says.
package containers

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Limits of what is believed of an archive: whoever may upload may send any.
const (
	maxFiles  = 10000
	maxPath   = 4096    // octets of a file's name
	maxText   = 1 << 20 // octets of a manifest or a configuration, which take up to ninety times as much memory
	maxNames  = 500     // of images
	maxName   = 512     // octets of one
	maxLayers = 500     // of one image; the kernel stacks no more
	maxWhy    = 1000    // octets of what is said of it
)

// archiveImage is an image of an archive.
type archiveImage struct {
	names []string
	id    string                   // sha256 of its configuration, as docker images shows it
	image func() (v1.Image, error) // reads its texts
}

// Name is an image's name, whole: registry, path and tag.
type Name struct{ Domain, Path, Tag string }

func (n Name) String() string { return n.Domain + "/" + n.Path + ":" + n.Tag }

// parseName completes a name as containerd does.
func parseName(text string) (Name, error) {
	if len(text) > maxName {
		return Name{}, fmt.Errorf("a name of an image has %d bytes, more than %d", len(text), maxName)
	}

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
		return Name{}, fmt.Errorf(
			"%q names a registry with a port, which cannot be served; give the image a name without one", text,
		)
	}

	return n, nil
}

// errNone says that an archive does not say what its image is called.
var errNone = errors.New("the archive names no image; write it with: docker save -o FILE NAME:TAG, or skopeo copy … docker-archive:FILE:NAME:TAG")

// contents is what an archive has.
type contents struct {
	images []archiveImage
	bundle *packedBundle // nil if it has none
}

// open reads which images an archive has and their names, and which bundle. Layers are read when they are asked for, and
// no further than until ctx ends. What it says of an archive that is none is meant for who brought it; an
// archive that could not be read is an fs.PathError.
func open(ctx context.Context, file string) (contents, error) {
	a, err := indexOf(ctx, file)
	if err != nil {
		return contents{}, err
	}

	var all contents
	switch {
	case a.files["manifest.json"].exists():
		all.images, err = a.dockerImages()
	case a.files["index.json"].exists():
		all, err = a.ociContents()
	default:
		err = errors.New("it is a tar archive without manifest.json and index.json, so it is no container image")
	}

	count := 0
	for _, n := range all.images {
		count += len(n.names)
	}

	switch {
	case err != nil:
		return contents{}, err
	case count == 0 && all.bundle == nil:
		return contents{}, errNone
	case count > maxNames:
		return contents{}, fmt.Errorf("it has %d names of images, more than %d; make several archives of it", count, maxNames)
	}

	return all, nil
}

// archive is where the files of a tar archive begin and how long they are.
type archive struct {
	ctx   context.Context // of whoever opened it
	path  string
	files map[string]section // of two with one name the first
}

// section is a file, or a link to another.
type section struct {
	at, size int64
	link     string
}

func (s section) exists() bool { return s.size > 0 || s.link != "" }

func indexOf(ctx context.Context, file string) (*archive, error) {
	a := &archive{ctx: ctx, path: file, files: map[string]section{}}
	f, err := openFile(ctx, file)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	end, err := f.length()
	if err != nil {
		return nil, err
	}

	t := tar.NewReader(f)
	for n := 0; ; n++ {
		h, err := t.Next()
		var unread *fs.PathError
		switch {
		case errors.Is(err, io.EOF):
			return a, nil
		case errors.As(err, &unread) || ctx.Err() != nil:
			return nil, fmt.Errorf("read archive: %w", err)
		case err != nil:
			return nil, errors.New("it is no tar archive, or a compressed one; write it with docker save or skopeo copy, uncompressed")
		case n == maxFiles:
			return nil, fmt.Errorf("it has more than %d files, so it is no container image", maxFiles)
		case len(h.Name) > maxPath || len(h.Linkname) > maxPath:
			return nil, fmt.Errorf(
				"the name of a file in it has more than %d bytes, so it is no container image", maxPath,
			)
		case isSparse(h):
			return nil, fmt.Errorf(
				"%q in it is a sparse file; write it with docker save or skopeo copy", shorten(h.Name),
			)
		}

		s := section{size: h.Size}
		switch h.Typeflag {
		case tar.TypeLink, tar.TypeSymlink:
			// As go-containerregistry's tarball follows them.
			s = section{link: path.Join(path.Dir(path.Clean(h.Name)), path.Clean(h.Linkname))}
		case tar.TypeDir, tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
			s = section{}
		}

		if s.at, err = f.Seek(
			0, io.SeekCurrent,
		); err != nil { // the reader of a file that can seek is exactly at the content
			return nil, fmt.Errorf("read archive: %w", err)
		}
		if s.size > end-s.at {
			return nil, fmt.Errorf("it ends within %q; it is truncated", shorten(h.Name))
		}

		if _, twice := a.files[path.Clean(h.Name)]; !twice {
			a.files[path.Clean(h.Name)] = s
		}
	}
}

// isSparse tells whether a file has holes that the archive does not have: it may be any number of
// times as long.
func isSparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func (a *archive) open(name string) (io.ReadCloser, int64, error) {
	s, there := a.files[path.Clean(name)]
	for links := 0; s.link != "" && links < 10; links++ {
		s, there = a.files[s.link]
	}

	if !there || s.link != "" {
		return nil, 0, fmt.Errorf("the archive lacks %q", shorten(name))
	}

	f, err := openFile(a.ctx, a.path)
	if err != nil {
		return nil, 0, err
	}

	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, s.at, s.size), f}, s.size, nil
}

func (a *archive) readText(name string) ([]byte, error) { return a.readUpTo(name, maxText) }

// readUpTo reads a file of the archive whole, if it has no more than so many bytes.
func (a *archive) readUpTo(name string, limit int64) ([]byte, error) {
	r, size, err := a.open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	if size > limit {
		return nil, fmt.Errorf("%q has %d bytes, more than %d", shorten(name), size, limit)
	}

	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read archive: %w", err)
	}

	return text, nil
}

// dockerImages reads what docker save writes. go-containerregistry reads texts whole and follows what they name:
// all of it was measured here before.
func (a *archive) dockerImages() (all []archiveImage, err error) {
	var manifest tarball.Manifest
	if err := a.decode("manifest.json", &manifest); err != nil {
		return nil, err
	}

	for _, d := range manifest {
		if len(d.RepoTags) == 0 {
			continue
		}
		if len(all) == maxNames {
			return nil, fmt.Errorf("it has more than %d images; make several archives of it", maxNames)
		}

		tag, err := name.NewTag(d.RepoTags[0])
		if err != nil {
			return nil, fmt.Errorf("%q is no name of an image: %w", shorten(d.RepoTags[0]), err)
		}

		id, err := a.readImageID(d)
		if err != nil {
			return nil, fmt.Errorf("image %s of the archive cannot be read: %w", shorten(d.RepoTags[0]), err)
		}

		n := archiveImage{id: id, image: func() (v1.Image, error) {
			return tarball.Image(func() (io.ReadCloser, error) { return openFile(a.ctx, a.path) }, &tag)
		}}
		for _, text := range d.RepoTags {
			parsed, err := parseName(text)
			if err != nil {
				return nil, err
			}
			n.names = append(n.names, parsed.String())
		}

		all = append(all, n)
	}

	return all, nil
}

// readImageID reads an image's configuration and returns its sha256.
func (a *archive) readImageID(d tarball.Descriptor) (id string, err error) {
	text, err := a.readText(d.Config)
	if err != nil {
		return "", err
	}

	var config struct {
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return "", fmt.Errorf("its configuration cannot be read: %w", err)
	}
	if n := max(len(d.Layers), len(config.RootFS.DiffIDs)); n > maxLayers {
		return "", fmt.Errorf("it has %d layers, more than %d", n, maxLayers)
	}

	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

func (a *archive) decode(name string, into any) error {
	text, err := a.readText(name)
	if err == nil {
		err = json.Unmarshal(text, into)
	}

	if err != nil {
		return fmt.Errorf("%s of the archive cannot be read: %w", name, err)
	}

	return nil
}
