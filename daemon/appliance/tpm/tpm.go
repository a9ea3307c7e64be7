// Package tpm seals a secret to the TPM 2.0 of this machine and to what its firmware measured, and unseals it there
// (TCG, "TPM 2.0 Library", part 1, chapters 23 and 36). It asks nothing of the TPM that outlives a reset: the storage
// key is derived from the TPM's own seed each time, and the sealed secret is kept by the caller.
package tpm

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

var (
	// ErrOtherTPM says that a secret was sealed by another TPM, or by this one before it was cleared.
	ErrOtherTPM = errors.New("sealed by another TPM, or by this one before it was cleared")
	// ErrMeasurements says that the firmware measured something else than when the secret was sealed.
	ErrMeasurements = errors.New("the firmware measured something else than when it was sealed")
)

// Sealed is a secret that only the TPM that sealed it unseals, and only while its PCRs have the values of then.
type Sealed struct {
	Parent  []byte `json:"parent"`  // name of the TPM's storage key (TPM2B_NAME's buffer)
	Public  []byte `json:"public"`  // TPM2B_PUBLIC's buffer
	Private []byte `json:"private"` // TPM2B_PRIVATE's buffer, encrypted by the storage key
	PCRs    []uint `json:"pcrs"`    // of the bank SHA-256
}

// Seal seals up to 128 bytes to t and to what its PCRs hold now, of the bank SHA-256.
func Seal(t transport.TPM, secret []byte, pcrs []uint) (Sealed, error) {
	srk, err := createStorageKey(t)
	if err != nil {
		return Sealed{}, fmt.Errorf("seal by TPM: %w", err)
	}
	defer srk.flush(t)

	policy, err := policyDigest(t, pcrs)
	if err != nil {
		return Sealed{}, fmt.Errorf("seal by TPM: %w", err)
	}

	made, err := tpm2.Create{
		ParentHandle: tpm2.AuthHandle{
			Handle: srk.handle,
			Name:   srk.name,
			// Encrypted, so that whoever listens on the bus does not hear the secret.
			Auth: tpm2.HMAC(tpm2.TPMAlgSHA256, 16, tpm2.Salted(srk.handle, srk.public),
				tpm2.AESEncryption(128, tpm2.EncryptIn)),
		},
		InSensitive: tpm2.TPM2BSensitiveCreate{Sensitive: &tpm2.TPMSSensitiveCreate{
			Data: tpm2.NewTPMUSensitiveCreate(&tpm2.TPM2BSensitiveData{Buffer: secret}),
		}},
		InPublic: tpm2.New2B(tpm2.TPMTPublic{
			Type:             tpm2.TPMAlgKeyedHash,
			NameAlg:          tpm2.TPMAlgSHA256,
			ObjectAttributes: tpm2.TPMAObject{FixedTPM: true, FixedParent: true, NoDA: true},
			AuthPolicy:       policy,
		}),
	}.Execute(t)
	if err != nil {
		return Sealed{}, fmt.Errorf("seal by TPM: %w", err)
	}

	return Sealed{
		Parent:  srk.name.Buffer,
		Public:  made.OutPublic.Bytes(),
		Private: made.OutPrivate.Buffer,
		PCRs:    pcrs,
	}, nil
}

// Unseal returns the secret. ErrOtherTPM and ErrMeasurements say that t must not know it; any other error may pass.
func Unseal(t transport.TPM, s Sealed) ([]byte, error) {
	srk, err := createStorageKey(t)
	if err != nil {
		return nil, fmt.Errorf("unseal by TPM: %w", err)
	}
	defer srk.flush(t)

	if !bytes.Equal(srk.name.Buffer, s.Parent) {
		return nil, fmt.Errorf("unseal by TPM: %w", ErrOtherTPM)
	}

	loaded, err := tpm2.Load{
		ParentHandle: tpm2.AuthHandle{Handle: srk.handle, Name: srk.name, Auth: tpm2.PasswordAuth(nil)},
		InPrivate:    tpm2.TPM2BPrivate{Buffer: s.Private},
		InPublic:     tpm2.BytesAs2B[tpm2.TPMTPublic](s.Public),
	}.Execute(t)
	if err != nil {
		return nil, fmt.Errorf("unseal by TPM: load: %w", err)
	}
	defer flush(t, loaded.ObjectHandle)

	out, err := tpm2.Unseal{ItemHandle: tpm2.AuthHandle{
		Handle: loaded.ObjectHandle,
		Name:   loaded.Name,
		Auth: tpm2.Policy(tpm2.TPMAlgSHA256, 16, func(t transport.TPM, session tpm2.TPMISHPolicy, _ tpm2.TPM2BNonce) error {
			_, err := tpm2.PolicyPCR{PolicySession: session, Pcrs: selection(s.PCRs)}.Execute(t)
			return err
		}, tpm2.Salted(srk.handle, srk.public), tpm2.AESEncryption(128, tpm2.EncryptOut)),
	}}.Execute(t)
	switch {
	case errors.Is(err, tpm2.TPMRCPolicyFail):
		return nil, fmt.Errorf("unseal by TPM: %w", ErrMeasurements)
	case err != nil:
		return nil, fmt.Errorf("unseal by TPM: %w", err)
	}

	return out.OutData.Buffer, nil
}

