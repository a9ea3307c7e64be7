package image

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/media"
	"firstlight.dev/firstlight/image/sbom"
)

// writeOutputs writes the image and what belongs beside it: compressed image, block map,
// bill of materials, digests. Each step says how long it took. It returns what the next build
// needs to know of them.
func (b *build) writeOutputs(ctx context.Context, from Made) (stamp, error) {
	dir, name := filepath.Split(b.Out)
	part := disk.PartPath(b.Out)
	defer os.Remove(part)
	s, err := b.stickLayout(ctx, from)
	if err != nil {
		return stamp{}, err
	}

	at, err := s.RootOffset()
	if err != nil {
		return stamp{}, err
	}

	var earlier previousOutputs
	defer func() { earlier.Close() }()
	err = b.runTimed("stick, root", func() error {
		if earlier, err = b.openPrevious(from[kindBase], at); err != nil {
			return err
		}

		hash, size, err := b.placeRoot(ctx, from, part, at, earlier.known)
		if err != nil {
			return err
		}

		config, err := b.slotConfig(ctx, from, hash)
		if err != nil {
			return err
		}

		s.Root, s.Slot = disk.InPlace(size), append(s.Slot, config)
		return nil
	})
	if err != nil {
		return stamp{}, err
	}

	err = b.runTimed("stick, disk", func() error {
		layout, err := s.Layout()
		if err != nil {
			return err
		}
		return disk.Finish(ctx, b.Out, layout)
	})
	if err != nil {
		return stamp{}, err
	}

	bill := strings.TrimSuffix(name, ".img") + ".spdx.json"
	names := []string{name, name + media.SuffixZstd, name + media.SuffixBmap, bill}
	var published media.PublishResult
	err = b.runTimed("stick, and the files next to it", func() error {
		var parts []sbom.Package
		group, groupCtx := errgroup.WithContext(ctx)
		group.Go(func() (err error) {
			published, err = media.Publish(groupCtx, b.Out, earlier.published)
			return err
		})
		group.Go(func() (err error) {
			parts, err = b.listMaterials(groupCtx, from)
			return err
		})
		if err := group.Wait(); err != nil {
			return err
		}

		sums := published.Sums
		text, err := b.billOfMaterials(parts, sums[name])
		if err != nil {
			return err
		}

		sums[bill] = fmt.Sprintf("%x", sha256.Sum256(text))
		if err := os.WriteFile(filepath.Join(dir, bill), text, 0o644); err != nil {
			return fmt.Errorf("write bill of materials: %w", err)
		}

		return media.WriteSums(dir, names, sums)
	})
	if err != nil {
		return stamp{}, err
	}

	var files []File
	for _, name := range append(names, media.SumsName) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return stamp{}, fmt.Errorf("measure output: %w", err)
		}
		files = append(files, File{Path: filepath.Join(dir, name), Bytes: info.Size(), SHA256: published.Sums[name]})
	}

	return stamp{Files: files, Frames: published.Frames, Base: from[kindBase].Digest, At: at}, nil
}
