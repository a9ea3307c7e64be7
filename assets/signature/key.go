package signature

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"aead.dev/minisign"

	"firstlight.dev/firstlight/assets/stick"
)

// PublicKey is the public half of a signing key as minisign prints it, 56 characters from RW on.
type PublicKey string

func (k PublicKey) String() string { return string(k) }

// longestPublicKey is longer than a public half with its comment, and shorter than a signing key, in bytes.
const longestPublicKey = 200

// ParsePublicKey reads a key: the line alone, or a file of minisign, in which a comment is before it.
func ParsePublicKey(text string) (PublicKey, error) {
	if len(strings.TrimSpace(text)) > longestPublicKey {
		return "", errors.New("this is a signing key, which must stay with who signs; give its public half, the file " +
			"ending in .pub, and make another one if this one was seen")
	}

	var raw minisign.PublicKey
	if err := raw.UnmarshalText([]byte(strings.TrimSpace(text))); err != nil {
		return "", errors.New("it is not the public half of a signing key, RW… as firstlight keys new --signing prints it")
	}
	return PublicKey(raw.String()), nil
}

func (k PublicKey) parse() (raw minisign.PublicKey, err error) {
	if err := raw.UnmarshalText([]byte(k)); err != nil {
		return raw, fmt.Errorf("key %q is not the public half of a signing key", string(k))
	}
	return raw, nil
}

// ID is by which people tell keys apart, 16 hexadecimal digits as minisign prints them.
func (k PublicKey) ID() string {
	raw, err := k.parse()
	if err != nil {
		return string(k)
	}
	return formatID(raw.ID())
}

func formatID(id uint64) string { return fmt.Sprintf("%016X", id) }

// File is the key as a file of minisign.
func (k PublicKey) File() []byte {
	return fmt.Appendf(nil, "untrusted comment: minisign public key %s\n%s\n", k.ID(), string(k))
}

// PrivateKey signs.
type PrivateKey struct{ raw minisign.PrivateKey }

// String keeps the key out of logs.
func (PrivateKey) String() string { return "[redacted]" }

// GoString does as well.
func (PrivateKey) GoString() string { return "[redacted]" }

// NewPrivateKey makes a key.
func NewPrivateKey() (PrivateKey, error) {
	_, raw, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		return PrivateKey{}, fmt.Errorf("make signing key: %w", err)
	}
	return PrivateKey{raw}, nil
}

// ParsePrivateKey reads a file of minisign. password is asked for if it protects the key.
func ParsePrivateKey(text []byte, password func() (string, error)) (PrivateKey, error) {
	var k PrivateKey
	if !minisign.IsEncrypted(text) {
		if err := k.raw.UnmarshalText(text); err != nil {
			return k, errors.New("it is no signing key as firstlight keys new --signing, or minisign -G, makes one")
		}
		return k, nil
	}

	word, err := password()
	if err != nil {
		return k, err
	}
	if k.raw, err = minisign.DecryptKey(word, text); err != nil {
		return k, errors.New("the password is not that of the signing key")
	}
	return k, nil
}

// File is the key as a file of minisign, without a password.
func (k PrivateKey) File() ([]byte, error) {
	text, err := k.raw.MarshalText()
	if err != nil {
		return nil, fmt.Errorf("encode signing key: %w", err)
	}
	return append(text, '\n'), nil
}

// Public is the public half.
func (k PrivateKey) Public() PublicKey {
	raw, _ := k.raw.Public().(minisign.PublicKey)
	return PublicKey(raw.String())
}

// Sign reads a file to its end and signs it. slot is that of Statement. The same file gives the same signature.
func (k PrivateKey) Sign(ctx context.Context, r io.Reader, name, slot string) (Signature, error) {
	name = filepath.Base(name)
	if strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return Signature{}, fmt.Errorf("sign %q: the file's name has a control character; rename it", name)
	}

	sum := sha256.New()
	hashed := minisign.NewReader(io.TeeReader(contextReader{ctx, r}, sum))
	if _, err := io.Copy(io.Discard, hashed); err != nil {
		return Signature{}, fmt.Errorf("sign %s: %w", name, err)
	}

	statement := Statement{File: name, SHA256: fmt.Sprintf("%x", sum.Sum(nil)), Slot: slot}
	text := hashed.SignWithComments(k.raw, statement.comment(), "signature by the key "+k.Public().ID())
	if slot != "" && len(text) > stick.SignatureSize {
		return Signature{}, fmt.Errorf(
			"sign %s: the file's name is too long by %d bytes; rename it", name, len(text)-stick.SignatureSize,
		)
	}
	return Parse(text)
}
