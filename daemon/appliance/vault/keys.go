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

// Keys are the SSH keys that the appliance keeps in Dir: its own, by which it logs in to all nodes, and each node's
// host key, of which it has the public half.
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

// AccessSigner is the appliance's log-in, as the client uses it.
func (k *Keys) AccessSigner() (ssh.Signer, error) {
	pair, err := k.Pair()
	if err != nil {
		return nil, err
	}
	return ssh.ParsePrivateKey([]byte(pair.Private))
}

// ErrNoHostKey says that a node has told no host key.
var ErrNoHostKey = errors.New("it has told no SSH host key")

// SaveHostKey remembers the host key, as in authorized_keys, that a node was told to have by the ramdisk that installs
// it. It replaces the one of its last installation; "" only forgets that one.
func (k *Keys) SaveHostKey(node site.Name, public string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := []string{k.mintedFile(node)} // an earlier version's, of a system that is overwritten now
	if public == "" {
		old = append(old, k.hostFile(node))
	} else if err := writeKey(k.hostFile(node), []byte(public+" "+string(node)+"\n")); err != nil {
		return err
	}

	for _, path := range old {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the host key of an earlier installation: %w", err)
		}
	}

	return nil
}

// HostPublicKey is a node's host key, as the client checks it; ErrNoHostKey if there is none.
func (k *Keys) HostPublicKey(node site.Name) (ssh.PublicKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text, err := os.ReadFile(k.hostFile(node))
	if errors.Is(err, fs.ErrNotExist) {
		return k.mintedKey(node)
	}

	var key ssh.PublicKey
	if err == nil {
		key, _, _, _, err = ssh.ParseAuthorizedKey(text)
	}
	if err != nil {
		return nil, fmt.Errorf("read host key of %s: %w", node, err)
	}

	return key, nil
}

// mintedKey is the public half of a host key that an earlier version minted: nodes that it installed have it. k.mu is
// held.
func (k *Keys) mintedKey(node site.Name) (ssh.PublicKey, error) {
	text, err := os.ReadFile(k.mintedFile(node))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("node %s: %w", node, ErrNoHostKey)
	}

	var signer ssh.Signer
	if err == nil {
		signer, err = ssh.ParsePrivateKey(text)
	}
	if err != nil {
		return nil, fmt.Errorf("read host key of %s: %w", node, err)
	}

	return signer.PublicKey(), nil
}

func (k *Keys) hostFile(node site.Name) string {
	return filepath.Join(k.Dir, "known", string(node)+".pub")
}

func (k *Keys) mintedFile(node site.Name) string { return filepath.Join(k.Dir, "hosts", string(node)) }

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