// storageKey is a TPM's primary storage key while it is loaded.
type storageKey struct {
	handle tpm2.TPMHandle
	name   tpm2.TPM2BName
	public tpm2.TPMTPublic
}

func (k storageKey) flush(t transport.TPM) { flush(t, k.handle) }

// createStorageKey derives the key from the TPM's own seed: the same one each time, until the TPM is cleared (TCG,
// "EK Credential Profile" and "Provisioning Guidance", template of the SRK for ECC P-256).
func createStorageKey(t transport.TPM) (storageKey, error) {
	made, err := tpm2.CreatePrimary{
		PrimaryHandle: tpm2.TPMRHOwner,
		InPublic:      tpm2.New2B(tpm2.ECCSRKTemplate),
	}.Execute(t)
	if err != nil {
		return storageKey{}, fmt.Errorf("storage key: %w", err)
	}

	public, err := made.OutPublic.Contents()
	if err != nil {
		flush(t, made.ObjectHandle)
		return storageKey{}, fmt.Errorf("storage key: %w", err)
	}

	// Computed, not as it was answered: what sits on the bus may put a key of its own there, and would be told the secret.
	name, err := tpm2.ObjectName(public)
	if err != nil {
		flush(t, made.ObjectHandle)
		return storageKey{}, fmt.Errorf("storage key: %w", err)
	}

	return storageKey{handle: made.ObjectHandle, name: *name, public: *public}, nil
}

// policyDigest is the policy that the PCRs hold what they hold now.
func policyDigest(t transport.TPM, pcrs []uint) (tpm2.TPM2BDigest, error) {
	read, err := tpm2.PCRRead{PCRSelectionIn: selection(pcrs)}.Execute(t)
	if err != nil {
		return tpm2.TPM2BDigest{}, fmt.Errorf("read PCRs: %w", err)
	}
	if len(read.PCRValues.Digests) != len(pcrs) {
		return tpm2.TPM2BDigest{}, errNoBank
	}

	session, end, err := tpm2.PolicySession(t, tpm2.TPMAlgSHA256, 16, tpm2.Trial())
	if err != nil {
		return tpm2.TPM2BDigest{}, fmt.Errorf("policy of PCRs: %w", err)
	}
	defer func() { _ = end() }()

	if _, err := (tpm2.PolicyPCR{PolicySession: session.Handle(), Pcrs: selection(pcrs)}).Execute(t); err != nil {
		return tpm2.TPM2BDigest{}, fmt.Errorf("policy of PCRs: %w", err)
	}

	digest, err := tpm2.PolicyGetDigest{PolicySession: session.Handle()}.Execute(t)
	if err != nil {
		return tpm2.TPM2BDigest{}, fmt.Errorf("policy of PCRs: %w", err)
	}

	return digest.PolicyDigest, nil
}

func selection(pcrs []uint) tpm2.TPMLPCRSelection {
	return tpm2.TPMLPCRSelection{PCRSelections: []tpm2.TPMSPCRSelection{{
		Hash:      tpm2.TPMAlgSHA256,
		PCRSelect: tpm2.PCClientCompatible.PCRs(pcrs...),
	}}}
}

// flush frees a TPM's memory; what is left there ends with the resource manager's session.
func flush(t transport.TPM, handle tpm2.TPMHandle) {
	_, _ = tpm2.FlushContext{FlushHandle: handle}.Execute(t)
}
