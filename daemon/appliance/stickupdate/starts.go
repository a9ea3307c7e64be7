package stickupdate

import (
	"crypto/x509"
	"fmt"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/secureboot"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/bootchain"
)

// bootOwners are the certificates of the owner whose GRUB this machine was started by.
func bootOwners(boot stick.BootInfo) ([]*x509.Certificate, error) {
	firmware, err := bootchain.ReadFirmware(bootchain.Variables)
	if err != nil || !firmware.UEFI {
		return nil, err
	}
	s, err := bootchain.OpenStick(boot)
	return bootchain.RequiredOwners(firmware, s), err
}

// checkStarts refuses an image that firmware or GRUB would not start: it would be tried once, in vain.
func (u *Updater) checkStarts(image *Image) error {
	owners, err := u.Owners()
	if err != nil {
		return fmt.Errorf("which images this machine starts is not known: %w", err)
	}
	if len(owners) == 0 {
		return nil
	}

	volume, err := fat.Open(image.boot)
	if err == nil {
		err = secureboot.CheckSlot(volume.ReadFile, owners)
	}
	if err != nil {
		return fmt.Errorf("%s is refused: this machine starts only what %s has signed: %w; "+
			"sign it with firstlight sign --secure-boot; nothing is written",
			image.Path, owners[0].Subject.CommonName, err)
	}
	return nil
}
