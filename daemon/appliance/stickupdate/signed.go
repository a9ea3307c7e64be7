package stickupdate

import (
	"bytes"
	"errors"
	"fmt"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/assets/stick"
)

// trust is on whose word an image is taken.
type trust struct {
	by   string // ID of the key that signed it; "" if the site knows none
	why  string // why no key vouches for it, in a sentence, if it is taken all the same
	text []byte // of the signature; nil if there is none
}

// checkTrust says on whose word an image is taken; an error if it is not.
func (u *Updater) checkTrust(image *Image, o Options) (trust, error) {
	keys, err := u.Keys()
	if err != nil {
		err = fmt.Errorf("which keys sign updates is not known: %w", err)
	}

	t := trust{}
	s, missing := image.findSignature(o.Signature)
	if missing == nil {
		t.text = []byte(s.Text())
	}
	switch {
	case err != nil:
	case len(keys) == 0 && o.Signature != "":
		err = errors.New("no key is known that the signature could be of; name it in updates.keys of site.yaml")
	case len(keys) == 0:
		return t, nil
	case missing != nil:
		err = missing
	default:
		var key signature.PublicKey
		if key, err = image.CheckSignature(keys, s); err == nil {
			t.by = key.ID()
			return t, nil
		}
	}
	if o.Unsigned {
		t.why = err.Error()
		return t, nil
	}

	return t, fmt.Errorf("%s is refused: %w; nothing is written", image.Path, err)
}

// findSignature reads the signature of an image: the file that is named, the one next to the image, or the one that
// `firstlight flash` or an update put into the slot.
func (i *Image) findSignature(path string) (signature.Signature, error) {
	if path != "" {
		return signature.ReadFile(path)
	}

	s, err := signature.ReadFile(i.Path + signature.Suffix)
	if !errors.Is(err, signature.ErrUnsigned) {
		return s, err
	}
	volume, failed := fat.Open(i.boot)
	if failed != nil {
		return s, failed
	}
	text, failed := volume.ReadFile(stick.SignatureName)
	if failed != nil || len(bytes.TrimSpace(text)) == 0 {
		return s, err // of a version that had no place for it, or none was put there
	}

	if s, err = signature.Parse(text); err != nil {
		return s, fmt.Errorf("read signature in slot %s: %w", stick.SlotA, err)
	}
	return s, nil
}

// CheckSignature returns the key that the image is signed with, if that is one of the keys. What is signed is the boot
// partition, in which the slot's configuration has the root hash: so it holds for the file that was signed, compressed
// or not, and for a disk that the image was written to.
func (i *Image) CheckSignature(keys signature.Keys, s signature.Signature) (signature.PublicKey, error) {
	says, key, err := keys.CheckStatement(s)
	if err != nil {
		return "", err
	}
	if says.Slot == "" {
		return "", fmt.Errorf("its signature is that of %s, which is no image of a stick; firstlight sign signs one", says.File)
	}
	if says.Slot != i.digest {
		return "", fmt.Errorf("its signature by the key %s is that of another image, or the image was changed", key.ID())
	}
	return key, nil
}

// putSignature writes a signature into the place for it in a slot, by which the stick is an image to update from. A
// version that has no place is left as it is.
func putSignature(boot Partition, text []byte) error {
	volume, err := fat.Open(boot)
	if err != nil {
		return err
	}
	have, err := volume.ReadFile(stick.SignatureName)
	if err != nil || len(have) != stick.SignatureSize || len(text) > stick.SignatureSize {
		return nil
	}
	at, err := volume.Offset(stick.SignatureName)
	if err != nil {
		return err
	}

	if _, err := boot.WriteAt(stick.PadSignature(text), at); err != nil {
		return err
	}
	return errors.Join(boot.Sync(), boot.Drop())
}
