package ironic

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// LogDir is where the logs of failed deployments lie, below what is StateDir in the pod.
const LogDir = "log/deploy"

// PruneOldest removes all but the n files of a folder that were changed last: an agent's logs are
// kept each time an installation fails, and one that can never succeed fails for ever. A folder
// that is not there has none.
func PruneOldest(dir string, n int) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list logs: %w", err)
	}

	type file struct {
		name string
		time time.Time
	}
	var files []file
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			files = append(files, file{e.Name(), info.ModTime()})
		}
	}

	slices.SortFunc(files, func(a, b file) int {
		return cmp.Or(b.time.Compare(a.time), cmp.Compare(a.name, b.name))
	})
	for _, f := range files[min(n, len(files)):] {
		if err := os.Remove(filepath.Join(dir, f.name)); err != nil {
			return fmt.Errorf("remove old log: %w", err)
		}
	}

	return nil
}
