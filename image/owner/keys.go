package owner

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"firstlight.dev/firstlight/assets/secureboot"
)

// Names in a directory with an owner's keys. NAME.key is private, NAME.crt its certificate in PEM, NAME.cer the same in
// DER, as most firmware reads it, and NAME.auth what is written to the firmware's variable.
const (
	keySuffix    = ".key"
	pemSuffix    = ".crt"
	derSuffix    = ".cer"
	updateSuffix = ".auth"
)

// Keys are what an image is signed with.
type Keys struct {
	DB      secureboot.Key
	Updates map[string][]byte // of the variables PK, KEK and db, by name
}

// MakeKeys makes the keys of an owner in a new directory: PK, KEK and db. A directory that is there is left alone, since
// its keys may be the only ones that some firmware trusts.
func MakeKeys(dir string, now time.Time) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make keys: %w", err)
	}

	keys := map[string]secureboot.Key{}
	// Each variable is changed by the key before it, PK by itself.
	for _, one := range []struct {
		variable secureboot.Variable
		by       string
	}{{secureboot.PK, "PK"}, {secureboot.KEK, "PK"}, {secureboot.DB, "KEK"}} {
		name := one.variable.Name
		key, err := secureboot.NewKey("Firstlight owner's "+name, now)
		if err != nil {
			return err
		}
		keys[name] = key

		update, err := keys[one.by].Update(one.variable, secureboot.List(key.Certificate), now)
		if err != nil {
			return err
		}
		private, certificate, err := key.PEM()
		if err != nil {
			return fmt.Errorf("make key %s: %w", name, err)
		}
		err = errors.Join(
			write(filepath.Join(dir, name+keySuffix), private, 0o600),
			write(filepath.Join(dir, name+pemSuffix), certificate, 0o644),
			write(filepath.Join(dir, name+derSuffix), key.Certificate.Raw, 0o644),
			write(filepath.Join(dir, name+updateSuffix), update, 0o644),
		)
		if err != nil {
			return fmt.Errorf("make keys: %w", err)
		}
	}
	return nil
}

// ReadKeys reads what signs images from such a directory. The private keys of PK and KEK need not be there.
func ReadKeys(dir string) (Keys, error) {
	k := Keys{Updates: map[string][]byte{}}
	for _, v := range []secureboot.Variable{secureboot.PK, secureboot.KEK, secureboot.DB} {
		update, err := os.ReadFile(filepath.Join(dir, v.Name+updateSuffix))
		if err != nil {
			return k, fmt.Errorf("read keys: %w", err)
		}
		if _, err := secureboot.Content(update); err != nil {
			return k, fmt.Errorf("read keys: %s: %w", v.Name+updateSuffix, err)
		}
		k.Updates[v.Name] = update
	}

	private, err := os.ReadFile(filepath.Join(dir, secureboot.DB.Name+keySuffix))
	if err != nil {
		return k, fmt.Errorf("read keys: %w", err)
	}
	certificate, err := os.ReadFile(filepath.Join(dir, secureboot.DB.Name+pemSuffix))
	if err != nil {
		return k, fmt.Errorf("read keys: %w", err)
	}
	if k.DB, err = secureboot.ParseKey(private, certificate); err != nil {
		return k, fmt.Errorf("read keys: %s: %w", secureboot.DB.Name+keySuffix, err)
	}
	return k, nil
}

func write(path string, content []byte, perm os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
