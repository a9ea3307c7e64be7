package site

import (
	"errors"
	"fmt"

	"aead.dev/minisign"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// Updates is which versions the appliance takes.
type Updates struct {
	Keys []SigningKey `yaml:"keys" default:"any image is taken" doc:"The public half of each key that signs images of the stick: with one, firstlightd update takes no image that none of them has signed. firstlight keys new --signing makes a key, firstlight sign signs."`
}

// SigningKey is the public half of a signing key as minisign prints it, RW….
type SigningKey string

func (k SigningKey) String() string { return string(k) }

// longestSigningKey is longer than a public half, and shorter than a signing key.
const longestSigningKey = 100

// ParseText reads one; a signing key itself is refused with a sentence of its own.
func (k *SigningKey) ParseText(s string) error {
	if len(s) > longestSigningKey {
		return errors.New("this is no public half of a signing key; if it is the key itself, it must not be on the stick: " +
			"put its public half here, RW…, and make another key")
	}

	var raw minisign.PublicKey
	if err := raw.UnmarshalText([]byte(s)); err != nil || raw.String() != s {
		return fmt.Errorf("%s is not the public half of a signing key; write RW… as firstlight keys new --signing prints it",
			yamldoc.Quote(s))
	}

	*k = SigningKey(s)
	return nil
}
