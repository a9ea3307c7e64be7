package secureboot

import (
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"

	"firstlight.dev/firstlight/assets/stick"
)

// SignedFiles are those of a slot that GRUB reads; each has its signature next to it.
var SignedFiles = []string{stick.SlotConfigName, stick.KernelName, stick.InitramfsName}

// CheckSlot says whether firmware that trusts these certificates starts a slot: it checks the kernel, and the owner's
// GRUB checks each file. read gives a file of the slot's boot partition.
func CheckSlot(read func(name string) ([]byte, error), trusted []*x509.Certificate) error {
	for _, name := range SignedFiles {
		content, err := read(name)
		if err != nil {
			return err
		}
		if name == stick.KernelName {
			if err := Verify(name, content, trusted); err != nil {
				return err
			}
		}

		signature, err := read(name + Suffix)
		if err != nil {
			return fmt.Errorf("%s has no signature for GRUB: %w", name, err)
		}
		if err := verifyAny(trusted, content, signature); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// verifyAny checks a file by the keys of certificates.
func verifyAny(trusted []*x509.Certificate, content, signature []byte) error {
	for _, c := range trusted {
		key, ok := c.PublicKey.(*rsa.PublicKey)
		if ok && key.N.BitLen() == keyBits && VerifyFile(key, content, signature) == nil {
			return nil
		}
	}
	return errors.New("its signature for GRUB is by none of these keys, or the file was changed")
}
