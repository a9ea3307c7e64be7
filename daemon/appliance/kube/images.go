package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/layer"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// The container images of the stick lie unpacked on its read-only root, which the kernel checks while it is
// read. Nothing of them is copied, digested or unpacked: containerd is told of snapshots whose files are
// links into the root, and of images that are made of these.

const containerdDir = "/var/lib/containerd"

// synced marks an image of ours in containerd. It is given when all that belongs to the image is known to be
// on the disk: containerd's database is, but not the links.
const synced = label.Synced

// blob is a small part of an image that containerd stores: its configuration or its manifest.
type blob struct {
	imagespec.Descriptor
	data []byte
}

// snapshot is a layer as containerd knows it: by the chain of digests from the lowest layer up to it.
type snapshot struct {
	chain, parent string
	files         string // where its files are on the root
}

// image is an image of the stick as containerd shall have it.
type image struct {
	name             string
	manifest, config blob
	snapshots        []snapshot // the lowest first
}

// chain is the name of the snapshot that containers start from.
func (i image) chain() string { return i.snapshots[len(i.snapshots)-1].chain }

// heldImage is an image as containerd has it.
type heldImage struct {
	digest string
	synced bool
}

// ofNodes are images that only nodes of clusters run: they are served to them.
func ofNodes() []string {
	return []string{"node", "metrics-server", "local-path-provisioner", "machines", "ovn"}
}

// isOfNodes tells whether an image is none of those that the appliance runs.
func isOfNodes(name string) bool { return slices.Contains(ofNodes(), repository(name)) }

// repository is the name of an image without registry and tag.
func repository(name string) string {
	name, _, _ = strings.Cut(path.Base(name), ":")
	return name
}

// readImages reads which images the layout in dir holds for the appliance; unpacked is where containerd finds
// its layers. What is not there will not come; a read that failed may succeed the next time.
func readImages(dir, unpacked string) ([]image, error) {
	var index imagespec.Index
	if err := readJSON(filepath.Join(dir, "index.json"), &index); err != nil {
		return nil, fmt.Errorf("read image bundle: %w", err)
	}

	var all []image
	for _, m := range index.Manifests {
		name := m.Annotations[imagespec.AnnotationRefName]
		if name == "" {
			return nil, bringup.Permanent(fmt.Errorf("read image bundle %s: manifest %s has no name", dir, m.Digest))
		}
		if isOfNodes(name) {
			continue
		}

		i, err := readImage(dir, unpacked, name, m.Digest)
		if err != nil {
			return nil, fmt.Errorf("read image %s: %w", name, err)
		}

		all = append(all, i)
	}

	return all, nil
}

// readImage reads one image. The manifest that containerd gets names no layer: it has the files already,
// and looks for the archives of all layers that are named.
func readImage(dir, unpacked, name string, manifest digest.Digest) (image, error) {
	var served imagespec.Manifest
	if err := readBlob(dir, manifest, &served); err != nil {
		return image{}, err
	}

	var config imagespec.Image
	if err := readBlob(dir, served.Config.Digest, &config); err != nil {
		return image{}, err
	}

	ids := config.RootFS.DiffIDs
	if len(ids) == 0 {
		return image{}, bringup.Permanent(errors.New("it has no layers"))
	}

	i := image{name: name, config: blob{Descriptor: served.Config}}
	var err error
	if i.config.data, err = os.ReadFile(blobPath(dir, served.Config.Digest)); err != nil {
		return image{}, err
	}

	served.Layers, served.Annotations = []imagespec.Descriptor{}, nil
	if i.manifest.data, err = json.Marshal(served); err != nil {
		return image{}, fmt.Errorf("encode manifest: %w", err)
	}

	i.manifest.Descriptor = imagespec.Descriptor{MediaType: imagespec.MediaTypeImageManifest,
		Digest: digest.FromBytes(i.manifest.data), Size: int64(len(i.manifest.data))}
	for n, id := range ids {
		s := snapshot{
			chain: identity.ChainID(ids[:n+1]).String(),
			files: path.Join(unpacked, id.Encoded(), layer.Files),
		}
		if n > 0 {
			s.parent = i.snapshots[n-1].chain
		}

		if _, err := os.Stat(filepath.Join(dir, layer.Dir, id.Encoded(), layer.Files)); err != nil {
			return image{}, permanentIfMissing(fmt.Errorf("layer %s is not unpacked: %w", id, err))
		}

		i.snapshots = append(i.snapshots, s)
	}

	return i, nil
}

func readBlob(dir string, d digest.Digest, into any) error {
	if err := d.Validate(); err != nil {
		return bringup.Permanent(fmt.Errorf("digest %q: %w", d, err))
	}
	return readJSON(blobPath(dir, d), into)
}

func blobPath(dir string, d digest.Digest) string {
	return filepath.Join(dir, imagespec.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}

func readJSON(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return permanentIfMissing(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return bringup.Permanent(fmt.Errorf("read %s: %w", file, err))
	}

	return nil
}

// permanentIfMissing makes an error permanent if it says that something is not there.
func permanentIfMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return bringup.Permanent(err)
	}
	return err
}

