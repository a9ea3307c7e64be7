package closure

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"firstlight.dev/firstlight/assets/extent"
)

// findExtents wants every file that is kept without what it shares to be whole again when it is read, and what
// its digest beside it says.
func findExtents(t *Tree) ([]Miss, error) {
	var out []Miss
	for _, name := range t.FilesUnder(ourDir) {
		whole, ok := strings.CutSuffix(name, extent.SuffixExtents)
		if !ok {
			continue
		}

		miss, err := t.readExtents(whole)
		if err != nil {
			return nil, err
		}

		if miss != "" {
			out = append(out, Miss{name, miss})
		}
	}
	return out, nil
}

const ourDir = "/usr/share/firstlight"

// readExtents returns what is wrong with a file; "" if nothing is.
func (t *Tree) readExtents(name string) (string, error) {
	f, err := extent.Open(t.fsys, strings.TrimPrefix(name, "/"))
	if err != nil {
		return err.Error(), nil
	}
	defer f.Close()

	h := sha256.New()
	_, err = io.Copy(h, f)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.ErrUnexpectedEOF) {
		return err.Error(), nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	if !t.Has(name + ".sha256") {
		return "", nil
	}

	text, err := t.Read(name + ".sha256")
	if err != nil {
		return "", err
	}

	want, _, _ := strings.Cut(string(text), " ")
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != want {
		return fmt.Sprintf("sha256 %s; the file has %s", want, got), nil
	}

	return "", nil
}
