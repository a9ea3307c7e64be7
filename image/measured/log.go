// Package measured tells what a machine has booted by its attestation: it replays the firmware's event log to what the
// TPM signed, and compares what was measured with what an image of a stick starts.
package measured

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/google/go-eventlog/register"
	"github.com/google/go-eventlog/tcg"

	"firstlight.dev/firstlight/assets/attestation"
	"firstlight.dev/firstlight/assets/secureboot"
)

// maxLog bounds an event log, in bytes; real ones have less than 100 KiB.
const maxLog = 4 << 20

// Errors of Read.
var (
	ErrNoLog  = errors.New("it has no event log: the machine was started by BIOS, or its firmware keeps none")
	ErrLog    = errors.New("its event log is damaged or truncated")
	ErrReplay = errors.New("its event log is not what the TPM has measured")
)

// PCRs that boot programs and what GRUB reads are measured into, by the PC Client Platform Firmware Profile and GRUB's
// manual ("Measuring boot components").
const (
	pcrPrograms = 4
	pcrPolicy   = 7
	pcrCommands = 8
	pcrFiles    = 9
)

// How GRUB begins the events of PCR 8: of the kernel's command line, and of each command that it runs. What follows is
// what it measures.
const (
	commandLinePrefix = "kernel_cmdline: "
	commandPrefix     = "grub_cmd: "
)

// Boot is what a machine's firmware, GRUB and kernel have measured, in order. Types and names of events are written by
// whoever writes the log, and prove nothing; digests do, and texts that have them. So all that is in a PCR is here,
// whatever the log calls it.
type Boot struct {
	SecureBoot   bool          `json:"secureBoot"` // the firmware enforced it
	Programs     []Measurement `json:"programs"`   // that firmware or shim started: digests by Authenticode
	Files        []Measurement `json:"files"`      // that GRUB read
	CommandLines []string      `json:"commandLines"`
	Commands     []string      `json:"commands"` // that GRUB ran
	Events       int           `json:"events"`
}

// Measurement is of one program or file.
type Measurement struct {
	Name   string `json:"name,omitempty"` // as the log has it
	SHA256 string `json:"sha256"`
}

// Read replays the event log of an attestation that was checked.
func Read(a attestation.Attestation) (Boot, error) {
	switch {
	case len(a.Log) == 0:
		return Boot{}, ErrNoLog
	case len(a.Log) > maxLog:
		return Boot{}, fmt.Errorf("%w: it has %d bytes, and %d at most are read", ErrLog, len(a.Log), maxLog)
	}

	events, err := replay(a)
	if err != nil {
		return Boot{}, err
	}
	b := Boot{Events: len(events), SecureBoot: isSecureBoot(events)}
	for _, e := range events {
		b.add(e, a.CommandLine)
	}
	return b, nil
}

// replay gives the events of the PCRs that were quoted, if they make the values that were quoted.
func replay(a attestation.Attestation) ([]tcg.Event, error) {
	log, err := tcg.ParseEventLog(a.Log, tcg.ParseOpts{AllowPadding: true})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLog, err)
	}

	var registers []register.MR
	for i, pcr := range attestation.PCRs {
		registers = append(registers, register.PCR{Index: int(pcr), Digest: a.PCRs[i], DigestAlg: crypto.SHA256})
	}
	events, err := log.Verify(registers)
	var differs tcg.ReplayError
	if errors.As(err, &differs) {
		slices.Sort(differs.InvalidMRs)
		return nil, fmt.Errorf("%w: PCR %s", ErrReplay, strings.Trim(fmt.Sprint(differs.InvalidMRs), "[]"))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReplay, err)
	}

	// The library takes a PCR of which the log has no event for one that it need not compare.
	for i, pcr := range attestation.PCRs {
		has := slices.ContainsFunc(events, func(e tcg.Event) bool { return e.Index == int(pcr) })
		if !has && !bytes.Equal(a.PCRs[i], make([]byte, sha256.Size)) {
			return nil, fmt.Errorf("%w: of PCR %d it has no event", ErrReplay, pcr)
		}
	}
	return events, nil
}

