package signature_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/blake2b"
	"golang.org/x/crypto/scrypt"

	"firstlight.dev/firstlight/assets/signature"
)

func newKey(t *testing.T) signature.PrivateKey {
	t.Helper()
	key, err := signature.NewPrivateKey()
	require.NoError(t, err)
	return key
}

var (
	content = []byte(strings.Repeat("what a node is installed with\n", 10))
	digest  = fmt.Sprintf("%x", sha256.Sum256(content))
	slot    = strings.Repeat("5107", 16)
)

func sign(t *testing.T, key signature.PrivateKey) signature.Signature {
	t.Helper()
	s, err := key.Sign(t.Context(), bytes.NewReader(content), "dir/debian.qcow2", slot)
	require.NoError(t, err)
	return s
}

func TestWhatWasSignedIsKnown(t *testing.T) {
	key, other := newKey(t), newKey(t)
	s := sign(t, key)
	assert.Equal(t, s.Text(), sign(t, key).Text(), "the same file, the same signature")

	keys := signature.Keys{other.Public(), key.Public()}
	says, by, err := keys.CheckContent(t.Context(), bytes.NewReader(content), s)
	require.NoError(t, err)
	assert.Equal(t, key.Public(), by)
	assert.Equal(t, signature.Statement{File: "debian.qcow2", SHA256: digest, Slot: slot}, says)
	alone, _, err := keys.CheckStatement(s)
	require.NoError(t, err)
	assert.Equal(t, says, alone, "without the file")
}

// TestEachChangedByteIsRefused of the file, of the signature and of the key; but for the first line of a signature, which
// is signed by no one and says nothing.
func TestEachChangedByteIsRefused(t *testing.T) {
	key := newKey(t)
	s, keys := sign(t, key), signature.Keys{key.Public()}
	for i := range content {
		changed := bytes.Clone(content)
		changed[i] ^= 1
		_, _, err := keys.CheckContent(t.Context(), bytes.NewReader(changed), s)
		require.ErrorContains(t, err, "it is not what was signed", "byte %d of the file", i)
	}
	for _, cut := range [][]byte{nil, content[1:], content[:len(content)-1], append(bytes.Clone(content), 0)} {
		_, _, err := keys.CheckContent(t.Context(), bytes.NewReader(cut), s)
		require.Error(t, err)
	}

	text := []byte(s.Text())
	signed := bytes.IndexByte(text, '\n') + 1
	for i := signed; i < len(text)-1; i++ {
		for _, bit := range []byte{1, 2, 4, 0x10, 0x20, 0x80} {
			changed := bytes.Clone(text)
			changed[i] ^= bit
			other, err := signature.Parse(changed)
			if err == nil {
				_, _, err = keys.CheckContent(t.Context(), bytes.NewReader(content), other)
			}
			require.Error(t, err, "byte %d of the signature, %q to %q", i, text[i], changed[i])
			other, err = signature.Parse(changed)
			if err == nil && i > signed+100 { // the statement alone does not need the file's own signature
				_, _, err = keys.CheckStatement(other)
				require.Error(t, err, "byte %d of the statement", i)
			}
		}
	}

	public := key.Public().String()
	for i := range public {
		changed := []byte(public)
		changed[i] ^= 1
		other, err := signature.ParsePublicKey(string(changed))
		if err == nil && other != key.Public() {
			_, _, err = signature.Keys{other}.CheckContent(t.Context(), bytes.NewReader(content), s)
		}
		if other != key.Public() { // the last digit has bits that say nothing
			require.Error(t, err, "byte %d of the key", i)
		}
	}
}

