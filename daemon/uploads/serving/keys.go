package serving

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// Keys are how the agent speaks to the store. They are minted on the appliance.
type Keys struct{ Access, Secret string }

// String keeps the secret out of logs.
func (k Keys) String() string { return k.Access + ":[redacted]" }

// OpenKeys reads the keys in dir, minting them if they are absent or torn.
func OpenKeys(dir string) (Keys, error) {
	path := filepath.Join(dir, "artifacts.keys")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Keys{}, fmt.Errorf("read keys of the store: %w", err)
	}
	if access, rest, _ := strings.Cut(string(text), "\n"); access != "" {
		if secret, end, ok := strings.Cut(rest, "\n"); ok && secret != "" && end == "" {
			return Keys{access, secret}, nil
		}
	}
	k := Keys{"firstlight", random(32)}
	if err := write(path, k.Access+"\n"+k.Secret+"\n"); err != nil {
		return Keys{}, fmt.Errorf("keep keys of the store: %w", err)
	}
	return k, nil
}

func random(octets int) string {
	b := make([]byte, octets)
	_, _ = rand.Read(b) // never fails, crypto/rand
	return base64.RawURLEncoding.EncodeToString(b)
}

func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(path, []byte(text), 0o600)
}