func (b *Boot) add(e tcg.Event, hint string) {
	m := Measurement{SHA256: fmt.Sprintf("%x", e.Digest)}
	text := strings.TrimSuffix(string(e.Data), "\x00")
	switch {
	case isSeparator(e):
	case e.Index == pcrPrograms && !isText(e):
		m.Name = programPath(e.Data)
		b.Programs = append(b.Programs, m)
	case e.Index == pcrFiles:
		if b.isLoadOptions(e) {
			return
		}
		if hasDigest(e, loadOptions(hint)) {
			b.CommandLines = append(b.CommandLines, strings.TrimPrefix(hint, bootImage))
			return
		}
		m.Name = printable(cutTag(text))
		b.Files = append(b.Files, m)
	case e.Index == pcrCommands:
		line, isLine := strings.CutPrefix(text, commandLinePrefix)
		command := strings.TrimPrefix(line, commandPrefix)
		switch {
		case !hasDigest(e, command):
			b.Commands = append(b.Commands, "a command of which the log does not have the text, "+m.SHA256)
		case isLine:
			b.CommandLines = append(b.CommandLines, command)
		default:
			b.Commands = append(b.Commands, command)
		}
	}
}

func hasDigest(e tcg.Event, content string) bool {
	sum := sha256.Sum256([]byte(content))
	return bytes.Equal(sum[:], e.Digest)
}

// isSeparator reports whether an event is EV_SEPARATOR, which stands between firmware and boot programs.
func isSeparator(e tcg.Event) bool {
	return hasDigest(e, "\x00\x00\x00\x00") || hasDigest(e, "\xff\xff\xff\xff")
}

// isText reports whether an event is of a text, such as that of EV_EFI_ACTION. No program has the digest of one, since a
// program's is of its headers, too.
func isText(e tcg.Event) bool {
	text := string(e.Data)
	return text != "" && printable(text) == text && hasDigest(e, text)
}

// bootImage is what GRUB puts before the command line, for the kernel alone.
const bootImage = "BOOT_IMAGE="

// loadOptions are a command line as the kernel's EFI stub gets and measures it.
func loadOptions(line string) string {
	return utf16Bytes(bootImage + strings.TrimPrefix(line, bootImage))
}

// isLoadOptions reports whether an event is of a command line of which the text is in PCR 8.
func (b *Boot) isLoadOptions(e tcg.Event) bool {
	return slices.ContainsFunc(b.CommandLines, func(line string) bool { return hasDigest(e, loadOptions(line)) })
}

// isSecureBoot reports whether the firmware's first measurement of PCR 7 is of the variable that says so: later ones are
// of whoever runs then.
func isSecureBoot(events []tcg.Event) bool {
	for _, e := range events {
		if e.Index != pcrPolicy {
			continue
		}
		name, value := variable(e.Data)
		return hasDigest(e, string(e.Data)) && name == secureboot.Enforced.Name && len(value) == 1 && value[0] == 1
	}
	return false
}

// variable reads UEFI_VARIABLE_DATA: a GUID, two lengths of 8 bytes, a name in UTF-16 and the value.
func variable(b []byte) (name string, value []byte) {
	const head = 32
	if len(b) < head {
		return "", nil
	}
	units, size := binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
	rest := b[head:]
	if units > uint64(len(rest))/2 || size != uint64(len(rest))-2*units {
		return "", nil
	}
	return utf16Text(rest[:2*units]), rest[2*units:]
}

// programPath finds the file's path in UEFI_IMAGE_LOAD_EVENT, whose device path ends with nodes of files (UEFI 2.10,
// 10.3.5.4); "" if it was not loaded from one.
func programPath(b []byte) string {
	const head, media, file = 32, 4, 4
	name := ""
	for b = b[min(head, len(b)):]; len(b) >= 4; {
		size := int(binary.LittleEndian.Uint16(b[2:]))
		if size < 4 || size > len(b) {
			break
		}
		if b[0] == media && b[1] == file {
			name += strings.TrimRight(utf16Text(b[4:size]), "\x00")
		}
		b = b[size:]
	}
	return printable(name)
}

// cutTag gives what TCG_PCClientTaggedEvent has behind its number and length, as the kernel writes it.
func cutTag(data string) string {
	const head = 8
	if len(data) < head || int(binary.LittleEndian.Uint32([]byte(data[4:head]))) != len(data)-head+1 {
		return data
	}
	return data[head:]
}

func utf16Bytes(text string) string {
	var b []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		b = binary.LittleEndian.AppendUint16(b, unit)
	}
	return string(b)
}

func utf16Text(b []byte) string {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(units))
}

// printable is a name of the log's for a terminal: it may be anything.
func printable(name string) string {
	const most = 200
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
	return name[:min(most, len(name))]
}
