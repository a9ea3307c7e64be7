package tpm

import (
	"bytes"
	"crypto/rand"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/tpm/tpmtest"
)

var pcrs = []uint{7}

// TestASecretIsUnsealedByItsOwnTPMAlone across a reset of the TPM, by no other one, and not when the firmware measured
// something else.
func TestASecretIsUnsealedByItsOwnTPMAlone(t *testing.T) {
	own, other := t.TempDir(), t.TempDir()
	secret := make([]byte, 32)
	rand.Read(secret)

	machine := tpmtest.Start(t, own)
	sealed, err := Seal(machine.Open(t), secret, pcrs)
	require.NoError(t, err)
	assert.NotContains(t, string(sealed.Private)+string(sealed.Public), string(secret))
	got, err := Unseal(machine.Open(t), sealed)
	require.NoError(t, err)
	assert.Equal(t, secret, got)
	machine.Stop()

	again := tpmtest.Start(t, own)
	for range 20 { // nothing is left in the TPM that would fill it
		got, err = Unseal(again.Open(t), sealed)
		require.NoError(t, err, "after a reset")
	}
	assert.Equal(t, secret, got)

	extend(t, again.Open(t), 4)
	_, err = Unseal(again.Open(t), sealed)
	require.NoError(t, err, "another kernel is measured into a PCR that is not asked for")
	extend(t, again.Open(t), 7)
	_, err = Unseal(again.Open(t), sealed)
	assert.ErrorIs(t, err, ErrMeasurements)

	_, err = Unseal(tpmtest.Start(t, other).Open(t), sealed)
	assert.ErrorIs(t, err, ErrOtherTPM)
}

// TestAForgedSealIsRefused: neither the object nor its policy can be replaced by whoever has the stick.
func TestAForgedSealIsRefused(t *testing.T) {
	machine := tpmtest.Start(t, t.TempDir()).Open(t)
	sealed, err := Seal(machine, []byte("a secret of sixteen bytes, or more"), pcrs)
	require.NoError(t, err)

	free := sealed
	free.PCRs = []uint{23}
	_, err = Unseal(machine, free)
	assert.ErrorIs(t, err, ErrMeasurements, "another PCR than the policy's")

	for _, part := range []*[]byte{&free.Public, &free.Private} {
		free = sealed
		*part = append([]byte(nil), *part...)
		(*part)[len(*part)-1] ^= 1
		_, err = Unseal(machine, free)
		assert.Error(t, err)
		*part = nil
		_, err = Unseal(machine, free)
		assert.Error(t, err)
	}
}

// TestAForeignStorageKeyIsToldNothing: what answers in place of the TPM, under the name of its key, is not taken for
// it.
func TestAForeignStorageKeyIsToldNothing(t *testing.T) {
	own := tpmtest.Start(t, t.TempDir()).Open(t)
	sealed, err := Seal(own, []byte("a secret of sixteen bytes, or more"), pcrs)
	require.NoError(t, err)
	key, err := createStorageKey(own)
	require.NoError(t, err)
	foreign, err := createStorageKey(tpmtest.Start(t, t.TempDir()).Open(t))
	require.NoError(t, err)
	key.flush(own)

	_, err = Unseal(between{own, point(t, key), point(t, foreign)}, sealed)
	assert.ErrorIs(t, err, ErrOtherTPM)
}

// point is what a storage key's public part has of its own: one coordinate of a point.
func point(t *testing.T, k storageKey) []byte {
	t.Helper()
	p, err := k.public.Unique.ECC()
	require.NoError(t, err)
	return p.X.Buffer
}

// between is a TPM with something on its bus that replaces bytes of its answers.
type between struct {
	transport.TPM
	old, new []byte
}

func (b between) Send(command []byte) ([]byte, error) {
	answer, err := b.TPM.Send(command)
	return bytes.ReplaceAll(answer, b.old, b.new), err
}

func extend(t *testing.T, machine transport.TPM, pcr tpm2.TPMHandle) {
	t.Helper()
	_, err := tpm2.PCRExtend{
		PCRHandle: tpm2.AuthHandle{Handle: pcr, Auth: tpm2.PasswordAuth(nil)},
		Digests:   tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: tpm2.TPMAlgSHA256, Digest: make([]byte, 32)}}},
	}.Execute(machine)
	require.NoError(t, err)
}
