package install

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// namesReader reads the names in a folder while a file is written there.
type namesReader struct {
	dir   string
	names []string
}

func (r *namesReader) Read([]byte) (int, error) {
	entries, _ := os.ReadDir(r.dir)
	for _, e := range entries {
		r.names = append(r.names, filepath.Join(r.dir, e.Name()))
	}
	return 0, io.EOF
}

// TestWhatAnInterruptedWriteLeavesIsKnown by its name, and so is removed.
func TestWhatAnInterruptedWriteLeavesIsKnown(t *testing.T) {
	r := &namesReader{dir: t.TempDir()}
	path := filepath.Join(r.dir, "root.img")
	_ = atomicfile.Copy(path, r, 0o600)
	assert.Contains(t, r.names, temporary(path))
}