// layersPath is where containerd finds the layers: on the root itself, so that containers lie one file
// system above it and not two.
func (c *Cluster) layersPath() string {
	dir := path.Join(c.config().Images, layer.Dir)
	if bare := path.Join(stick.LowerDir, dir); c.exists(bare) {
		return bare
	}
	return dir
}

// isLinked tells whether the files of a snapshot in containerd are those of the root.
func (c *Cluster) isLinked(at, files string) bool {
	to, err := os.Readlink(c.path(at))
	return err == nil && to == files && c.exists(files)
}

// link makes the files of a snapshot those of the root. What is there otherwise is empty, or was unpacked by
// an earlier version.
func (c *Cluster) link(at, files string) error {
	if at == "" || !path.IsAbs(at) || !strings.HasPrefix(at, containerdDir+"/") {
		return fmt.Errorf("link layer %s: containerd says that its snapshot is at %q", files, at)
	}
	if c.isLinked(at, files) {
		return nil
	}
	if err := os.RemoveAll(c.path(at)); err != nil {
		return fmt.Errorf("link layer: %w", err)
	}
	if err := os.Symlink(files, c.path(at)); err != nil {
		return fmt.Errorf("link layer: %w", err)
	}

	return nil
}

// state is what containerd has.
type state struct {
	images    map[string]heldImage // by name
	snapshots map[string]string    // committed ones: name to where their files are
}

// missingImages are the images that containerd does not have as they should be; linked tells whether a snapshot's
// files are those of the root.
func missingImages(want []image, have state, linked func(at, files string) bool) []image {
	return slices.DeleteFunc(slices.Clone(want), func(i image) bool {
		return have.images[i.name] == heldImage{digest: i.manifest.Digest.String(), synced: true} &&
			!slices.ContainsFunc(
				i.snapshots, func(s snapshot) bool { return !linked(have.snapshots[s.chain], s.files) },
			)
	})
}

// foreignImages are the names of images of ours that another stick had: their files are not here. The container
// runtime interface keeps a second name for each image, which goes with it.
func foreignImages(want []image, have map[string]heldImage) []string {
	names, digests, old := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, i := range want {
		names[i.name], digests[i.manifest.Digest.String()] = true, true
	}

	for name, h := range have {
		if (h.synced || names[name]) && !digests[h.digest] {
			old[h.digest] = true
		}
	}

	var gone []string
	for name, h := range have {
		if !names[name] && (h.synced || old[h.digest]) {
			gone = append(gone, name)
		}
	}

	slices.Sort(gone)
	return gone
}

func (c *Cluster) imagesDone(ctx context.Context) error {
	want, err := readImages(c.path(c.config().Images), c.layersPath())
	if err != nil {
		return err
	}
	return c.containerd(func(d *containerd) error {
		have, err := d.state(ctx)
		if err != nil {
			return err
		}
		if todo := missingImages(want, have, c.isLinked); len(todo) > 0 {
			return fmt.Errorf("%d images are not in containerd, the first is %s", len(todo), todo[0].name)
		}

		return nil
	})
}

// imagesDo gives containerd the images that are missing. The image itself comes last, when the rest is on
// the disk: what a power cut leaves half made has no name.
func (c *Cluster) imagesDo(ctx context.Context, report bringup.Report) error {
	want, err := readImages(c.path(c.config().Images), c.layersPath())
	if err != nil {
		return err
	}
	return c.containerd(func(d *containerd) error {
		have, err := d.state(ctx)
		if err != nil {
			return err
		}

		todo := missingImages(want, have, c.isLinked)
		report(fmt.Sprintf("linking %d images", len(todo)))
		return d.withLease(ctx, c.Now(), func(ctx context.Context) error {
			for _, i := range todo {
				if err := c.importImage(ctx, d, i, have); err != nil {
					return fmt.Errorf("give containerd image %s: %w", i.name, err)
				}
			}

			if err := syncFileSystem(c.path(containerdDir)); err != nil {
				return err
			}

			for _, name := range foreignImages(want, have.images) {
				if err := d.removeImage(ctx, name); err != nil {
					return err
				}
			}

			for _, i := range todo {
				if err := d.name(ctx, i); err != nil {
					return err
				}
			}

			return nil
		})
	})
}

// importImage gives containerd all of an image but its name. What it has of it is in have, which is kept.
func (c *Cluster) importImage(ctx context.Context, d *containerd, i image, have state) error {
	for _, s := range i.snapshots {
		if have.snapshots[s.chain] == "" {
			at, err := d.snapshot(ctx, s)
			if err != nil {
				return err
			}
			have.snapshots[s.chain] = at
		}
		if err := c.link(have.snapshots[s.chain], s.files); err != nil {
			return err
		}
	}
	if err := d.putBlob(ctx, i.config, map[string]string{refSnapshot: i.chain()}); err != nil {
		return err
	}
	return d.putBlob(ctx, i.manifest, map[string]string{refConfig: i.config.Digest.String()})
}

// syncFileSystem waits until all that was written to the file system of dir is on its disk.
func syncFileSystem(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	defer f.Close()

	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}

	return nil
}
