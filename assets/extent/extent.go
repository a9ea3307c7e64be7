// Package extent keeps a large file without what other files of the same root hold as well: a disk image
// without the programs and drivers that the root has too. The file is put together again whenever it is
// read, byte for byte.
//
// Of a file NAME two are kept:
//
//	NAME.own       the file, with holes (zeros) for its shared extents; of the same size
//	NAME.extents   a line for each shared extent: its offset in the file, its size in bytes, the
//	               offset in the other file, the quoted path of that from the top of the root
package extent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

// Suffixes of what is kept of a file.
const (
	SuffixOwn     = ".own"
	SuffixExtents = ".extents"
)

// Extent is a stretch of a file that another one holds as well. Offsets and size are in bytes.
type Extent struct {
	Offset, Size int64
	Source       string // path from the top of the root, without a leading slash
	At           int64  // where it begins in Source
}

// Encode writes extents as the text that Open reads.
func Encode(all []Extent) []byte {
	var out []byte
	for _, e := range all {
		out = fmt.Appendf(out, "%d %d %d %s\n", e.Offset, e.Size, e.At, strconv.Quote(e.Source))
	}
	return out
}

// Decode reads extents of a file of so many bytes. They must be in order and apart.
func Decode(text io.Reader, size int64) ([]Extent, error) {
	var all []Extent
	var end int64
	lines := bufio.NewScanner(text)
	for n := 1; lines.Scan(); n++ {
		e, err := parse(lines.Text())
		if err == nil && (e.Offset < end || e.Size > size-e.Offset) {
			err = errors.New("it overlaps the one before, or the file's end")
		}

		if err != nil {
			return nil, fmt.Errorf("extent %d: %w", n, err)
		}

		end = e.Offset + e.Size
		all = append(all, e)
	}

	return all, lines.Err()
}

func parse(line string) (e Extent, err error) {
	fields := strings.SplitN(line, " ", 4)
	if len(fields) != 4 {
		return e, errors.New("not an offset, a size, an offset and a path")
	}

	for i, number := range []*int64{&e.Offset, &e.Size, &e.At} {
		if *number, err = strconv.ParseInt(fields[i], 10, 64); err != nil {
			return e, err
		}
	}

	if e.Source, err = strconv.Unquote(fields[3]); err != nil {
		return e, err
	}
	if e.Offset < 0 || e.Size <= 0 || e.At < 0 || !fs.ValidPath(e.Source) {
		return e, errors.New("not a stretch of a file below the root")
	}

	return e, nil
}
