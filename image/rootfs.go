package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/assets/extent"
	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/disk/verity"
	"firstlight.dev/firstlight/image/extents"
	"firstlight.dev/firstlight/image/recipe"
	"firstlight.dev/firstlight/image/tree"
)

// The appliance's root file system is made in two steps. Its base is everything but the
// programs that change with every commit: compressing it takes most of a build, so it is kept
// in the cache. Those programs are appended to a copy of it; the result is one squashfs with
// one hash tree, and a boot sees no difference.

// splitRoot is the appliance's root without the programs that are appended, and these: program to path.
func (b *build) splitRoot() (base *recipe.Root, appended map[string]string) {
	whole := b.r.Root(b.r.Stick.Root)
	root := *whole
	root.Programs, appended = map[string]string{}, map[string]string{}
	for name, at := range whole.Programs {
		if b.r.Stick.Appended != "" && strings.HasPrefix(at, b.r.Stick.Appended+"/") {
			appended[name] = at
		} else {
			root.Programs[name] = at
		}
	}
	return &root, appended
}

// baseInputs are what the base of the root file system is made from.
func (b *build) baseInputs() (Inputs, error) {
	root, _ := b.splitRoot()
	in, err := b.rootInputs(root)
	if err != nil {
		return nil, err
	}
	if in["the code that makes it"], err = b.codeDigest(codeOfRoot); err != nil {
		return nil, err
	}
	in["tools"] = b.packages[b.r.Stick.Tools].Digest
	for i := range b.r.Images {
		image := b.r.Images[i]
		image.Pos = recipe.Pos{}
		config, err := json.Marshal(image)
		if err != nil {
			return nil, err
		}
		in["layer of image "+image.Name] = b.layers[image.Name].Digest
		in["settings of image "+image.Name] = cache.Key(string(config))
	}
	for _, a := range b.r.Artifacts {
		in["artifact "+a.Name] = b.files[a.Name].Digest
		in["path of artifact "+a.Name] = a.To
	}
	return in, nil
}

// baseTree is everything on the appliance's root file system but what is appended.
func (b *build) baseTree() (*tree.Tree, error) {
	root, appended := b.splitRoot()
	t, err := b.rootTree(root)
	if err != nil {
		return nil, err
	}
	if err := nameVersion(t); err != nil {
		return nil, err
	}
	if err := b.addImages(t); err != nil {
		return nil, err
	}
	if err := b.addArtifacts(t); err != nil {
		return nil, err
	}
	if n := t.Get(b.r.Stick.Appended); len(appended) > 0 && n != nil {
		return nil, fmt.Errorf("make root file system: %s is appended and comes from %s as well; choose another name", b.r.Stick.Appended, n.From)
	}
	return t, nil
}

// addArtifacts puts the artifacts into the tree of the root.
func (b *build) addArtifacts(t *tree.Tree) error {
	var shared []*recipe.Artifact // when all that they may share is there
	for i := range b.r.Artifacts {
		a := &b.r.Artifacts[i]
		var err error
		switch a.Kind {
		case recipe.KindPackages:
			err = b.addPool(t, a)
		case recipe.KindDisk, recipe.KindInitramfs:
			shared = append(shared, a)
		default:
			err = t.HostFile(a.To, 0o644, b.files[a.Name].Path, "artifact "+a.Name)
		}
		if err != nil {
			return err
		}
	}

	for _, a := range shared {
		if err := b.addShared(t, a); err != nil {
			return err
		}
		if a.Kind != recipe.KindDisk {
			continue
		}
		sum := fmt.Appendf(nil, "%s  %s\n", b.files[a.Name].Digest, path.Base(a.To))
		if err := t.File(a.To+".sha256", 0o644, tree.Bytes(sum), "artifact "+a.Name); err != nil {
			return err
		}
	}
	return nil
}

// sharedDirs are where an artifact may have its extents. The appliance changes nothing there while it runs.
var sharedDirs = []string{"/boot", "/usr"}

// addShared puts an artifact into the tree without what the tree's files hold as well (package extent).
func (b *build) addShared(t *tree.Tree, a *recipe.Artifact) error {
	from, file := "artifact "+a.Name, b.files[a.Name].Path
	all, err := extents.Find(t, sharedDirs, file)
	if err != nil {
		return a.Errorf("%v", err)
	}
	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("put %s: %w", a.To, err)
	}
	own := extents.Own{Path: file, Length: info.Size(), Shared: all}
	if err := t.File(a.To+extent.SuffixOwn, 0o644, own, from); err != nil {
		return err
	}
	return t.File(a.To+extent.SuffixExtents, 0o644, tree.Bytes(extent.Encode(all)), from)
}