func TestRefusals(t *testing.T) {
	key, other := newKey(t), newKey(t)
	raw := func(comment string, hashed bool) []byte {
		file, err := key.File()
		require.NoError(t, err)
		var private minisign.PrivateKey
		require.NoError(t, private.UnmarshalText(bytes.TrimSpace(file)))
		if !hashed {
			return minisign.SignWithComments(private, content, comment, "none")
		}
		r := minisign.NewReader(bytes.NewReader(content))
		_, err = io.Copy(io.Discard, r)
		require.NoError(t, err)
		return r.SignWithComments(private, comment, "none")
	}
	good := "sha256:" + digest
	for _, c := range []struct {
		name string
		text []byte
		keys signature.Keys
		says string // "" if it is good
	}{
		{"minisign's own, with the digest", raw("timestamp:1\tfile:x\thashed\t"+good, true), signature.Keys{key.Public()}, ""},
		{"no keys", raw(good, true), nil, "no key is known"},
		{"another key", raw(good, true), signature.Keys{other.Public()}, "which is not known here; known: " + other.Public().ID()},
		{"no digest", raw("timestamp:1\tfile:x", true), signature.Keys{key.Public()}, "does not say the file's sha256"},
		{"two digests", raw(good+"\t"+good, true), signature.Keys{key.Public()}, "says sha256 twice"},
		{"upper case", raw(strings.ToUpper(good), true), signature.Keys{key.Public()}, "does not say the file's sha256"},
		{"half a digest", raw(good[:40], true), signature.Keys{key.Public()}, "is no SHA-256"},
		{"the old form", raw(good, false), signature.Keys{key.Public()}, "signs the file itself"},
		{"nothing", nil, signature.Keys{key.Public()}, "no signature of minisign"},
		{"a disk", bytes.Repeat([]byte{0x55, 0xaa}, 4000), signature.Keys{key.Public()}, "no signature of minisign"},
		{"more lines", append(raw(good, true), "more\n"...), signature.Keys{key.Public()}, "no signature of minisign"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := signature.Parse(c.text)
			if err == nil {
				_, _, err = c.keys.CheckStatement(s)
			}
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestKeys(t *testing.T) {
	key := newKey(t)
	file, err := key.File()
	require.NoError(t, err)
	again, err := signature.ParsePrivateKey(file, nil)
	require.NoError(t, err)
	assert.Equal(t, key.Public(), again.Public())
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v", key, key, key), "raw")

	for _, text := range []string{key.Public().String(), string(key.Public().File()), " " + key.Public().String() + "\r\n"} {
		public, err := signature.ParsePublicKey(text)
		require.NoError(t, err, text)
		assert.Equal(t, key.Public(), public)
	}
	_, err = signature.ParsePublicKey(string(file))
	require.ErrorContains(t, err, "this is a signing key")
	_, err = signature.ParsePublicKey("RWnone")
	require.ErrorContains(t, err, "not the public half")

	locked := lock(t, file, "open")
	again, err = signature.ParsePrivateKey(locked, func() (string, error) { return "open", nil })
	require.NoError(t, err)
	assert.Equal(t, key.Public(), again.Public())
	_, err = signature.ParsePrivateKey(locked, func() (string, error) { return "closed", nil })
	require.ErrorContains(t, err, "the password is not that")
	_, err = signature.ParsePrivateKey([]byte("nothing"), nil)
	require.ErrorContains(t, err, "no signing key")
}

// lock protects a key with a password as minisign does, with the least that scrypt can cost: minisign itself takes a GiB.
func lock(t *testing.T, file []byte, password string) []byte {
	t.Helper()
	comment, text, _ := bytes.Cut(bytes.TrimSpace(file), []byte("\n"))
	raw, err := base64.StdEncoding.DecodeString(string(text))
	require.NoError(t, err)
	copy(raw[2:], "Sc")
	check := blake2b.Sum256(append([]byte("Ed"), raw[54:126]...))
	copy(raw[126:], check[:])
	stream, err := scrypt.Key([]byte(password), raw[6:38], 2, 8, 512, 104)
	require.NoError(t, err)
	for i, b := range stream {
		raw[54+i] ^= b
	}
	return fmt.Appendf(nil, "%s\n%s\n", comment, base64.StdEncoding.EncodeToString(raw))
}

func TestAFileWithoutASignatureIsUnsigned(t *testing.T) {
	key := newKey(t)
	path := filepath.Join(t.TempDir(), "x.img")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	_, _, err := signature.Keys{key.Public()}.CheckFile(t.Context(), path)
	require.ErrorIs(t, err, signature.ErrUnsigned)
	require.NoError(t, os.WriteFile(path+signature.Suffix, []byte(sign(t, key).Text()), 0o600))
	_, _, err = signature.Keys{key.Public()}.CheckFile(t.Context(), path)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = signature.Keys{key.Public()}.CheckFile(ctx, path)
	require.True(t, errors.Is(err, context.Canceled))
}

// TestMinisignAgrees with this program, and this program with it.
func TestMinisignAgrees(t *testing.T) {
	program, err := exec.LookPath("minisign")
	if err != nil {
		t.Skip("minisign is not installed; it is the other implementation")
	}
	dir, key := t.TempDir(), newKey(t)
	path := filepath.Join(dir, "x.img")
	file, err := key.File()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	require.NoError(t, os.WriteFile(path+signature.Suffix, []byte(sign(t, key).Text()), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key"), file, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key.pub"), key.Public().File(), 0o600))
	out, err := exec.Command(program, "-Vm", path, "-p", filepath.Join(dir, "key.pub")).CombinedOutput()
	require.NoError(t, err, "%s", out)

	require.NoError(t, os.Remove(path+signature.Suffix))
	out, err = exec.Command(program, "-Sm", path, "-s", filepath.Join(dir, "key"), "-W",
		"-t", "sha256:"+digest).CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, _, err = signature.Keys{key.Public()}.CheckFile(t.Context(), path)
	require.NoError(t, err)
}

func FuzzParse(f *testing.F) {
	key, err := signature.NewPrivateKey()
	require.NoError(f, err)
	s, err := key.Sign(f.Context(), bytes.NewReader(content), "x", "")
	require.NoError(f, err)
	f.Add([]byte(s.Text()))
	f.Add([]byte("untrusted comment: \n\ntrusted comment: \n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := signature.Parse(text)
		if err != nil {
			return
		}
		_, _, _ = signature.Keys{key.Public()}.CheckStatement(s)
		again, err := signature.Parse([]byte(s.Text()))
		require.NoError(t, err)
		require.Equal(t, s, again)
	})
}
