package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/assets/verity"
	"firstlight.dev/firstlight/image/media"
)

// Root is the root of an image: a squashfs and the tree of its hashes.
type Root struct {
	Version string // of the image
	Hash    string // of the tree's top, as the boot partition says
	Bytes   int64  // of both

	content io.ReaderAt
}

// ReadRoot finds the root of an image. Its bytes are not checked yet.
func ReadRoot(image *media.Image) (Root, error) {
	r, err := readRoot(image)
	if err != nil {
		return r, fmt.Errorf("read image %s: %w", image.Path, err)
	}
	return r, nil
}

func readRoot(image io.ReaderAt) (Root, error) {
	table, err := gpt.ReadPrimary(image)
	if err != nil {
		return Root{}, err
	}
	boot, hasBoot := table.Find(stick.SlotA.Boot())
	root, hasRoot := table.Find(stick.SlotA.Root())
	if !hasBoot || !hasRoot {
		return Root{}, errors.New("it is no image of the stick")
	}

	volume, err := fat.Open(io.NewSectionReader(image, boot.Offset(), boot.Size()))
	if err != nil {
		return Root{}, fmt.Errorf("%s: %w", boot.Name, err)
	}
	text, err := volume.ReadFile("/" + stick.SlotConfigName)
	if err != nil {
		return Root{}, fmt.Errorf("%s: %w", boot.Name, err)
	}
	config, err := stick.ParseSlotConfig(text)
	if err != nil {
		return Root{}, fmt.Errorf("%s: %w", boot.Name, err)
	}

	content := io.NewSectionReader(image, root.Offset(), root.Size())
	size, tree, err := rootSizes(content)
	if err != nil {
		return Root{}, fmt.Errorf("%s: %w", root.Name, err)
	}
	return Root{
		Version: config.Version,
		Hash:    config.RootHash,
		Bytes:   size + tree,
		content: content,
	}, nil
}

// rootSizes are the bytes of the squashfs and of the tree behind it.
func rootSizes(content io.ReaderAt) (size, tree int64, err error) {
	size, err = media.SquashfsSize(content)
	if err != nil {
		return 0, 0, err
	}

	block := make([]byte, verity.BlockSize)
	if _, err := content.ReadAt(block, size); err != nil {
		return 0, 0, fmt.Errorf("read hash tree: %w", err)
	}
	super, err := verity.ParseSuper(block)
	if err != nil {
		return 0, 0, err
	}
	return size, super.TreeSize(), nil
}

// errDamaged is of a root that is not the one that its hash names.
var errDamaged = errors.New("damaged")

// checkRoot compares every block of the file at path with the root hash.
func checkRoot(ctx context.Context, path, hash string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()

	size, _, err := rootSizes(f)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", path, errDamaged, err)
	}
	found, err := verity.Check(ctx, f, size, hash)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", path, errDamaged, err)
	}
	if len(found) > 0 {
		return fmt.Errorf("%s: %w: %d blocks differ from the root hash %s, the first at byte %d (%s)",
			path, errDamaged, len(found), hash, found[0].Offset, found[0].Part)
	}
	return nil
}

// copyRoot copies the root to path, and checks what was written there.
func copyRoot(ctx context.Context, r Root, path string) error {
	from := contextReader{ctx, io.NewSectionReader(r.content, 0, r.Bytes)}
	if err := atomicfile.Copy(path, from, 0o600); err != nil {
		return err
	}

	err := checkRoot(ctx, path, r.Hash)
	if errors.Is(err, errDamaged) { // the image itself is
		return errors.Join(fmt.Errorf("the image is not sound: %w; firstlight verify says more", err), os.Remove(path))
	}
	return err
}

// contextReader ends when its context does.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}
