package kube

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/daemon/bringup"
)

const (
	containerdDir = "/var/lib/containerd"
	// contentDir is where containerd keeps blobs, each under the digits of its digest.
	contentDir = containerdDir + "/io.containerd.content.v1.content/blobs/sha256"
	// sealed marks an image in containerd whose content and unpacked files are known to be on the
	// disk. containerd syncs what it downloads but not what it unpacks: after a power cut its
	// database may know files that are empty. Only a sync followed by this label makes an image count.
	sealed = "firstlight.dev/synced=true"
)

// descriptor is the part of an OCI descriptor that is needed here.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    json.RawMessage   `json:"platform,omitempty"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType,omitempty"`
	Manifests     []descriptor `json:"manifests"`
}

// name is the image's full name, as whoever built the layout wrote it down.
func (d descriptor) name() string { return d.Annotations["org.opencontainers.image.ref.name"] }

// held is an image as containerd has it.
type held struct {
	digest string
	sealed bool
}

// bundle reads which images the layout holds. One that is not there will not come; a read that failed
// may succeed the next time.
func bundle(dir string) ([]descriptor, error) {
	text, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, bringup.Permanent(fmt.Errorf("read image bundle: %w", err))
	} else if err != nil {
		return nil, fmt.Errorf("read image bundle: %w", err)
	}
	var ix index
	if err := json.Unmarshal(text, &ix); err != nil {
		return nil, bringup.Permanent(fmt.Errorf("read image bundle %s: %w", dir, err))
	}
	for _, m := range ix.Manifests {
		if m.name() == "" {
			return nil, bringup.Permanent(fmt.Errorf("read image bundle %s: manifest %s has no name", dir, m.Digest))
		}
	}
	return ix.Manifests, nil
}

// missing are the images of the bundle that containerd does not have as they should be.
func missing(want []descriptor, have map[string]held) []descriptor {
	return slices.DeleteFunc(slices.Clone(want), func(d descriptor) bool {
		return have[d.name()] == held{digest: d.Digest, sealed: true}
	})
}

// parseImages reads `ctr images list`: REF TYPE DIGEST SIZE UNIT PLATFORMS LABELS under a heading.
func parseImages(out string) map[string]held {
	have := map[string]held{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) >= 3 && strings.HasPrefix(f[2], "sha256:") {
			have[f[0]] = held{digest: f[2], sealed: slices.Contains(strings.Split(f[len(f)-1], ","), sealed)}
		}
	}
	return have
}

// controlPlane are the names of the images that the control plane itself is made of.
func controlPlane() []string {
	return []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "etcd", "coredns", "pause"}
}

// isControlPlane tells whether an image has to be there before the control plane can start.
func isControlPlane(d descriptor) bool {
	repository, _, _ := strings.Cut(d.name(), ":")
	return slices.Contains(controlPlane(), path.Base(repository))
}

// ofNodes are images that only nodes of clusters run: they are served to them, and not unpacked here.
func ofNodes() []string { return []string{"node", "metrics-server", "local-path-provisioner"} }

// isFurther tells whether an image can wait until the control plane runs.
func isFurther(d descriptor) bool {
	repository, _, _ := strings.Cut(d.name(), ":")
	return !isControlPlane(d) && !slices.Contains(ofNodes(), path.Base(repository))
}

// imageStage is a stage about some images of the bundle.
type imageStage struct {
	*Cluster
	belongs func(descriptor) bool
}

func (c imageStage) missingImages(ctx context.Context) ([]descriptor, error) {
	all, err := bundle(c.path(c.config().Images))
	if err != nil {
		return nil, err
	}
	want := slices.DeleteFunc(all, func(d descriptor) bool { return !c.belongs(d) })
	out, err := c.ctr(ctx, nil, "images", "list")
	if err != nil {
		return nil, err
	}
	return missing(want, parseImages(out)), nil
}

func (c imageStage) done(ctx context.Context) error {
	todo, err := c.missingImages(ctx)
	if err != nil {
		return err
	}
	if len(todo) > 0 {
		return fmt.Errorf("%d images are not in containerd, the first is %s", len(todo), todo[0].name())
	}
	return nil
}

