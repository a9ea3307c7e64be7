package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/assets/verity"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/disk/mkfs"
)

// The appliance's root file system is made in two steps. Its base is everything but the
// programs that change with every commit: compressing it takes most of a build, so it is kept
// in the cache. Those programs are appended to a copy of it; the result is one squashfs with
// one hash tree, and a boot sees no difference.

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

// makeLate compiles the late programs. The compiler's last step, linking, keeps one
// processor busy: if there is something to compile, the base is meanwhile copied to where
// the stick will come into being, unless that will be the image of the build before.
func (b *build) makeLate(ctx context.Context, late []Part) error {
	group, ctx := errgroup.WithContext(ctx)
	if !b.planOnly && slices.ContainsFunc(late, func(p Part) bool { return !b.isCached(p) }) {
		if err := os.MkdirAll(filepath.Dir(b.Out), 0o755); err != nil {
			return fmt.Errorf("write stick: %w", err)
		}

		layout, err := b.stickLayout(ctx, b.made)
		if err != nil {
			return err
		}

		at, err := layout.RootOffset()
		if err != nil {
			return err
		}

		base := b.made[kindBase]
		s, ok := b.readStamp()
		if !ok || !s.hasRoot(base, at) || !b.samePerm() || !disk.IsUnused(b.Out) { // else the base lies there already
			b.basePlaced = true
			group.Go(func() error { return b.placeBase(base.Path, disk.PartPath(b.Out), at) })
		}
	}

	group.Go(func() error {
		for _, p := range late {
			if err := b.makePart(ctx, p); err != nil {
				return err
			}
		}
		return nil
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
func (b *build) placeRoot(
	ctx context.Context, from Made, file string, at int64, known verity.Known,
) (rootHash string, size int64, err error) {
	if !b.basePlaced {
		if err := b.placeBase(from.path(kindBase), file, at); err != nil {
			return "", 0, err
		}
	}
	if _, appended := b.splitRoot(); len(appended) > 0 {
		if err := b.appendPrograms(ctx, from, appended, file, at); err != nil {
			return "", 0, err
		}
	}
	return disk.Seal(ctx, file, at, known)
}

// appendPrograms appends programs to the file system that file holds from byte at on.
func (b *build) appendPrograms(
	ctx context.Context, from Made, programs map[string]string, file string, at int64,
) error {
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
		if err := copyFile(from.path(titleOf(kindProgram, name)), to, 0, 0o755); err != nil {
			return fmt.Errorf("append program %s: %w", name, err)
		}

		for made := to; made != dir; made = filepath.Dir(made) { // whatever the umask is
			if err := os.Chmod(made, 0o755); err != nil {
				return fmt.Errorf("append program %s: %w", name, err)
			}
		}
	}

	appended := filepath.Join(dir, b.r.Stick.Appended)
	return mkfs.Append(ctx, b.tool(from, "bin/mksquashfs"), appended, file, at, time.Unix(b.l.Epoch, 0))
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
