package tpm

import (
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"firstlight.dev/firstlight/assets/attestation"
)

// EventLog is where Linux has the firmware's log of what was measured (TCG, "PC Client Platform Firmware Profile").
// Without one, as on most machines that were started by BIOS, there is no such file.
const EventLog = "/sys/kernel/security/tpm0/binary_bios_measurements"

// attestationTemplate is of a key for ECDSA on P-256 that signs what its TPM made, and nothing else.
var attestationTemplate = tpm2.TPMTPublic{
	Type:    tpm2.TPMAlgECC,
	NameAlg: tpm2.TPMAlgSHA256,
	ObjectAttributes: tpm2.TPMAObject{
		FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true, UserWithAuth: true, NoDA: true,
		Restricted: true, SignEncrypt: true,
	},
	Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{
		CurveID: tpm2.TPMECCNistP256,
		Scheme: tpm2.TPMTECCScheme{
			Scheme:  tpm2.TPMAlgECDSA,
			Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgECDSA, &tpm2.TPMSSigSchemeECDSA{HashAlg: tpm2.TPMAlgSHA256}),
		},
	}),
	Unique: tpm2.ECCSRKTemplate.Unique,
}

// Attest has t sign what its PCRs hold, for the asker's nonce. The key is derived from the TPM's endorsement seed each
// time: it is the same one as long as the TPM is, also when that was cleared, and nothing is stored. Log is left to the
// caller.
func Attest(t transport.TPM, nonce []byte) (attestation.Attestation, error) {
	made, err := tpm2.CreatePrimary{
		PrimaryHandle: tpm2.TPMRHEndorsement,
		InPublic:      tpm2.New2B(attestationTemplate),
	}.Execute(t)
	if err != nil {
		return attestation.Attestation{}, fmt.Errorf("attest by TPM: attestation key: %w", err)
	}
	defer flush(t, made.ObjectHandle)

	quote, err := tpm2.Quote{
		SignHandle:     tpm2.AuthHandle{Handle: made.ObjectHandle, Name: made.Name, Auth: tpm2.PasswordAuth(nil)},
		QualifyingData: tpm2.TPM2BData{Buffer: nonce},
		InScheme:       tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgNull},
		PCRSelect:      attestation.Selection(),
	}.Execute(t)
	if err != nil {
		return attestation.Attestation{}, fmt.Errorf("attest by TPM: quote: %w", err)
	}

	a := attestation.Attestation{
		Key:       made.OutPublic.Bytes(),
		Quote:     quote.Quoted.Bytes(),
		Signature: tpm2.Marshal(quote.Signature),
	}
	for _, pcr := range attestation.PCRs { // a TPM may answer for eight at most
		read, err := tpm2.PCRRead{PCRSelectionIn: selection([]uint{pcr})}.Execute(t)
		if err != nil {
			return attestation.Attestation{}, fmt.Errorf("attest by TPM: read PCR %d: %w", pcr, err)
		}
		if len(read.PCRValues.Digests) != 1 {
			return attestation.Attestation{}, fmt.Errorf("attest by TPM: %w", errNoBank)
		}
		a.PCRs = append(a.PCRs, read.PCRValues.Digests[0].Buffer)
	}

	return a, nil
}

var errNoBank = errors.New("read PCRs: the bank SHA-256 is off; switch it on in the firmware's setup")
