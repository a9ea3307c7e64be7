package remote

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// Hosts are the nodes' host keys: those that are known, and those that were met for the first time.
// A node that is in neither file is believed once, and never again with another key.
type Hosts struct {
	Known   string // written by others, as ssh -o UserKnownHostsFile takes it; may be absent
	Learned string // ours, in the same form

	mu sync.Mutex
}

func (h *Hosts) existingFiles() []string {
	return slices.DeleteFunc([]string{h.Known, h.Learned}, func(f string) bool {
		_, err := os.Stat(f)
		return f == "" || err != nil
	})
}

// Check implements ssh.HostKeyCallback.
func (h *Hosts) Check(address string, remote net.Addr, key ssh.PublicKey) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	wanted, err := h.knownKeys(address, remote, key)
	if err != nil || wanted == nil {
		return err
	}
	if len(wanted) > 0 {
		return &HostKeyChangedError{Addr: address, File: wanted[0].Filename, Line: wanted[0].Line}
	}

	return h.addKey(address, key)
}

// knownKeys are the known keys of an address if key is none of them: empty if there are none, nil if it is.
func (h *Hosts) knownKeys(address string, remote net.Addr, key ssh.PublicKey) ([]knownhosts.KnownKey, error) {
	check, err := knownhosts.New(h.existingFiles()...)
	if err != nil {
		return nil, fmt.Errorf("read known hosts: %w", err)
	}

	err = check(address, remote, key)
	var other *knownhosts.KeyError
	if errors.As(err, &other) {
		return append([]knownhosts.KnownKey{}, other.Want...), nil
	}

	return nil, err
}

func (h *Hosts) addKey(address string, key ssh.PublicKey) error {
	if err := os.MkdirAll(filepath.Dir(h.Learned), 0o755); err != nil {
		return fmt.Errorf("keep host key: %w", err)
	}

	f, err := os.OpenFile(h.Learned, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("keep host key: %w", err)
	}

	_, err = fmt.Fprintln(f, knownhosts.Line([]string{knownhosts.Normalize(address)}, key))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("keep host key: %w", err)
	}

	return nil
}

// Algorithms are the kinds of key known of an address; nil if none is. A server has several keys and
// shows the one that the client prefers: it must be asked for the one that is known.
//
// The address is HOST:PORT, of a name or of an IP address.
func (h *Hosts) Algorithms(address string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	wanted, err := h.knownKeys(address, &net.TCPAddr{}, noKey{})
	if err != nil {
		return nil // Check will say what is wrong
	}

	var all []string
	for _, w := range wanted {
		all = append(all, algorithms(w.Key)...)
	}

	return all
}

// noKey is a key that nobody has.
type noKey struct{}

func (noKey) Type() string                        { return "none" }
func (noKey) Marshal() []byte                     { return []byte("none") }
func (noKey) Verify([]byte, *ssh.Signature) error { return errors.New("no key") }
