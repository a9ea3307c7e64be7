package verify

import (
	"fmt"

	"firstlight.dev/firstlight/image/media"
)

// checkIsImage refuses what is no image of a disk: with neither copy of a partition table (UEFI 2.10, 5.3) there is
// nothing to look into, and every check would find that something is missing.
func checkIsImage(image *media.Image) error {
	if info, err := image.Stat(); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder; name an image, such as build/firstlight.img", image.Path)
	}

	const sector, signature = 512, "EFI PART"
	for _, at := range []int64{sector, image.Size - sector} {
		found := make([]byte, len(signature))
		if _, err := image.ReadAt(found, at); err == nil && string(found) == signature {
			return nil
		}
	}

	return fmt.Errorf("%s is no image of a stick: it has no partition table at its beginning or end; name an image, such as "+
		"build/firstlight.img", image.Path)
}
