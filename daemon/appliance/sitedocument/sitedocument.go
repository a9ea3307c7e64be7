// Package sitedocument is the site document of an appliance as a text: the one that holds, how it is replaced, and those
// that were applied before. They hold passwords: the history is a folder that root alone reads.
package sitedocument

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"firstlight.dev/firstlight/assets/site"
)

// Name is the document's in messages.
const Name = "site.yaml"

// Store is where the document is. All fields are needed.
type Store struct {
	Paths []string // where the document may be; the first that is there holds

	// Write replaces the first of Paths, unless check returns an error, which is called while no one else writes.
	Write func(text []byte, check func() error) error
}

// ErrChanged is of a document that is not the one any more that was to be replaced.
var ErrChanged = errors.New("the document on the stick is another one meanwhile; nothing was changed")

// ErrNotRead is of a document that was written to the stick, and that the daemon has not read.
var ErrNotRead = errors.New("the new site.yaml is on the stick, and could not be read; what was read before is in effect")

// Digest is the SHA-256 of a document's text in hexadecimal digits.
func Digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Read returns the document that holds, and where it is; nil and "" if there is none. A longer text than a document may
// have is returned with one byte more than that.
func (s Store) Read() (text []byte, path string, err error) {
	for _, path := range s.Paths {
		text, err := readBounded(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, path, fmt.Errorf("read site %s: %w", path, err)
		}
		return text, path, nil
	}
	return nil, "", nil
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, site.MaxSize+1))
}

// Replace writes a document that has no mistakes in the place of the one that holds; the mistakes of another one are
// returned, and nothing is changed. What site.Accept notes of the one that holds is no mistake. With was, that is a digest, nothing but the document of that digest is replaced: the
// error is ErrChanged otherwise.
func (s Store) Replace(text []byte, was string) (site.Problems, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("the document is empty, and nothing is changed")
	}
	inUse, _, err := s.Read()
	if err != nil {
		return nil, err
	}
	if _, problems := site.LoadAfter(Name, text, inUse); len(problems) > 0 {
		return problems, nil
	}

	return nil, s.Write(text, func() error {
		if was == "" {
			return nil
		}
		now, _, err := s.Read()
		if err != nil {
			return err
		}
		if Digest(now) != was {
			return ErrChanged
		}
		return nil
	})
}
