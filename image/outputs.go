package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/media"
)

// writeOutputs writes the image and what belongs beside it: compressed image, block map,
// bill of materials, digests.
func (b *build) writeOutputs(ctx context.Context, layout disk.Layout) ([]File, error) {
	if err := disk.Write(ctx, b.Out, layout); err != nil {
		return nil, err
	}
	dir, name := filepath.Split(b.Out)
	bill := strings.TrimSuffix(name, ".img") + ".spdx.json"
	var digest string
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return media.Compress(groupCtx, b.Out, b.Out+media.SuffixZstd) })
	group.Go(func() error { return media.WriteBmap(groupCtx, b.Out, b.Out+media.SuffixBmap) })
	group.Go(func() (err error) {
		if digest, err = media.DigestFile(groupCtx, b.Out); err != nil {
			return err
		}
		text, err := b.billOfMaterials(groupCtx, digest)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, bill), text, 0o644)
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	names := []string{name, name + media.SuffixZstd, name + media.SuffixBmap, bill}
	sums, err := media.WriteSums(ctx, dir, names...)
	if err != nil {
		return nil, err
	}
	var files []File
	for _, name := range append(names, media.SumsName) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("measure output: %w", err)
		}
		files = append(files, File{Path: filepath.Join(dir, name), Bytes: info.Size(), SHA256: sums[name]})
	}
	return files, nil
}
