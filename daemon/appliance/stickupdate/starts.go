package stickupdate

import (
	"crypto/x509"
	"fmt"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/secureboot"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/bootchain"
)

// bootOwners are the certificates of the owner whose GRUB this machine was started by. Where nobody has signed the stick,
// it does not matter what the firmware says.
func bootOwners(boot stick.BootInfo, variables string) ([]*x509.Certificate, error) {
	s, err := bootchain.OpenStick(boot)
	if err != nil || len(s.Owner) == 0 {
		return nil, err
	}
	firmware, err := bootchain.ReadFirmware(variables)
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
