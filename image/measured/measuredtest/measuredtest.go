// Package measuredtest measures in a TPM of software what firmware, GRUB and kernel of a test's machine do, with the log
// of it.
package measuredtest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"testing"
	"unicode/utf16"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/attestation"
	"firstlight.dev/firstlight/daemon/appliance/tpm"
	"firstlight.dev/firstlight/daemon/appliance/tpm/tpmtest"
)

// Types of events (TCG, "PC Client Platform Firmware Profile", 10.4.1).
const (
	Tag      = 0x00000006 // EV_EVENT_TAG
	POST     = 0x00000008 // EV_S_CRTM_VERSION
	IPL      = 0x0000000d // EV_IPL
	Variable = 0x80000001 // EV_EFI_VARIABLE_DRIVER_CONFIG
	Program  = 0x80000003 // EV_EFI_BOOT_SERVICES_APPLICATION
	Action   = 0x80000007 // EV_EFI_ACTION
)

// Event is one measurement.
type Event struct {
	PCR    uint32
	Type   uint32
	Digest [32]byte
	Data   string
}

// Measure is an event of some content.
func Measure(pcr, kind uint32, content, data string) Event {
	return Event{pcr, kind, sha256.Sum256([]byte(content)), data}
}

// File is one that GRUB reads.
func File(name, content string) Event { return Measure(9, IPL, content, name+"\x00") }

// Command is one that GRUB runs.
func Command(text string) Event { return Measure(8, IPL, text, "grub_cmd: "+text+"\x00") }

// CommandLine is the kernel's, as GRUB measures it.
func CommandLine(text string) Event { return Measure(8, IPL, text, "kernel_cmdline: "+text+"\x00") }

// Start is a program that the firmware starts from a path, with its digest of Authenticode.
func Start(path string, digest [32]byte) Event {
	file := utf16Bytes(path + "\x00")
	node := append([]byte{4, 4}, binary.LittleEndian.AppendUint16(nil, uint16(4+len(file)))...)
	data := append(append(append(make([]byte, 32), node...), file...), 0x7f, 0xff, 4, 0)
	return Event{4, Program, digest, string(data)}
}

// SecureBoot is the variable that says whether the firmware enforces it: 0 or 1.
func SecureBoot(on byte) Event {
	data := make([]byte, 32)
	data[16], data[24] = 10, 1
	data = append(append(data, utf16Bytes("SecureBoot")...), on)
	return Measure(7, Variable, string(data), string(data))
}

func utf16Bytes(text string) (b []byte) {
	for _, unit := range utf16.Encode([]rune(text)) {
		b = binary.LittleEndian.AppendUint16(b, unit)
	}
	return b
}

// encode gives TCG_PCR_EVENT2 with a digest of the bank SHA-256 alone.
func (e Event) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, e.PCR)
	b = binary.LittleEndian.AppendUint32(b, e.Type)
	b = binary.LittleEndian.AppendUint32(b, 1)
	b = binary.LittleEndian.AppendUint16(b, uint16(tpm2.TPMAlgSHA256))
	b = append(b, e.Digest[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Data)))
	return append(b, e.Data...)
}

// Log begins as crypto-agile logs do: with TCG_EfiSpecIDEvent, in an event of the old form.
func Log(events []Event) []byte {
	spec := append([]byte("Spec ID Event03\x00"), 0, 0, 0, 0, 0, 2, 0, 2, 1, 0, 0, 0)
	spec = binary.LittleEndian.AppendUint16(spec, uint16(tpm2.TPMAlgSHA256))
	spec = append(spec, 32, 0, 0)
	b := append(make([]byte, 4), 3, 0, 0, 0)
	b = append(b, make([]byte, 20)...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(spec)))
	b = append(b, spec...)
	for _, e := range events {
		b = append(b, e.encode()...)
	}
	return b
}

// Boot has a new TPM measure events.
func Boot(t testing.TB, events []Event) transport.TPM {
	t.Helper()
	machine := tpmtest.Start(t, t.TempDir()).Open(t)
	for _, e := range events {
		extend(t, machine, e)
	}
	return machine
}

// Attest has a new TPM measure events, and attest for a nonce.
func Attest(t testing.TB, events []Event) (a attestation.Attestation, nonce []byte) {
	t.Helper()
	nonce = make([]byte, attestation.MaxNonce)
	rand.Read(nonce)
	a, err := tpm.Attest(Boot(t, events), nonce)
	require.NoError(t, err)
	require.NoError(t, a.Check(nonce, ""))
	a.Log = Log(events)
	return a, nonce
}

func extend(t testing.TB, machine transport.TPM, e Event) {
	t.Helper()
	_, err := tpm2.PCRExtend{
		PCRHandle: tpm2.AuthHandle{Handle: tpm2.TPMHandle(e.PCR), Auth: tpm2.PasswordAuth(nil)},
		Digests:   tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: tpm2.TPMAlgSHA256, Digest: e.Digest[:]}}},
	}.Execute(machine)
	require.NoError(t, err)
}
