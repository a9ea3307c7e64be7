package secureboot_test

import (
	"bytes"
	"crypto/x509"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/secureboot"
	"firstlight.dev/firstlight/assets/secureboot/secureboottest"
)

func newKey(t testing.TB, name string) secureboot.Key {
	t.Helper()
	k, err := secureboot.NewKey(name, time.Now())
	require.NoError(t, err)
	return k
}

func program() []byte { return secureboottest.Program([]byte("behind")) }

func TestASignedProgramIsTrusted(t *testing.T) {
	owner, other := newKey(t, "owner"), newKey(t, "other")
	trusted := []*x509.Certificate{owner.Certificate}
	require.ErrorContains(t, secureboot.Verify("x.efi", program(), trusted), "x.efi: none of these keys has signed it")

	signed, err := owner.Sign("x.efi", program())
	require.NoError(t, err)
	require.NoError(t, secureboot.Verify("x.efi", signed, trusted))
	require.Error(t, secureboot.Verify("x.efi", signed, []*x509.Certificate{other.Certificate}))

	// Whoever signs it as well leaves the first signature good.
	twice, err := other.Sign("x.efi", signed)
	require.NoError(t, err)
	require.NoError(t, secureboot.Verify("x.efi", twice, trusted))
	require.NoError(t, secureboot.Verify("x.efi", twice, []*x509.Certificate{other.Certificate}))
}

// TestEveryByteOfAProgramIsSigned but for the checksum, which Authenticode leaves out.
func TestEveryByteOfAProgramIsSigned(t *testing.T) {
	owner := newKey(t, "owner")
	signed, err := owner.Sign("x.efi", program())
	require.NoError(t, err)
	for at := range len(program()) {
		if at >= 0x98+64 && at < 0x98+68 {
			continue
		}
		changed := bytes.Clone(signed)
		changed[at] ^= 0x40
		require.Error(t, secureboot.Verify("x.efi", changed, []*x509.Certificate{owner.Certificate}), "byte %#x", at)
	}
}

// headersEndEarly is a program without sections whose headers, as it says, end before the place for signatures.
func headersEndEarly() []byte {
	b := program()
	binary.LittleEndian.PutUint16(b[0x80+6:], 0)
	binary.LittleEndian.PutUint16(b[0x80+20:], 0)
	binary.LittleEndian.PutUint32(b[0x98+60:], 0x98)
	return b
}

func TestHeadersThatEndEarlyAreRefused(t *testing.T) {
	owner := newKey(t, "owner")
	require.ErrorContains(t, secureboot.Verify("x.efi", headersEndEarly(), nil), "x.efi: no EFI program: its headers")
	_, err := owner.Sign("x.efi", headersEndEarly())
	require.ErrorContains(t, err, "no EFI program: its headers")
}

// TestSignaturesNestedWithoutEndAreRefused: to read them would take the memory of the machine.
func TestSignaturesNestedWithoutEndAreRefused(t *testing.T) {
	signature := bytes.Repeat([]byte{0x30, 0x80}, 1<<19)
	b := append(secureboottest.Program(nil), make([]byte, 8)...)
	le := binary.LittleEndian
	le.PutUint32(b[0x98+144:], uint32(len(b)-8))
	le.PutUint32(b[0x98+148:], uint32(8+len(signature)))
	le.PutUint32(b[len(b)-8:], uint32(8+len(signature)))
	copy(b[len(b)-4:], "\x00\x02\x02\x00")
	owner := newKey(t, "owner").Certificate
	err := secureboot.Verify("x.efi", append(b, signature...), []*x509.Certificate{owner})
	require.ErrorContains(t, err, "x.efi: an EFI program with more signatures than are read")
}

func FuzzVerify(f *testing.F) {
	owner := newKey(f, "owner")
	signed, err := owner.Sign("x.efi", program())
	require.NoError(f, err)
	f.Add(signed)
	f.Add(program())
	f.Add(headersEndEarly())
	f.Fuzz(func(t *testing.T, b []byte) {
		if secureboot.Verify("x", b, []*x509.Certificate{owner.Certificate}) == nil {
			p := program()
			assert.Equal(t, p[:0x98+64], b[:0x98+64], "another program is trusted")
		}
	})
}

func FuzzParseLists(f *testing.F) {
	f.Add(secureboot.List(newKey(f, "owner").Certificate))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = secureboot.ParseLists(b) })
}

