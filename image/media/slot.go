package media

import (
	"context"
	"errors"
	"fmt"
	"io"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
)

// SlotDigest is the digest of the boot partition in the image at path, compressed or not, as a signature states it: of
// all that is in use but the place for a signature. "" if the file is no image of a stick.
func SlotDigest(ctx context.Context, path string) (string, error) {
	image, err := Open(ctx, path)
	if err != nil {
		return "", err
	}
	defer image.Close()

	return image.SlotDigest()
}

// SlotDigest is that of an image which is open.
func (i *Image) SlotDigest() (string, error) {
	table, err := gpt.ReadPrimary(i)
	if errors.Is(err, gpt.ErrNoTable) || errors.Is(err, io.EOF) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	boot, ok := table.Find(stick.SlotA.Boot())
	if !ok {
		return "", nil
	}

	volume, err := fat.Open(io.NewSectionReader(i, boot.Offset(), boot.Size()))
	if err != nil {
		return "", fmt.Errorf("%s: %w", boot.Name, err)
	}
	digest, err := volume.Digest(stick.SignatureName)
	if err != nil {
		return "", fmt.Errorf("%s: %w", boot.Name, err)
	}
	return digest, nil
}
