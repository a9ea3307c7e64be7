package flash

import (
	"fmt"
	"io"
	"slices"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/assets/stick"
)

// PutSignature adds the signature of the image to the plan: into the place for it in slot a, so that the stick is an image
// that other appliances update from. An image without a place, of an earlier version, is written without it.
func (p *Plan) PutSignature(s signature.Signature) error {
	boot, ok := p.Table.Find(stick.SlotA.Boot())
	if !ok {
		return nil
	}
	volume, err := fat.Open(io.NewSectionReader(p.image, boot.Offset(), boot.Size()))
	if err != nil {
		return fmt.Errorf("read %s of %s: %w", boot.Name, p.image.Path, err)
	}
	have, err := volume.ReadFile(stick.SignatureName)
	if err != nil || len(have) != stick.SignatureSize || len(s.Text()) > stick.SignatureSize {
		return nil
	}
	at, err := volume.Offset(stick.SignatureName)
	if err != nil {
		return fmt.Errorf("read %s of %s: %w", boot.Name, p.image.Path, err)
	}

	p.held = append(p.held, piece{stick.SignatureName, have, boot.Offset() + at})
	p.last = slices.Insert(p.last, 0, piece{stick.SignatureName, stick.PadSignature([]byte(s.Text())), boot.Offset() + at})
	return nil
}
