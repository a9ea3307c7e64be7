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
	"slices"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/daemon/appliance/ca"
)

// Key signs the repository of one appliance. It is minted there and never leaves it. While it is replaced
// (rotation.go), clients are to trust another one as well.
type Key struct {
	file   string
	entity *openpgp.Entity
	other  *openpgp.Entity // the next or the former one, by the stage; nil: there is none
	stage  ca.Stage
	since  time.Time

	public, current, next []byte // as their functions return them
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

// OpenKey reads the key in a file, minting it if there is none, and how far it is replaced. One that cannot be read is
// an error: nodes trust it, and another one would leave them without packages.
func OpenKey(file string) (*Key, error) {
	k := &Key{file: file}
	if err := k.load(); err != nil {
		return nil, fmt.Errorf("open key of the packages: %w", err)
	}
	return k, nil
}

// readEntity reads the one key of a file, and when it was written; nil if there is no file.
func readEntity(file string) (*openpgp.Entity, time.Time, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, time.Time{}, nil
	}
	if err != nil {
		return nil, time.Time{}, err
	}

	all, err := openpgp.ReadKeyRing(bytes.NewReader(text))
	if err != nil || len(all) != 1 {
		return nil, time.Time{}, fmt.Errorf("%s holds no key (%v)", file, err)
	}

	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) { // it was forgotten meanwhile
		return nil, time.Time{}, nil
	}
	if err != nil {
		return nil, time.Time{}, err
	}

	return all[0], info.ModTime(), nil
}

func mintKey(file string) error {
	e, err := openpgp.NewEntity("Firstlight appliance", "packages", "", config())
	if err != nil {
		return fmt.Errorf("mint: %w", err)
	}

	var b bytes.Buffer
	if err := e.SerializePrivate(&b, config()); err != nil {
		return fmt.Errorf("mint: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}

	return atomicfile.Write(file, b.Bytes(), 0o600)
}

// Public is what whoever checks signatures is to trust, as apt's Signed-By takes it: the key, and while it is replaced
// the next or the former one. Both are in one block, so that nobody has to look for a second one.
func (k *Key) Public() []byte { return bytes.Clone(k.public) }

// Current is the key that signs, as Public.
func (k *Key) Current() []byte { return bytes.Clone(k.current) }

func (k *Key) trustedKeys() openpgp.EntityList {
	if k.other == nil {
		return openpgp.EntityList{k.entity}
	}
	return openpgp.EntityList{k.entity, k.other}
}

func encodePublic(all ...*openpgp.Entity) ([]byte, error) {
	var b bytes.Buffer
	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	if err != nil {
		return nil, fmt.Errorf("write public key: %w", err)
	}
	for _, e := range all {
		err = errors.Join(err, e.Serialize(w))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("write public key: %w", err)
	}

	return append(b.Bytes(), '\n'), nil
}

// HasKey reports whether a key, as Current writes it, is in a text, however its lines are indented.
func HasKey(text, key []byte) bool {
	wanted, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(key))
	if err != nil || len(wanted) != 1 {
		return false
	}

	var lines []byte
	for line := range bytes.Lines(text) {
		lines = append(append(lines, bytes.TrimSpace(line)...), '\n')
	}
	begin := []byte("-----BEGIN " + openpgp.PublicKeyType + "-----")
	for _, rest := range bytes.Split(lines, begin)[1:] {
		all, err := openpgp.ReadArmoredKeyRing(io.MultiReader(bytes.NewReader(begin), bytes.NewReader(rest)))
		if err == nil && slices.ContainsFunc(all, func(e *openpgp.Entity) bool { return isSame(e, wanted[0]) }) {
			return true
		}
	}
	return false
}

func isSame(a, b *openpgp.Entity) bool {
	return bytes.Equal(a.PrimaryKey.Fingerprint, b.PrimaryKey.Fingerprint)
}

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

// open returns the text of what sign made; false if it is of no key that clients are to trust.
func (k *Key) open(signed []byte) ([]byte, bool) { return openBy(k.trustedKeys(), signed) }

// hasSigned reports whether the key itself made it, and not the former one.
func (k *Key) hasSigned(signed []byte) bool {
	_, is := openBy(openpgp.EntityList{k.entity}, signed)
	return is
}

func openBy(keys openpgp.EntityList, signed []byte) ([]byte, bool) {
	block, _ := clearsign.Decode(signed)
	if block == nil {
		return nil, false
	}
	if _, err := block.VerifySignature(keys, config()); err != nil {
		return nil, false
	}

	return block.Plaintext, true
}
