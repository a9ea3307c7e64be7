package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/layer"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/disk/mkfs"
	"firstlight.dev/firstlight/image/media"
)

const share = "usr/share/firstlight"

// parts of the root, each a name and its paths. What is in none of them is the rest.
var parts = []struct {
	name  string
	paths []string
}{
	{"drivers", []string{"usr/lib/modules"}},
	{"Kubernetes and CNI programs", []string{"usr/lib/firstlight"}},
	{"container runtime", []string{"usr/bin/containerd*", "usr/bin/ctr", "usr/sbin/runc"}},
	{"nodes' system", []string{share + "/images/os"}},
	{"nodes' deploy ramdisk", []string{share + "/ramdisk"}},
	{"our daemon", []string{"firstlight"}},
}

// measureSizes measures what the image weighs compressed, and what each part of its root weighs as a
// squashfs of its own with the image's options.
func measureSizes(ctx context.Context, top, dir string) ([]bench.Row, error) {
	path := imageOf(top)
	whole, err := compressedSize(path)
	if err != nil {
		return nil, err
	}
	root := filepath.Join(dir, "root")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := unpackRoot(ctx, path, root); err != nil {
		return nil, err
	}
	const alone = "as squashfs of its own, options as in the image"
	size := bench.Row{Name: "image/size", Unit: "MiB", Ours: whole, Note: "the compressed image"}
	rows := []bench.Row{size.Less("bar", limit, 1)}
	counted := map[uint64]bool{}
	add := func(name string, paths []string) error {
		if err := removeCounted(paths, counted); err != nil {
			return err
		}
		size, err := squashfsSize(ctx, dir, paths)
		rows = append(rows, bench.Row{Name: "image/size: " + name, Unit: "MiB", Ours: size, Note: alone})
		for _, p := range paths {
			err = errors.Join(err, os.RemoveAll(p))
		}
		return err
	}
	for _, part := range parts {
		var found []string
		for _, pattern := range part.paths {
			match, err := filepath.Glob(filepath.Join(root, pattern))
			if err != nil {
				return nil, err
			}
			found = append(found, match...)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("measure size of %s: the image has nothing at %s", part.name, strings.Join(part.paths, ", "))
		}
		if err := add(part.name, found); err != nil {
			return nil, err
		}
	}
	layers, err := layersOf(filepath.Join(root, share, "images"))
	if err != nil {
		return nil, err
	}
	for _, l := range layers {
		if err := add("layer of "+l.image, []string{l.dir}); err != nil {
			return nil, err
		}
	}
	return rows, add("the rest of Debian", []string{root})
}

// compressedSize is the size of what lies compressed beside an image, in MiB.
func compressedSize(image string) (float64, error) {
	info, err := os.Stat(image + media.SuffixZstd)
	if err != nil {
		return 0, fmt.Errorf("%w; run firstlight build first", err)
	}
	return toMiB(info.Size()), nil
}

// unpackRoot unpacks ROOT-A, which needs no privileges: owners are not looked at.
func unpackRoot(ctx context.Context, path, to string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	table, err := gpt.ReadPrimary(f)
	if err != nil {
		return err
	}
	p, ok := table.Find(stick.PartitionRootA)
	if !ok {
		return fmt.Errorf("unpack %s: no partition %s", path, stick.PartitionRootA)
	}
	_, err = runTimed(ctx, "", nil, "unsquashfs", "-no-progress", "-quiet", "-no-xattrs", "-ignore-errors", "-no-exit-code", "-offset", fmt.Sprint(p.Offset()), "-dest", to, path)
	return err
}

// squashfsSize is the size of a squashfs of some files, in MiB.
func squashfsSize(ctx context.Context, dir string, paths []string) (float64, error) {
	out := filepath.Join(dir, "part.squashfs")
	args := append(append(slices.Clone(paths), out, "-noappend", "-no-progress", "-quiet"), mkfs.Compression...)
	if _, err := runTimed(ctx, "", nil, "mksquashfs", args...); err != nil {
		return 0, err
	}
	info, err := os.Stat(out)
	if err != nil {
		return 0, err
	}
	return toMiB(info.Size()), nil
}

func toMiB(n int64) float64 { return float64(n) / (1 << 20) }

// removeCounted removes the files that are hard links to what another part has, and notes the others.
func removeCounted(paths []string, counted map[uint64]bool) error {
	var own []uint64
	for _, top := range paths {
		err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			inode := info.Sys().(*syscall.Stat_t).Ino
			if counted[inode] {
				return os.Remove(p)
			}
			own = append(own, inode)
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, inode := range own {
		counted[inode] = true
	}
	return nil
}

// unpackedImage is one file system of container images.
type unpackedImage struct{ image, dir string }

// layersOf lists the layers of an OCI layout, each once, by the first image that has it.
func layersOf(dir string) ([]unpackedImage, error) {
	var index, manifest struct {
		Manifests []struct {
			Digest      string
			Annotations map[string]string
		}
		Layers []struct{ Digest string }
	}
	blob := func(digest string) string {
		return filepath.Join(dir, "blobs", strings.Replace(digest, ":", "/", 1))
	}
	read := func(file string, into any) error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return json.Unmarshal(text, into)
	}
	if err := read(filepath.Join(dir, "index.json"), &index); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var layers []unpackedImage
	for _, m := range index.Manifests {
		manifest.Layers = nil
		if err := read(blob(m.Digest), &manifest); err != nil {
			return nil, err
		}
		name := m.Annotations["org.opencontainers.image.ref.name"]
		for _, l := range manifest.Layers {
			if !seen[l.Digest] {
				seen[l.Digest] = true
				layers = append(layers, unpackedImage{filepath.Base(name), filepath.Join(dir, layer.Dir, strings.TrimPrefix(l.Digest, "sha256:"))})
			}
		}
	}
	return layers, nil
}
