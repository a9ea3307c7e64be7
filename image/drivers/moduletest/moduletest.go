// Package moduletest makes kernel modules for tests: files that say of themselves what a test wants, and do nothing.
package moduletest

import "encoding/binary"

// Module returns an ELF file whose section .modinfo has these fields, such as "depends=mii" and "firmware=a.bin".
func Module(fields ...string) []byte {
	var info string
	for _, field := range fields {
		info += field + "\x00"
	}

	names := "\x00.modinfo\x00.shstrtab\x00"
	const header, section = 64, 64
	le := binary.LittleEndian
	b := make([]byte, header+3*section)
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], 1)  // ET_REL
	le.PutUint16(b[18:], 62) // EM_X86_64
	le.PutUint32(b[20:], 1)
	le.PutUint64(b[40:], header)
	le.PutUint16(b[52:], header)
	le.PutUint16(b[58:], section)
	le.PutUint16(b[60:], 3)
	le.PutUint16(b[62:], 2)
	for i, s := range []struct {
		name, kind uint32
		text       string
	}{{1, 1, info}, {10, 3, names}} {
		at := b[header+(i+1)*section:]
		le.PutUint32(at, s.name)
		le.PutUint32(at[4:], s.kind)
		le.PutUint64(at[24:], uint64(len(b)))
		le.PutUint64(at[32:], uint64(len(s.text)))
		b = append(b, s.text...)
	}
	return b
}
