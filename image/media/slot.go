package media

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
)

// SlotDigest is the sha256 of what an image says its slot starts (stick.SlotConfig), as a signature states it; "" if the
// file at path, compressed or not, is no image of a stick.
func SlotDigest(ctx context.Context, path string) (string, error) {
	image, err := Open(ctx, path)
	if err != nil {
		return "", err
	}
	defer image.Close()

	table, err := gpt.ReadPrimary(image)
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

	volume, err := fat.Open(io.NewSectionReader(image, boot.Offset(), boot.Size()))
	if err != nil {
		return "", fmt.Errorf("%s: %w", boot.Name, err)
	}
	text, err := volume.ReadFile(stick.SlotConfigName)
	if err != nil {
		return "", fmt.Errorf("%s: %w", boot.Name, err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(text)), nil
}
