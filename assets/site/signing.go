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

// RequireSigned is the value of Images.Require that asks for signatures.
const RequireSigned = "signed"

// Images is which images nodes are installed with.
type Images struct {
	Require string       `yaml:"require" enum:"signed|none" default:"none" doc:"signed: no node is given an image that none of keys has signed, uploaded or at a url; images that the stick brings are trusted. A node that has its image keeps it."`
	Keys    []SigningKey `yaml:"keys" doc:"The public half of each key that signs images of nodes; firstlight keys new --signing makes a key, firstlight sign signs, firstlight artifact push uploads the signature."`
}

// checkImages checks what the parts of the section mean together.
func (r *reader) checkImages(i *Images) {
	switch {
	case i.Require == RequireSigned && len(i.Keys) == 0:
		r.Report("images.require", "no key is known that images could be signed by; add images.keys")
	case i.Require != RequireSigned && len(i.Keys) > 0:
		r.Report("images.keys", "nothing asks for signatures by these keys; add require: signed, or take them out")
	}
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
