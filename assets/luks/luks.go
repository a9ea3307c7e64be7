// Package luks reads the header of a LUKS2 volume as far as its identity (LUKS2 On-Disk Format Specification 1.1.4,
// chapter 2). Whoever opens or changes a volume does that by cryptsetup.
package luks

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrNone says that there is no LUKS2 volume, nor what is left of one.
var ErrNone = errors.New("no LUKS2 volume")

const (
	binarySize = 4096
	maxSize    = 4 << 20 // of one copy of the header, as the specification has it
	minSize    = 16 << 10
)

// Header is what a volume says of itself.
type Header struct {
	UUID string // as it was given to cryptsetup
}

// Read reads the header of a volume. If the first copy is damaged, as by a power cut while it was written, the second
// one is taken, as cryptsetup does. ErrNone: there is neither; any other error: there was a volume, and it cannot be
// read.
func Read(r io.ReaderAt) (Header, error) {
	first, err := readCopy(r, 0, "LUKS\xba\xbe")
	if err == nil {
		return first, nil
	}

	found := !errors.Is(err, ErrNone)
	for size := int64(minSize); size <= maxSize; size *= 2 { // where the second copy may be
		second, another := readCopy(r, size, "SKUL\xba\xbe")
		if another == nil {
			return second, nil
		}
		found = found || !errors.Is(another, ErrNone) && !errors.Is(another, io.EOF)
	}

	if !found {
		return Header{}, ErrNone
	}
	return Header{}, fmt.Errorf("read LUKS2 header: both copies are damaged; the first: %w", err)
}

// readCopy reads the copy at offset and compares its checksum, which is over binary header and JSON area.
func readCopy(r io.ReaderAt, offset int64, magic string) (Header, error) {
	b := make([]byte, binarySize)
	if _, err := r.ReadAt(b, offset); err != nil {
		return Header{}, err
	}

	be := binary.BigEndian
	if string(b[:6]) != magic || be.Uint16(b[6:]) != 2 {
		return Header{}, ErrNone
	}

	size := int64(be.Uint64(b[8:]))
	if size < minSize || size > maxSize || int64(be.Uint64(b[256:])) != offset || text(b[72:104]) != "sha256" {
		return Header{}, errors.New("its values make no sense")
	}

	sum := bytes.Clone(b[448:480])
	clear(b[448:512])
	digest := sha256.New()
	digest.Write(b)
	if _, err := io.Copy(digest, io.NewSectionReader(r, offset+binarySize, size-binarySize)); err != nil {
		return Header{}, err
	}
	if !bytes.Equal(digest.Sum(nil), sum) {
		return Header{}, errors.New("its checksum is wrong")
	}

	return Header{UUID: text(b[168:208])}, nil
}

// text is what comes before the first NUL.
func text(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}
