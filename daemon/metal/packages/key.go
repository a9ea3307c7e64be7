package packages

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// Key signs the repository of one appliance. It is minted there and never leaves it.
type Key struct {
	entity *openpgp.Entity
	public []byte
}

// made is when every key and signature says that it was made: long ago and always the same, so that no
// node with a wrong clock refuses what is signed.
var made = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func config() *packet.Config {
	return &packet.Config{
		Time:        func() time.Time { return made },
		Algorithm:   packet.PubKeyAlgoEdDSA,
		DefaultHash: crypto.SHA512,
	}
}

// OpenKey reads the key in a file, minting it if there is none. One that cannot be read is an error:
// nodes trust it, and another one would leave them without packages.
func OpenKey(file string) (*Key, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = mintKey(file)
	}

	if err != nil {
		return nil, fmt.Errorf("open key of the packages: %w", err)
	}

	all, err := openpgp.ReadKeyRing(bytes.NewReader(text))
	if err != nil || len(all) != 1 || all[0].PrivateKey == nil {
		return nil, fmt.Errorf("open key of the packages: %s holds no key (%v)", file, err)
	}

	k := &Key{entity: all[0]}
	var b bytes.Buffer
	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	if err != nil {
		return nil, fmt.Errorf("write public key: %w", err)
	}
	if err := errors.Join(k.entity.Serialize(w), w.Close()); err != nil {
		return nil, fmt.Errorf("write public key: %w", err)
	}

	k.public = append(b.Bytes(), '\n')
	return k, nil
}

func mintKey(file string) ([]byte, error) {
	e, err := openpgp.NewEntity("Firstlight appliance", "packages", "", config())
	if err != nil {
		return nil, fmt.Errorf("mint: %w", err)
	}

	var b bytes.Buffer
	if err := e.SerializePrivate(&b, config()); err != nil {
		return nil, fmt.Errorf("mint: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}

	return b.Bytes(), atomicfile.Write(file, b.Bytes(), 0o600)
}

// Public is the key for whoever checks signatures, as apt's Signed-By takes it.
func (k *Key) Public() []byte { return bytes.Clone(k.public) }

// sign makes text that carries its signature (RFC 9580, 7).
func (k *Key) sign(text []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := clearsign.Encode(&b, k.entity.PrivateKey, config())
	if err != nil {
		return nil, fmt.Errorf("sign index of packages: %w", err)
	}

	_, err = w.Write(text)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("sign index of packages: %w", err)
	}

	return withChecksum(b.Bytes())
}

// withChecksum adds the checksum of the signature's armor. The standard does without one since 2024,
// and so does the library; GnuPG before that misses the end of a signature that has none.
func withChecksum(signed []byte) ([]byte, error) {
	at := bytes.LastIndex(signed, []byte("-----BEGIN PGP SIGNATURE-----"))
	if at < 0 {
		return nil, errors.New("sign index of packages: no signature was made")
	}

	block, err := armor.Decode(bytes.NewReader(signed[at:]))
	if err != nil {
		return nil, fmt.Errorf("sign index of packages: %w", err)
	}

	out := bytes.NewBuffer(bytes.Clone(signed[:at]))
	w, err := armor.EncodeWithChecksumOption(out, openpgp.SignatureType, nil, true)
	if err != nil {
		return nil, fmt.Errorf("sign index of packages: %w", err)
	}

	_, err = io.Copy(w, block.Body)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("sign index of packages: %w", err)
	}

	return append(out.Bytes(), '\n'), nil
}

// open returns the text of what sign made; false if it is not this key's.
func (k *Key) open(signed []byte) ([]byte, bool) {
	block, _ := clearsign.Decode(signed)
	if block == nil {
		return nil, false
	}
	if _, err := block.VerifySignature(openpgp.EntityList{k.entity}, config()); err != nil {
		return nil, false
	}

	return block.Plaintext, true
}
