package packages

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/daemon/appliance/ca"
)

// The key is replaced in stages, each of them a file next to it. What files there are is all that is remembered: a power
// cut anywhere is gone on from. No stage precedes that in which the next one is trusted: nothing restarts for it.
//
//	Introduced  packages.key.next    clients are to trust both; packages.key signs as before
//	Switched    packages.key.former  the public half: clients are to trust both; the next one is packages.key, and signs
const (
	nextSuffix   = ".next"
	formerSuffix = ".former"
)

// ErrRotating says that a rotation is not at its end yet.
var ErrRotating = errors.New("the key of packages is being replaced already")

// load reads the next key before the one that signs, and the former one last: in the middle of a Switch both are seen.
func (k *Key) load() error {
	next, introduced, err := readEntity(k.file + nextSuffix)
	if err != nil {
		return err
	}

	if k.entity, _, err = readEntity(k.file); err == nil && k.entity == nil {
		if err = mintKey(k.file); err == nil {
			k.entity, _, err = readEntity(k.file)
		}
	}
	switch {
	case err != nil:
		return err
	case k.entity == nil || k.entity.PrivateKey == nil:
		return fmt.Errorf("%s holds no key that signs", k.file)
	}

	former, switched, err := readEntity(k.file + formerSuffix)
	switch {
	case err != nil:
		return err
	case next != nil && next.PrivateKey != nil && !isSame(next, k.entity):
		k.other, k.stage, k.since = next, ca.Introduced, introduced
	case former != nil && !isSame(former, k.entity):
		k.other, k.stage, k.since = former, ca.Switched, switched
	}

	if k.current, err = encodePublic(k.entity); err != nil {
		return err
	}
	if k.public, err = encodePublic(k.trustedKeys()...); err != nil || k.stage != ca.Introduced {
		return err
	}
	k.next, err = encodePublic(k.other)
	return err
}

// BeginRotation mints the next key: from then on it is in Public.
func (k *Key) BeginRotation() error {
	now, err := OpenKey(k.file)
	if err != nil {
		return err
	}
	if now.stage != "" {
		return ErrRotating
	}
	return mintKey(k.file + nextSuffix)
}

// Stage is how far the key is replaced, and since when, as of OpenKey.
func (k *Key) Stage() (stage ca.Stage, since time.Time) { return k.stage, k.since }

// Next is the key that is introduced, as Public; nil if none is.
func (k *Key) Next() []byte { return bytes.Clone(k.next) }

// Switch has the next key sign. Everyone who trusts the current one must trust both. OpenKey reads how it is then.
func (k *Key) Switch() error {
	if k.stage != ca.Introduced {
		return errors.New("no next key of the packages is introduced")
	}

	next, err := os.ReadFile(k.file + nextSuffix)
	if err != nil {
		return fmt.Errorf("switch key of the packages: %w", err)
	}

	var former bytes.Buffer
	if err := k.entity.Serialize(&former); err != nil {
		return fmt.Errorf("switch key of the packages: %w", err)
	}
	if err := atomicfile.Write(k.file+formerSuffix, former.Bytes(), 0o600); err != nil {
		return err
	}
	if err := atomicfile.Write(k.file, next, 0o600); err != nil {
		return err
	}
	return k.remove(nextSuffix)
}

// ForgetFormer ends a rotation: clients are to trust the key that signs alone.
func (k *Key) ForgetFormer() error {
	if k.stage == ca.Introduced {
		return ErrRotating
	}
	return errors.Join(k.remove(nextSuffix), k.remove(formerSuffix))
}

func (k *Key) remove(suffix string) error {
	if err := os.Remove(k.file + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget key of the packages: %w", err)
	}
	return atomicfile.SyncDir(filepath.Dir(k.file))
}
