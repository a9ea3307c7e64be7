package vault

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
	"sync"

	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/site"
)

// KeyPair is an ed25519 pair: OpenSSH private key and authorized_keys form.
type KeyPair struct{ Private, Public string }

// Keys are the SSH keys of nodes, minted on the appliance and kept in Dir: one by which the
// appliance logs in everywhere, and each node's host key.
type Keys struct {
	Dir string
	mu  sync.Mutex
}

// AccessFile is the private key of the appliance's log-in to nodes, as ssh -i takes it.
func (k *Keys) AccessFile() string { return filepath.Join(k.Dir, "id_ed25519") }

// AccessPublicKey is the public half of the appliance's log-in, as in authorized_keys.
func (k *Keys) AccessPublicKey() (string, error) {
	pair, err := k.Pair()
	return pair.Public, err
}

// Pair is the appliance's log-in.
func (k *Keys) Pair() (KeyPair, error) { return k.pair(k.AccessFile(), "appliance") }

// Host is a node's host key. A node that is installed again keeps it, so that who knows the
// node goes on knowing it.
func (k *Keys) Host(node site.Name) (KeyPair, error) {
	return k.pair(filepath.Join(k.Dir, "hosts", string(node)), string(node))
}

// AccessSigner is the appliance's log-in, as the client uses it.
func (k *Keys) AccessSigner() (ssh.Signer, error) {
	pair, err := k.Pair()
	if err != nil {
		return nil, err
	}
	return ssh.ParsePrivateKey([]byte(pair.Private))
}

// HostPublicKey is the public half of a node's host key, as the client checks it.
func (k *Keys) HostPublicKey(node site.Name) (ssh.PublicKey, error) {
	pair, err := k.Host(node)
	if err != nil {
		return nil, err
	}

	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(pair.Public))
	if err != nil {
		return nil, fmt.Errorf("read host key of %s: %w", node, err)
	}

	return key, nil
}

// HasHostKey reports whether a node was given its host key already.
func (k *Keys) HasHostKey(node site.Name) bool {
	_, err := os.Stat(filepath.Join(k.Dir, "hosts", string(node)))
	return err == nil
}

func (k *Keys) pair(path, comment string) (KeyPair, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return KeyPair{}, fmt.Errorf("read SSH key: %w", err)
	}
	if signer, err := ssh.ParsePrivateKey(text); err == nil {
		return KeyPair{string(text), authorizedKey(signer.PublicKey(), comment)}, nil
	}

	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return KeyPair{}, fmt.Errorf("mint SSH key: %w", err)
	}

	block, err := ssh.MarshalPrivateKey(key, comment)
	if err != nil {
		return KeyPair{}, fmt.Errorf("mint SSH key: %w", err)
	}

	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("mint SSH key: %w", err)
	}

	private := pem.EncodeToMemory(block)
	return KeyPair{string(private), authorizedKey(signer.PublicKey(), comment)}, writeKey(path, private)
}

func authorizedKey(key ssh.PublicKey, comment string) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) + " " + comment
}

// writeKey writes a secret file.
func writeKey(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("keep SSH key: %w", err)
	}
	if err := atomicfile.Write(path, data, 0o600); err != nil {
		return fmt.Errorf("keep SSH key: %w", err)
	}
	return nil
}