func (b *build) buildBase(ctx context.Context) (cache.Item, error) {
	in, err := b.baseInputs()
	if err != nil {
		return cache.Item{}, err
	}
	return b.makePart(ctx, "root file system", "", in, func(out string) error {
		t, err := b.baseTree()
		if err != nil {
			return err
		}
		r, w := io.Pipe()
		go func() { w.CloseWithError(t.WriteTar(w)) }()
		defer r.Close()
		return disk.Squashfs(ctx, b.tool("bin/mksquashfs"), r, out, time.Unix(b.l.Epoch, 0))
	})
}

// latePrograms are the programs that nothing but the end of the root file system needs.
func (b *build) latePrograms() []string {
	_, appended := b.splitRoot()
	uses := map[string]int{b.r.Stick.Init: 1}
	for _, root := range b.r.Roots {
		for name := range root.Programs {
			uses[name]++
		}
	}
	for _, image := range b.r.Images {
		for name := range image.Programs {
			uses[name]++
		}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(appended)), func(name string) bool { return uses[name] > 1 })
}

// buildLate compiles the late programs. The compiler's last step, linking, keeps one
// processor busy: if there is something to compile, the base is meanwhile copied to where
// the stick will come into being, unless that will be the image of the build before.
func (b *build) buildLate(ctx context.Context, late []string, kernel, base cache.Item) error {
	group, ctx := errgroup.WithContext(ctx)
	if !b.planOnly && b.willCompile(late...) {
		if err := os.MkdirAll(filepath.Dir(b.Out), 0o755); err != nil {
			return fmt.Errorf("write stick: %w", err)
		}
		s, err := b.stickLayout(ctx, kernel)
		if err != nil {
			return err
		}
		at, err := s.RootOffset()
		if err != nil {
			return err
		}
		if s, ok := b.readStamp(); !ok || !s.hasRoot(base, at) || !b.samePerm() || !disk.IsUnused(b.Out) { // else the base lies there already
			b.basePlaced = true
			group.Go(func() error { return b.placeBase(base.Path, disk.PartPath(b.Out), at) })
		}
	}
	group.Go(func() error {
		return b.buildPrograms(ctx, func(name string) bool { return slices.Contains(late, name) })
	})
	return group.Wait()
}

func (b *build) placeBase(base, file string, at int64) error {
	// What a killed build left there has the permissions of that build.
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("make root file system: %w", err)
	}
	if err := copyFile(base, file, at, b.outputMode()); err != nil {
		return fmt.Errorf("make root file system: %w", err)
	}
	return nil
}

// placeRoot makes the whole root file system in file from byte at on, where file ends: the base,
// what is appended, and the hash tree, whose root hash it returns with the size of it all. It is
// not kept in the cache: it is made in seconds and differs with every commit. known is what is known
// of the blocks of the base.
func (b *build) placeRoot(ctx context.Context, base, file string, at int64, known verity.Known) (rootHash string, size int64, err error) {
	if !b.basePlaced {
		if err := b.placeBase(base, file, at); err != nil {
			return "", 0, err
		}
	}
	if _, appended := b.splitRoot(); len(appended) > 0 {
		if err := b.appendPrograms(ctx, appended, file, at); err != nil {
			return "", 0, err
		}
	}
	return disk.Seal(ctx, file, at, known)
}

// appendPrograms appends programs to the file system that file holds from byte at on.
func (b *build) appendPrograms(ctx context.Context, programs map[string]string, file string, at int64) error {
	dir, err := os.MkdirTemp(filepath.Dir(file), ".appended-")
	if err != nil {
		return fmt.Errorf("append programs: %w", err)
	}
	defer os.RemoveAll(dir)
	for name, path := range programs {
		to := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return fmt.Errorf("append program %s: %w", name, err)
		}
		if err := copyFile(b.programs[name].Path, to, 0, 0o755); err != nil {
			return fmt.Errorf("append program %s: %w", name, err)
		}
		for made := to; made != dir; made = filepath.Dir(made) { // whatever the umask is
			if err := os.Chmod(made, 0o755); err != nil {
				return fmt.Errorf("append program %s: %w", name, err)
			}
		}
	}
	return disk.Append(ctx, b.tool("bin/mksquashfs"), filepath.Join(dir, b.r.Stick.Appended), file, at, time.Unix(b.l.Epoch, 0))
}

// copyFile makes a file whose content begins at byte at, behind a hole. Go leaves copying to
// the kernel (copy_file_range).
func copyFile(from, to string, at int64, perm os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, perm)
	if err != nil {
		return err
	}
	if _, err = out.Seek(at, io.SeekStart); err == nil {
		_, err = io.Copy(out, in)
	}
	return errors.Join(err, out.Close())
}