func TestAFileIsSignedForGRUB(t *testing.T) {
	owner, other := newKey(t, "owner"), newKey(t, "other")
	content := []byte("set verity=0123\n")
	signature, err := owner.SignFile(content)
	require.NoError(t, err)
	public := &owner.Private.PublicKey
	require.NoError(t, secureboot.VerifyFile(public, content, signature))
	require.Error(t, secureboot.VerifyFile(public, []byte("set verity=0124\n"), signature))
	require.Error(t, secureboot.VerifyFile(&other.Private.PublicKey, content, signature))
	for at := range signature {
		changed := bytes.Clone(signature)
		changed[at] ^= 1
		if at == 1 || at == 2 || at >= 15 && at < 19 || at >= 27 && at < 31 {
			continue // lengths that are known, and a hint
		}
		require.Error(t, secureboot.VerifyFile(public, content, changed), "byte %d", at)
	}
}

func TestTheKeyOfAGRUBIsReplaced(t *testing.T) {
	owner := newKey(t, "owner")
	assert.Len(t, secureboot.PlaceholderKey(), secureboot.PublicKeySize)
	grub := append(append([]byte("before"), secureboot.PlaceholderKey()...), "behind"...)
	owned, err := secureboot.PutGRUBKey(grub, &owner.Private.PublicKey)
	require.NoError(t, err)
	assert.Equal(t, append(append([]byte("before"), secureboot.GRUBKey(&owner.Private.PublicKey)...), "behind"...), owned)
	_, err = secureboot.PutGRUBKey(owned, &owner.Private.PublicKey)
	require.ErrorContains(t, err, "no place for the owner's key")
}

func TestVariablesHaveTheirContent(t *testing.T) {
	owner, other := newKey(t, "owner"), newKey(t, "other")
	content := append(secureboot.List(owner.Certificate), secureboot.List(other.Certificate)...)
	update, err := owner.Update(secureboot.DB, content, time.Now())
	require.NoError(t, err)
	back, err := secureboot.Content(update)
	require.NoError(t, err)
	assert.Equal(t, content, back)
	certificates, err := secureboot.ParseLists(back)
	require.NoError(t, err)
	assert.Equal(t, []*x509.Certificate{owner.Certificate, other.Certificate}, certificates)
	assert.Equal(t, "db-d719b2cb-3d3a-4596-a3bc-dad00e67656f", secureboot.DB.FileName())
	_, err = secureboot.ParseLists(content[:len(content)-1])
	require.Error(t, err)
}

// TestACertificateThatCannotBeReadHidesNoOther: firmware has certificates that Go does not take.
func TestACertificateThatCannotBeReadHidesNoOther(t *testing.T) {
	key := newKey(t, "owner")
	owner := key.Certificate
	bad := &x509.Certificate{Raw: []byte("no certificate")}
	all, err := secureboot.ParseLists(append(secureboot.List(bad), secureboot.List(owner)...))
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.Equal(t, bad.Raw, all[0].Raw)
	assert.Equal(t, secureboot.Unreadable, all[0].Subject.CommonName)
	assert.Equal(t, owner, all[1])

	signed, err := key.Sign("x.efi", program())
	require.NoError(t, err)
	require.NoError(t, secureboot.Verify("x.efi", signed, all))
	require.Error(t, secureboot.Verify("x.efi", signed, all[:1]))
}

// TestOtherToolsAgree asks the tools of the field, where they are installed.
func TestOtherToolsAgree(t *testing.T) {
	owner, dir := newKey(t, "owner"), t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	run := func(name string, args ...string) {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no %s here: Debian's sbsigntool and efitools", name)
		}
		out, err := exec.Command(name, args...).CombinedOutput()
		require.NoError(t, err, "%s %v: %s", name, args, out)
		t.Logf("%s: %s", name, out)
	}

	_, certificate, err := owner.PEM()
	require.NoError(t, err)
	pem := write("owner.crt", certificate)

	signed, err := owner.Sign("x.efi", program())
	require.NoError(t, err)
	run("sbverify", "--cert", pem, write("x.efi", signed))

	list := write("owner.esl", secureboot.List(owner.Certificate))
	run("sig-list-to-certs", list, filepath.Join(dir, "from-list"))
	again, err := os.ReadFile(filepath.Join(dir, "from-list-0.der"))
	require.NoError(t, err)
	assert.Equal(t, owner.Certificate.Raw, again)
}
