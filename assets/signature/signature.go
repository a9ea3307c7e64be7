// Package signature signs files and checks who signed them. Keys and signatures are those of minisign (Ed25519 of a
// BLAKE2b-512 digest, so that a file of any size is read once, as a stream), which checks them without this program. The
// trusted comment, which is signed as well, says the file's SHA-256, and of the image of a stick what its slot starts:
// whoever knows one of these by other means checks the signature without reading the file.
package signature

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"aead.dev/minisign"
)

// Suffix is what the signature of a file is called beyond the file's name. MaxBytes is the most that one has.
const (
	Suffix   = ".minisig"
	MaxBytes = 1024
)

// ErrUnsigned is wrapped by errors about a file without a signature.
var ErrUnsigned = errors.New("it is not signed")

// Statement is what a signature says of its file. Whoever made the signature says so, and no one else can have changed it.
type Statement struct {
	File   string // its name when it was signed
	SHA256 string // of its content, 64 lower-case hexadecimal digits
	Slot   string // of the image of a stick: sha256 of its boot partition, as fat.Volume.Digest has it; "" for other files
}

// comment is the statement as a trusted comment: minisign's own form, key:value between tabs.
func (s Statement) comment() string {
	text := "file:" + s.File + "\tsha256:" + s.SHA256
	if s.Slot != "" {
		text += "\tslot:" + s.Slot
	}
	return text
}

var reDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// parseStatement reads a trusted comment. What it does not know is passed over, such as minisign's timestamp.
func parseStatement(comment string) (Statement, error) {
	var s Statement
	for field := range strings.SplitSeq(comment, "\t") {
		name, value, _ := strings.Cut(field, ":")
		to := map[string]*string{"file": &s.File, "sha256": &s.SHA256, "slot": &s.Slot}[name]
		switch {
		case to == nil:
		case *to != "":
			return Statement{}, fmt.Errorf("its trusted comment says %s twice", name)
		case to != &s.File && !reDigest.MatchString(value):
			return Statement{}, fmt.Errorf("its trusted comment has a %s that is no SHA-256", name)
		default:
			*to = value
		}
	}
	if s.SHA256 == "" {
		return Statement{}, errors.New("its trusted comment does not say the file's sha256; sign it with firstlight sign, " +
			"or give minisign -t 'sha256:DIGEST'")
	}
	return s, nil
}

// Signature is a signature that was read and not checked yet.
type Signature struct {
	text string
	raw  minisign.Signature
}

// Parse reads a signature. There is one text for a signature, but for its first line, which is signed by no one: another
// one is refused, and so is the old form, which signs the file itself and not its digest.
func Parse(text []byte) (Signature, error) {
	s := Signature{text: strings.TrimRight(string(text), "\n") + "\n"}
	if len(text) > MaxBytes {
		return s, fmt.Errorf("it is no signature of minisign, which has at most %d bytes", MaxBytes)
	}
	if err := s.raw.UnmarshalText([]byte(s.text)); err != nil {
		return s, errors.New("it is no signature of minisign")
	}
	if again, err := s.raw.MarshalText(); err != nil || string(again) != s.text {
		return s, errors.New("it is no signature of minisign: it is written in another way than minisign does")
	}
	if s.raw.Algorithm != minisign.HashEdDSA {
		return s, errors.New("it signs the file itself and not its digest; sign the file again with firstlight sign")
	}
	return s, nil
}

// ReadFile reads the signature at path. A file that is not there is an error that wraps ErrUnsigned.
func ReadFile(path string) (Signature, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Signature{}, fmt.Errorf("%w: there is no file %s", ErrUnsigned, path)
	}
	if err != nil {
		return Signature{}, fmt.Errorf("read signature: %w", err)
	}
	defer f.Close()

	text, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return Signature{}, fmt.Errorf("read signature: %w", err)
	}

	s, err := Parse(text)
	if err != nil {
		return s, fmt.Errorf("read signature %s: %w", path, err)
	}
	return s, nil
}

// Text is the signature as a file has it.
func (s Signature) Text() string { return s.text }

// Keys are the public keys whose signatures count.
type Keys []PublicKey

// NewKeys are keys that were parsed before, such as those of a site.
func NewKeys[T ~string](texts []T) Keys {
	var keys Keys
	for _, text := range texts {
		keys = append(keys, PublicKey(text))
	}
	return keys
}

// find is the key that a signature names.
func (k Keys) find(s Signature) (PublicKey, error) {
	if len(k) == 0 {
		return "", errors.New("no key is known")
	}

	var ids []string
	for _, key := range k {
		raw, err := key.parse()
		if err != nil {
			return "", err
		}
		if raw.ID() == s.raw.KeyID {
			return key, nil
		}
		ids = append(ids, key.ID())
	}

	return "", fmt.Errorf("it is signed with the key %s, which is not known here; known: %s", formatID(s.raw.KeyID),
		strings.Join(ids, ", "))
}

// CheckStatement returns what a signature says of its file, and the key that it was made with, if that is one of the
// keys. The file itself is not read.
func (k Keys) CheckStatement(s Signature) (Statement, PublicKey, error) {
	key, err := k.find(s)
	if err != nil {
		return Statement{}, "", err
	}

	// The comment is signed together with the signature of the file ("global signature" of minisign).
	if !ed25519.Verify(key.bytes(), append(s.raw.Signature[:], s.raw.TrustedComment...), s.raw.CommentSignature[:]) {
		return Statement{}, "", fmt.Errorf("its signature by the key %s was changed, or is not by that key", key.ID())
	}

	statement, err := parseStatement(s.raw.TrustedComment)
	return statement, key, err
}

// CheckContent is CheckStatement, and checks that r is the file that was signed.
func (k Keys) CheckContent(ctx context.Context, r io.Reader, s Signature) (Statement, PublicKey, error) {
	statement, key, err := k.CheckStatement(s)
	if err != nil {
		return statement, key, err
	}

	raw, err := key.parse()
	if err != nil {
		return statement, key, err
	}
	hashed := minisign.NewReader(contextReader{ctx, r})
	if _, err := io.Copy(io.Discard, hashed); err != nil {
		return statement, key, fmt.Errorf("read what was signed: %w", err)
	}
	if !hashed.Verify(raw, []byte(s.text)) {
		return statement, key, fmt.Errorf("it is not what was signed with the key %s: it was changed, or is damaged", key.ID())
	}

	return statement, key, nil
}

// CheckFile is CheckContent of the file at path, by the signature next to it.
func (k Keys) CheckFile(ctx context.Context, path string) (Statement, PublicKey, error) {
	s, err := ReadFile(path + Suffix)
	if err != nil {
		return Statement{}, "", err
	}

	f, err := os.Open(path)
	if err != nil {
		return Statement{}, "", fmt.Errorf("read what was signed: %w", err)
	}
	defer f.Close()
	return k.CheckContent(ctx, f, s)
}

// contextReader ends with its context.
type contextReader struct {
	ctx  context.Context
	from io.Reader
}

func (r contextReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(b)
}

// bytes are the key as Ed25519 has it: behind two bytes of the algorithm and eight of the ID.
func (k PublicKey) bytes() ed25519.PublicKey {
	raw, _ := base64.StdEncoding.DecodeString(string(k)) // it was parsed
	return raw[10:]
}
