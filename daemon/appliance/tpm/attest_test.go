package tpm

import (
	"bytes"
	"crypto/rand"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/attestation"
	"firstlight.dev/firstlight/daemon/appliance/tpm/tpmtest"
)

func newNonce() []byte {
	nonce := make([]byte, attestation.MaxNonce)
	rand.Read(nonce)
	return nonce
}

// TestAnAttestationIsOfOneTPMForOneNonce: its key is the same one after a power cut and when the TPM was cleared, and
// whatever is changed or comes from elsewhere is refused by its own error.
func TestAnAttestationIsOfOneTPMForOneNonce(t *testing.T) {
	dir, nonce := t.TempDir(), newNonce()
	machine := tpmtest.Start(t, dir)
	extend(t, machine.Open(t), 9)
	a, err := Attest(machine.Open(t), nonce)
	require.NoError(t, err)
	require.NoError(t, a.Check(nonce, ""))
	require.NoError(t, a.Check(nonce, a.Fingerprint()))
	assert.ErrorIs(t, a.Check(newNonce(), ""), attestation.ErrNonce)
	assert.ErrorIs(t, a.Check(nil, ""), attestation.ErrNonce)

	other, err := Attest(tpmtest.Start(t, t.TempDir()).Open(t), nonce)
	require.NoError(t, err)
	require.NoError(t, other.Check(nonce, ""))
	assert.ErrorIs(t, other.Check(nonce, a.Fingerprint()), attestation.ErrKey)
	mixed := a
	mixed.Quote, mixed.PCRs = other.Quote, other.PCRs
	assert.ErrorIs(t, mixed.Check(nonce, ""), attestation.ErrSignature, "another TPM's quote under this key")
	mixed = a
	mixed.Key = other.Key
	assert.ErrorIs(t, mixed.Check(nonce, ""), attestation.ErrSignature)

	_, err = tpm2.Clear{AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHLockout, Auth: tpm2.PasswordAuth(nil)}}.Execute(machine.Open(t))
	require.NoError(t, err)
	machine.Stop()
	again := tpmtest.Start(t, dir)
	var b attestation.Attestation
	for range 20 { // nothing is left in the TPM that would fill it
		b, err = Attest(again.Open(t), newNonce())
		require.NoError(t, err)
	}
	assert.Equal(t, a.Fingerprint(), b.Fingerprint())
	assert.NotEqual(t, a.PCRs[9], b.PCRs[9], "PCR 9 was extended before the reset")

	b.PCRs = a.PCRs
	b.Quote, b.Signature = bytes.Clone(a.Quote), a.Signature
	require.NoError(t, b.Check(nonce, a.Fingerprint()))
	b.PCRs = append([][]byte{a.PCRs[9]}, a.PCRs[1:]...)
	assert.ErrorIs(t, b.Check(nonce, ""), attestation.ErrPCRs)
	b.PCRs = a.PCRs[:10]
	assert.ErrorIs(t, b.Check(nonce, ""), attestation.ErrPCRs)
	b.PCRs = [][]byte{bytes.Join(a.PCRs[:2], nil)} // the same bytes, divided otherwise
	b.PCRs = append(b.PCRs, a.PCRs[2:]...)
	assert.ErrorIs(t, b.Check(nonce, ""), attestation.ErrPCRs)
	b.PCRs = a.PCRs
	for i := range b.Quote {
		b.Quote[i] ^= 1
		assert.ErrorIs(t, b.Check(nonce, ""), attestation.ErrSignature, "byte %d", i)
		b.Quote[i] ^= 1
	}
}

// TestOnlyWhatTheTPMSaysOfItselfIsAQuote: a key that signs whatever it is given is refused, and so is a quote of other
// PCRs than those that are asked for.
func TestOnlyWhatTheTPMSaysOfItselfIsAQuote(t *testing.T) {
	machine, nonce := tpmtest.Start(t, t.TempDir()).Open(t), newNonce()
	quote := func(template tpm2.TPMTPublic, pcrs tpm2.TPMLPCRSelection) attestation.Attestation {
		key, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHEndorsement, InPublic: tpm2.New2B(template)}.Execute(machine)
		require.NoError(t, err)
		defer flush(machine, key.ObjectHandle)
		q, err := tpm2.Quote{
			SignHandle:     tpm2.AuthHandle{Handle: key.ObjectHandle, Name: key.Name, Auth: tpm2.PasswordAuth(nil)},
			QualifyingData: tpm2.TPM2BData{Buffer: nonce},
			InScheme:       tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgNull},
			PCRSelect:      pcrs,
		}.Execute(machine)
		require.NoError(t, err)
		a, err := Attest(machine, nonce)
		require.NoError(t, err)
		a.Key, a.Quote, a.Signature = key.OutPublic.Bytes(), q.Quoted.Bytes(), tpm2.Marshal(q.Signature)
		return a
	}
	require.NoError(t, quote(attestationTemplate, attestation.Selection()).Check(nonce, ""))

	free := attestationTemplate
	free.ObjectAttributes.Restricted = false
	assert.ErrorIs(t, quote(free, attestation.Selection()).Check(nonce, ""), attestation.ErrSignature)
	assert.ErrorIs(t, quote(attestationTemplate, selection([]uint{0, 23})).Check(nonce, ""), attestation.ErrPCRs)
}

// FuzzCheck: whatever a machine answers, it is checked or refused.
func FuzzCheck(f *testing.F) {
	nonce := newNonce()
	a, err := Attest(tpmtest.Start(f, f.TempDir()).Open(f), nonce)
	require.NoError(f, err)
	f.Add(a.Key, a.Quote, a.Signature)
	f.Fuzz(func(t *testing.T, key, quote, signature []byte) {
		b := attestation.Attestation{Key: key, Quote: quote, Signature: signature, PCRs: a.PCRs}
		if b.Check(nonce, a.Fingerprint()) == nil {
			assert.Equal(t, a.Quote, quote)
		}
	})
}
