package site

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"

	"github.com/go-crypt/crypt/algorithm/shacrypt"
)

// cryptRounds makes one guess of a password cost about a tenth of a second.
const cryptRounds = 100_000

// CryptHash is the secret as a hash that login programs and cloud-init take (crypt(5),
// SHA-512). A secret that is such a hash already is returned as it is. salt is any text
// that stays the same for what the password opens, such as a node's UID: the same secret
// and salt give the same hash, so that writing it again changes nothing.
func (s Secret) CryptHash(salt string) (string, error) {
	text := s.Reveal()
	if text == "" {
		return "", fmt.Errorf("hash password: it is empty")
	}
	if isCrypt(text) {
		return text, nil
	}

	h, err := shacrypt.New(shacrypt.WithSHA512(), shacrypt.WithIterations(cryptRounds))
	if err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}

	sum := sha256.Sum256([]byte("firstlight password salt\x00" + salt))
	alphabet := strings.NewReplacer("+", ".", "-", ".", "_", "/")
	digest, err := h.HashWithSalt(text, []byte(alphabet.Replace(base64.RawURLEncoding.EncodeToString(sum[:])[:16])))
	if err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}

	return digest.Encode(), nil
}

// isCrypt reports whether s is a hash of crypt(5): yescrypt, SHA-512 or SHA-256.
func isCrypt(s string) bool {
	return regexp.MustCompile(`^\$(6|5)\$(rounds=[0-9]+\$)?[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{43,86}$|^\$y\$[./A-Za-z0-9]+\$[./A-Za-z0-9]{0,86}\$[./A-Za-z0-9]{43}$`).MatchString(s)
}
