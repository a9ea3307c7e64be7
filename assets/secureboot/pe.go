package secureboot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Offsets in a PE32+ image (Microsoft, "PE Format"), from where the header named begins.
const (
	dosHeaderPE = 0x3c // u32: where the PE header is

	peSections       = 6  // u16: how many
	peOptionalSize   = 20 // u16: bytes of the optional header
	peOptionalHeader = 24 // where that begins

	optionalMagic       = 0   // u16: 0x20b
	optionalHeadersSize = 60  // u32: bytes of all headers
	optionalChecksum    = 64  // u32, not part of the digest
	optionalCount       = 108 // u32: how many data directories there are
	optionalSecurity    = 144 // u32 offset and u32 size of the signatures, not part of the digest

	sectionSize    = 40
	sectionRawSize = 16 // u32
	sectionRawAt   = 20 // u32
)

// Signatures are stored as WIN_CERTIFICATE, 8 bytes before each, on 8 bytes.
const (
	certificateHead     = 8
	certificateAlign    = 8
	certificateRevision = 0x0200
	certificatePKCS     = 0x0002
)

// maxSignatures bounds those of a program, in bytes; one has some two thousand. Reading CMS takes memory for each level
// that it is nested.
const maxSignatures = 64 << 10

// program is a PE32+ image with the places that its signature depends on.
type program struct {
	bytes    []byte
	optional int // where the optional header is
	headers  int // bytes of all headers
	sections [][2]int
	table    [2]int // of signatures; empty if there is none
}

var le = binary.LittleEndian

// parseProgram reads the headers. Whatever the bytes are, all ranges that it returns are within them.
func parseProgram(b []byte) (program, error) {
	p := program{bytes: b}
	if len(b) < dosHeaderPE+4 || string(b[:2]) != "MZ" {
		return p, errors.New("no EFI program")
	}
	at := int(le.Uint32(b[dosHeaderPE:]))
	if at < 0 || at+peOptionalHeader+optionalSecurity+8 > len(b) || string(b[at:at+4]) != "PE\x00\x00" {
		return p, errors.New("no EFI program")
	}
	p.optional = at + peOptionalHeader
	if le.Uint16(b[p.optional+optionalMagic:]) != 0x20b || le.Uint32(b[p.optional+optionalCount:]) < 5 {
		return p, errors.New("no EFI program of 64 bits that has a place for a signature")
	}

	p.headers = int(le.Uint32(b[p.optional+optionalHeadersSize:]))
	first := p.optional + int(le.Uint16(b[at+peOptionalSize:]))
	count := int(le.Uint16(b[at+peSections:]))
	if p.headers > len(b) || first+count*sectionSize > p.headers || p.optional+optionalSecurity+8 > p.headers {
		return p, errors.New("no EFI program: its headers do not have the length that they name")
	}
	for i := range count {
		s := b[first+i*sectionSize:]
		size, at := int(le.Uint32(s[sectionRawSize:])), int(le.Uint32(s[sectionRawAt:]))
		if size == 0 {
			continue
		}
		if at+size > len(b) {
			return p, errors.New("no EFI program: a section ends behind it")
		}
		p.sections = append(p.sections, [2]int{at, at + size})
	}
	slices.SortFunc(p.sections, func(a, b [2]int) int { return a[0] - b[0] })

	security := b[p.optional+optionalSecurity:]
	tableAt, size := int(le.Uint32(security)), int(le.Uint32(security[4:]))
	if size > 0 {
		if tableAt < p.headers || tableAt+size != len(b) {
			return p, errors.New("an EFI program whose signatures are not at its end")
		}
		p.table = [2]int{tableAt, tableAt + size}
	}
	return p, nil
}

// digest is the SHA-256 by Authenticode ("Windows Authenticode Portable Executable Signature Format", "Calculating the PE
// Image Hash"): of headers, sections and what follows them, without the checksum and all that tells of signatures. What
// is between sections belongs to no digest and is refused.
func (p program) digest() ([]byte, error) {
	h := sha256.New()
	checksum, security := p.optional+optionalChecksum, p.optional+optionalSecurity
	h.Write(p.bytes[:checksum])
	h.Write(p.bytes[checksum+4 : security])
	h.Write(p.bytes[security+8 : p.headers])

	end := p.headers
	for _, s := range p.sections {
		if s[0] != end {
			return nil, errors.New("an EFI program with a gap between its sections")
		}
		h.Write(p.bytes[s[0]:s[1]])
		end = s[1]
	}

	rest := p.bytes[end:]
	if p.table[1] > 0 {
		if p.table[0] < end {
			return nil, errors.New("an EFI program whose signatures are in a section")
		}
		rest = p.bytes[end:p.table[0]]
	}
	h.Write(rest)
	return h.Sum(nil), nil
}

// signatures are those that it has, each in DER.
func (p program) signatures() ([][]byte, error) {
	if p.table[1]-p.table[0] > maxSignatures {
		return nil, errors.New("an EFI program with more signatures than are read")
	}
	var all [][]byte
	for at := p.table[0]; at < p.table[1]; {
		if p.table[1]-at < certificateHead {
			return nil, errors.New("an EFI program whose list of signatures is damaged")
		}
		size := int(le.Uint32(p.bytes[at:]))
		if size < certificateHead || at+size > p.table[1] {
			return nil, errors.New("an EFI program whose list of signatures is damaged")
		}
		if le.Uint16(p.bytes[at+6:]) == certificatePKCS {
			all = append(all, p.bytes[at+certificateHead:at+size])
		}
		at += (size + certificateAlign - 1) / certificateAlign * certificateAlign
	}
	return all, nil
}

// padToAlign gives the program with zeros at its end, so that signatures can follow: they are part of its digest.
func padToAlign(b []byte) []byte {
	n := (certificateAlign - len(b)%certificateAlign) % certificateAlign
	return append(bytes.Clone(b), make([]byte, n)...)
}

// withSignature adds a signature in DER behind those that the program has.
func (p program) withSignature(der []byte) []byte {
	size := (certificateHead + len(der) + certificateAlign - 1) / certificateAlign * certificateAlign
	entry := make([]byte, size)
	le.PutUint32(entry, uint32(certificateHead+len(der)))
	le.PutUint16(entry[4:], certificateRevision)
	le.PutUint16(entry[6:], certificatePKCS)
	copy(entry[certificateHead:], der)

	out := append(bytes.Clone(p.bytes), entry...)
	at, length := len(p.bytes), size
	if p.table[1] > 0 {
		at, length = p.table[0], p.table[1]-p.table[0]+size
	}
	le.PutUint32(out[p.optional+optionalSecurity:], uint32(at))
	le.PutUint32(out[p.optional+optionalSecurity+4:], uint32(length))
	return out
}

// parse names what could not be read.
func parse(name string, b []byte) (program, []byte, error) {
	p, err := parseProgram(b)
	if err != nil {
		return p, nil, fmt.Errorf("%s: %w", name, err)
	}
	digest, err := p.digest()
	if err != nil {
		return p, nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, digest, nil
}

// Digest is what firmware measures of a program and what its signatures sign: its SHA-256 by Authenticode.
func Digest(name string, b []byte) ([]byte, error) {
	_, digest, err := parse(name, b)
	return digest, err
}
