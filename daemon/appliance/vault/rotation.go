package vault

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// The log-in to nodes is replaced in two halves. While there is a next key, it is brought to the nodes by the current
// one; when all have it, it becomes the current one, and that the former, which is taken from the nodes. What files
// there are is all that is remembered: a power cut anywhere is gone on from.
const (
	nextSuffix   = ".next"
	formerSuffix = ".former"
)

// ErrRotating says that a rotation is not at its end yet.
var ErrRotating = errors.New("the log-in to nodes is being replaced already")

// BeginRotation mints the next log-in to nodes.
func (k *Keys) BeginRotation() error {
	for _, suffix := range []string{nextSuffix, formerSuffix} {
		if _, err := os.Lstat(k.AccessFile() + suffix); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(ErrRotating, err)
		}
	}

	_, err := k.pair(k.AccessFile()+nextSuffix, "appliance")
	return err
}

// Next is the log-in that is being brought to nodes; nil if none is.
func (k *Keys) Next() (ssh.Signer, error) { return k.readSigner(k.AccessFile() + nextSuffix) }

// Former is the log-in that is being taken from nodes; nil if none is.
func (k *Keys) Former() (ssh.Signer, error) { return k.readSigner(k.AccessFile() + formerSuffix) }

// FormerSince is when the former log-in became that.
func (k *Keys) FormerSince() (time.Time, error) {
	info, err := os.Stat(k.AccessFile() + formerSuffix)
	if err != nil {
		return time.Time{}, fmt.Errorf("read SSH key: %w", err)
	}
	return info.ModTime(), nil
}

// readSigner reads a key; nil if there is none.
func (k *Keys) readSigner(path string) (ssh.Signer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	var signer ssh.Signer
	if err == nil {
		signer, err = ssh.ParsePrivateKey(text)
	}
	if err != nil {
		return nil, fmt.Errorf("read SSH key %s: %w", filepath.Base(path), err)
	}

	return signer, nil
}

// Switch makes the next log-in the current one. Every node that is in service must let both in.
func (k *Keys) Switch() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	current, err := os.ReadFile(k.AccessFile())
	next, nextErr := os.ReadFile(k.AccessFile() + nextSuffix)
	if err := errors.Join(err, nextErr); err != nil {
		return fmt.Errorf("switch log-in to nodes: %w", err)
	}

	if !bytes.Equal(current, next) { // else it was cut before the last step
		if err := writeKey(k.AccessFile()+formerSuffix, current); err != nil {
			return err
		}
		if err := writeKey(k.AccessFile(), next); err != nil {
			return err
		}
	}

	return k.remove(nextSuffix)
}

// ForgetFormer ends a rotation.
func (k *Keys) ForgetFormer() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.remove(formerSuffix)
}

func (k *Keys) remove(suffix string) error {
	if err := os.Remove(k.AccessFile() + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget SSH key: %w", err)
	}
	return atomicfile.SyncDir(k.Dir)
}

// Signers are all log-ins that nodes may let in: the current one first.
func (k *Keys) Signers() ([]ssh.Signer, error) {
	current, err := k.AccessSigner()
	if err != nil {
		return nil, err
	}

	all := []ssh.Signer{current}
	for _, read := range []func() (ssh.Signer, error){k.Next, k.Former} {
		other, err := read()
		if err != nil {
			return nil, err
		}
		if other != nil && string(other.PublicKey().Marshal()) != string(current.PublicKey().Marshal()) {
			all = append(all, other)
		}
	}

	return all, nil
}
