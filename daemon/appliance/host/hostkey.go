package host

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/stick"
)

// The appliance has two host keys: the one that it shows, and the next one, which it shows to nobody but names to whoever
// is logged in (hostkeys-00@openssh.com, OpenSSH's PROTOCOL, 2.5). So clients know the next one before it is shown. Both
// are named by overlays/appliance's sshd_config.d, in this order: of two keys of a kind sshd shows the first.
const (
	hostKeyName     = "ssh/ssh_host_ed25519_key"
	nextHostKeyName = hostKeyName + ".next"
	loadedKeysFile  = stick.RunDir + "/ssh-host-keys" // what sshd was started with: public keys, one a line
)

// ErrNoHostKey says that there are no two host keys yet.
var ErrNoHostKey = errors.New("log-in by SSH is not set up yet; `firstlightd why` says what the stage ssh-ready waits for")

// HostKeys are the public keys of the host below root, as in authorized_keys: the one that it shows, and the next one.
func HostKeys(root string) ([]string, error) {
	var all []string
	for _, name := range []string{hostKeyName, nextHostKeyName} {
		path := filepath.Join("/", root, stick.DataDir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read host key: %w", err)
		}
		signer, err := ssh.ParsePrivateKey(text)
		if err != nil {
			return nil, fmt.Errorf("read host key %s: %w", path, err)
		}
		all = append(all, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))))
	}
	return all, nil
}

// RotateHostKey has the next host key be the one that is shown, and forgets the former one; SSHDo mints another next one
// and has sshd use them. It returns the fingerprint of the key that is shown from then on, and since when clients that
// logged in know it.
func (h *Host) RotateHostKey() (fingerprint string, since time.Time, err error) {
	keys, err := HostKeys(h.Root)
	if err != nil {
		return "", time.Time{}, errors.Join(ErrNoHostKey, err)
	}
	next, _, _, _, err := ssh.ParseAuthorizedKey([]byte(keys[1]))
	if err != nil {
		return "", time.Time{}, fmt.Errorf("read host key: %w", err)
	}

	path := h.dataPath(nextHostKeyName)
	info, err := os.Stat(path)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("read host key: %w", err)
	}
	if err := os.Rename(path, h.dataPath(hostKeyName)); err != nil {
		return "", time.Time{}, fmt.Errorf("replace host key: %w", err)
	}
	return ssh.FingerprintSHA256(next), info.ModTime(), atomicfile.SyncDir(filepath.Dir(path))
}

// wantedHostKeys is what loadedKeysFile has if sshd uses the host keys that are on DATA.
func (h *Host) wantedHostKeys() ([]byte, error) {
	keys, err := HostKeys(h.Root)
	return []byte(strings.Join(keys, "\n") + "\n"), err
}

// hasLoaded reports whether sshd was started with host keys.
func (h *Host) hasLoaded(keys []byte) bool {
	have, err := os.ReadFile(h.path(loadedKeysFile))
	return err == nil && string(have) == string(keys)
}

// ensureHostKeys mints what is no key; storage mints the usual one earlier in the boot.
func (h *Host) ensureHostKeys() error {
	for _, name := range []string{hostKeyName, nextHostKeyName} {
		text, err := os.ReadFile(h.dataPath(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read host key: %w", err)
		}
		if _, err := ssh.ParseRawPrivateKey(text); err == nil {
			continue
		}
		if err := mintHostKey(h.dataPath(name)); err != nil {
			return err
		}
	}
	return nil
}

func mintHostKey(path string) error {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("mint host key: %w", err)
	}

	block, err := ssh.MarshalPrivateKey(private, "firstlight")
	if err != nil {
		return fmt.Errorf("mint host key: %w", err)
	}

	return writeFile(path, pem.EncodeToMemory(block), 0o600)
}
