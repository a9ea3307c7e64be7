// Package secureboottest has EFI programs for tests.
package secureboottest

import "encoding/binary"

// Program is the smallest PE32+ image, with one section and bytes behind it.
func Program(behind []byte) []byte {
	le := binary.LittleEndian
	b := make([]byte, 0x400)
	copy(b, "MZ")
	le.PutUint32(b[0x3c:], 0x80)
	copy(b[0x80:], "PE\x00\x00\x64\x86\x01\x00") // for x86-64, one section
	le.PutUint16(b[0x94:], 240)
	le.PutUint16(b[0x96:], 0x206)
	optional := b[0x98:]
	le.PutUint16(optional, 0x20b)
	le.PutUint32(optional[16:], 0x1000) // entry point
	le.PutUint32(optional[20:], 0x1000) // code
	le.PutUint32(optional[32:], 0x1000) // alignment in memory
	le.PutUint32(optional[36:], 0x200)  // and in the file
	le.PutUint32(optional[56:], 0x2000) // size in memory
	le.PutUint32(optional[60:], 0x200)  // of the headers
	le.PutUint16(optional[68:], 10)     // an EFI application
	le.PutUint32(optional[108:], 16)
	section := b[0x98+240:]
	copy(section, ".text")
	le.PutUint32(section[8:], 0x200)
	le.PutUint32(section[12:], 0x1000)
	le.PutUint32(section[16:], 0x200)
	le.PutUint32(section[20:], 0x200)
	le.PutUint32(section[36:], 0x60000020)
	for i := range 0x200 {
		b[0x200+i] = byte(i)
	}
	return append(b, behind...)
}
