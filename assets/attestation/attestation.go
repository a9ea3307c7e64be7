// Package attestation is what a machine says of its boot in a form that another one can check: what its TPM 2.0 signs of
// its measurements for one asker (TCG, "TPM 2.0 Library", part 3, TPM2_Quote), and the firmware's log of what was
// measured. What a check is worth depends on the key: docs/security.md.
package attestation

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"

	"github.com/google/go-tpm/tpm2"
)

// PCRs are those that are quoted, of the bank SHA-256: firmware (0 to 3), boot programs (4), partition table (5), what
// the maker measures (6), Secure Boot (7), GRUB's commands (8) and files (9), shim's keys (14). Others change while the
// system runs.
var PCRs = []uint{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 14}

// Lengths of an asker's nonce, in bytes: one of less could come again, and more is not taken by every TPM.
const (
	MinNonce = 16
	MaxNonce = 32
)

// maxPart bounds the parts that the TPM made, in bytes; they have some 100 each.
const maxPart = 4096

// Errors of Check.
var (
	ErrKey       = errors.New("it is signed by the key of another TPM")
	ErrSignature = errors.New("it is not signed by the key that it names")
	ErrNonce     = errors.New("it was made for another nonce: it is an answer to another question")
	ErrPCRs      = errors.New("its measurements are not those that the TPM signed")
)

// Attestation is a machine's answer to one nonce. What a TPM made is in the TPM's own encoding.
type Attestation struct {
	Key       []byte   `json:"key"`       // TPMT_PUBLIC of the attestation key
	Quote     []byte   `json:"quote"`     // TPMS_ATTEST
	Signature []byte   `json:"signature"` // TPMT_SIGNATURE of Quote by Key
	PCRs      [][]byte `json:"pcrs"`      // values of PCRs, in that order, 32 bytes each
	Log       []byte   `json:"log"`       // the firmware's event log; empty if Linux has none
	// CommandLine is the kernel's. It proves nothing, but may be the text of which the kernel has measured the digest.
	CommandLine string `json:"commandLine"`
}

// Fingerprint names a key: 64 hexadecimal digits, the digest in its TPM's name for it.
func (a Attestation) Fingerprint() string {
	sum := sha256.Sum256(a.Key)
	return hex.EncodeToString(sum[:])
}

// Selection is PCRs in the TPM's words.
func Selection() tpm2.TPMLPCRSelection {
	return tpm2.TPMLPCRSelection{PCRSelections: []tpm2.TPMSPCRSelection{{
		Hash:      tpm2.TPMAlgSHA256,
		PCRSelect: tpm2.PCClientCompatible.PCRs(PCRs...),
	}}}
}

// Check says whether the key with this fingerprint has signed these PCRs for nonce; of any key if fingerprint is "". It
// does not say that the key is in a TPM: whoever asks knows the fingerprint from somewhere, or believes it once.
func (a Attestation) Check(nonce []byte, fingerprint string) error {
	for _, part := range [][]byte{a.Key, a.Quote, a.Signature} {
		if len(part) > maxPart {
			return fmt.Errorf("%w: a part of it has %d bytes", ErrSignature, len(part))
		}
	}
	if fingerprint != "" && a.Fingerprint() != fingerprint {
		return fmt.Errorf("%w: %s, not %s", ErrKey, a.Fingerprint(), fingerprint)
	}
	if err := a.checkSignature(); err != nil {
		return fmt.Errorf("%w: %w", ErrSignature, err)
	}

	// Only a restricted key's signature counts below, and such a key signs nothing that begins like this but what its TPM
	// made; Unmarshal checks the beginning.
	quote, err := tpm2.Unmarshal[tpm2.TPMSAttest](a.Quote)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPCRs, err)
	}
	quoted, err := quote.Attested.Quote()
	if err != nil {
		return fmt.Errorf("%w: it is no quote: %w", ErrPCRs, err)
	}
	if !bytes.Equal(quote.ExtraData.Buffer, nonce) {
		return ErrNonce
	}
	return a.checkPCRs(quoted)
}

func (a Attestation) checkSignature() error {
	public, err := tpm2.Unmarshal[tpm2.TPMTPublic](a.Key)
	if err != nil {
		return err
	}
	if at := public.ObjectAttributes; !at.Restricted || !at.SignEncrypt || at.Decrypt || !at.FixedTPM ||
		!at.SensitiveDataOrigin {
		return errors.New("its key is not one that signs what its TPM made, and nothing else")
	}
	key, err := tpm2.Pub(*public)
	if err != nil {
		return err
	}
	ecc, ok := key.(*ecdsa.PublicKey)
	if !ok {
		return errors.New("its key is not of ECDSA")
	}

	signature, err := tpm2.Unmarshal[tpm2.TPMTSignature](a.Signature)
	if err != nil {
		return err
	}
	pair, err := signature.Signature.ECDSA()
	if err != nil {
		return err
	}
	if pair.Hash != tpm2.TPMAlgSHA256 {
		return errors.New("its signature is not by SHA-256")
	}
	sum := sha256.Sum256(a.Quote)
	r, s := new(big.Int).SetBytes(pair.SignatureR.Buffer), new(big.Int).SetBytes(pair.SignatureS.Buffer)
	if !ecdsa.Verify(ecc, sum[:], r, s) {
		return errors.New("the signature is wrong")
	}
	return nil
}

// checkPCRs compares the values with the digest of them that was signed (part 1, 17.6: one after the other).
func (a Attestation) checkPCRs(quoted *tpm2.TPMSQuoteInfo) error {
	if !bytes.Equal(tpm2.Marshal(quoted.PCRSelect), tpm2.Marshal(Selection())) {
		return fmt.Errorf("%w: others are signed than those that are asked for", ErrPCRs)
	}
	h := sha256.New()
	for _, value := range a.PCRs {
		h.Write(value)
		if len(value) != sha256.Size {
			return ErrPCRs
		}
	}
	if len(a.PCRs) != len(PCRs) || !bytes.Equal(h.Sum(nil), quoted.PCRDigest.Buffer) {
		return ErrPCRs
	}
	return nil
}