// do imports what is missing in one stream, so that layers that images share are read once. An
// image that is there unsealed was cut off while it was unpacked: it goes first, with its files.
func (c imageStage) do(ctx context.Context, report bringup.Report) error {
	todo, err := c.missingImages(ctx)
	if err != nil || len(todo) == 0 {
		return err
	}
	names := make([]string, len(todo))
	for i, d := range todo {
		names[i] = d.name()
	}
	out, err := c.ctr(ctx, nil, "images", "list")
	if err != nil {
		return err
	}
	have := parseImages(out)
	torn := slices.DeleteFunc(slices.Clone(names), func(n string) bool { _, there := have[n]; return !there })
	if len(torn) > 0 {
		report(fmt.Sprintf("removing %d images whose import was cut off", len(torn)))
		if _, err := c.ctr(ctx, nil, append([]string{"images", "remove", "--sync"}, torn...)...); err != nil {
			return err
		}
	}
	if err := c.lend(todo); err != nil {
		return err
	}
	report(fmt.Sprintf("importing %d images", len(todo)))
	r, w := io.Pipe()
	go func() { w.CloseWithError(writeArchive(w, c.path(c.config().Images), todo)) }()
	_, err = c.ctr(ctx, r, "images", "import", "--local", "-")
	r.Close() // ends the writer if ctr went first
	if err != nil {
		return err
	}
	report("waiting for the disk")
	if err := syncFileSystem(c.path(containerdDir)); err != nil {
		return err
	}
	for _, name := range names {
		if _, err := c.ctr(ctx, nil, "images", "label", name, sealed); err != nil {
			return err
		}
	}
	return nil
}

// lend puts the layers of images into containerd's content store as links to the bundle. An import
// takes a blob that is there under its digest as read: so DATA is spared a second copy of what the
// stick holds already, and the import the time to write it. Whatever is there is left as it is.
func (c *Cluster) lend(images []descriptor) error {
	store := c.path(contentDir)
	if err := os.MkdirAll(store, 0o755); err != nil {
		return fmt.Errorf("lend layers to containerd: %w", err)
	}
	for _, image := range images {
		m, err := readManifest(c.path(c.config().Images), image)
		if err != nil {
			return err
		}
		for _, layer := range m.Layers {
			algorithm, hex, _ := strings.Cut(layer.Digest, ":")
			if algorithm != "sha256" || hex != filepath.Base(hex) {
				return bringup.Permanent(fmt.Errorf("lend layers of %s to containerd: digest %q is not sha256", image.name(), layer.Digest))
			}
			err := os.Symlink(blobPath(c.config().Images, layer.Digest), filepath.Join(store, hex))
			if err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("lend layers of %s to containerd: %w", image.name(), err)
			}
		}
	}
	return nil
}

func (c *Cluster) ctr(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	return c.Run(ctx, stdin, "ctr", append([]string{"--namespace", "k8s.io"}, args...)...)
}

// writeArchive writes the images of a layout as an OCI archive: each blob once.
func writeArchive(w io.Writer, dir string, images []descriptor) error {
	t := tar.NewWriter(w)
	put := func(name string, data []byte) error {
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err := t.Write(data)
		return err
	}
	if err := put("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	text, err := json.Marshal(index{SchemaVersion: 2, MediaType: "application/vnd.oci.image.index.v1+json", Manifests: images})
	if err != nil {
		return fmt.Errorf("encode index of images: %w", err)
	}
	if err := put("index.json", text); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, image := range images {
		m, err := readManifest(dir, image)
		if err != nil {
			return err
		}
		for _, d := range append([]descriptor{image, m.Config}, m.Layers...) {
			if seen[d.Digest] {
				continue
			}
			seen[d.Digest] = true
			if err := putBlob(t, dir, d.Digest); err != nil {
				return fmt.Errorf("read image %s: %w", image.name(), err)
			}
		}
	}
	return t.Close()
}

// imageManifest is the part of an OCI image manifest that is needed here.
type imageManifest struct {
	Config descriptor   `json:"config"`
	Layers []descriptor `json:"layers"`
}

func readManifest(dir string, image descriptor) (imageManifest, error) {
	text, err := os.ReadFile(blobPath(dir, image.Digest))
	if err != nil {
		return imageManifest{}, fmt.Errorf("read manifest of %s: %w", image.name(), err)
	}
	var m imageManifest
	if err := json.Unmarshal(text, &m); err != nil {
		return imageManifest{}, fmt.Errorf("read manifest of %s: %w", image.name(), err)
	}
	return m, nil
}

func putBlob(t *tar.Writer, dir, digest string) error {
	f, err := os.Open(blobPath(dir, digest))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	name := "blobs/" + strings.Replace(digest, ":", "/", 1)
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: info.Size(), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err = io.Copy(t, f)
	return err
}

func blobPath(dir, digest string) string {
	return filepath.Join(dir, "blobs", filepath.Clean("/"+strings.Replace(digest, ":", "/", 1)))
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
