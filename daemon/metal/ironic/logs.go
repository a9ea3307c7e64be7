package ironic

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// LogDir is where the logs of failed deployments lie, below what is StateDir in the pod.
const LogDir = "log/deploy"

// LogLimits is how much of the logs of deployments is kept.
type LogLimits struct {
	Files int
	File  int64 // bytes of one: what agents collect has some hundred kilobytes
	All   int64 // bytes of all together
}

// PruneLogs removes all but the files of a folder that were changed last, within limits: an agent's logs are kept each
// time an installation fails, one that can never succeed fails for ever, and it is the agent that says how long they
// are. It returns the names of those that were too large. A folder that is not there has none.
func PruneLogs(dir string, l LogLimits) (tooLarge []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}

	var files []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			files = append(files, info)
		}
	}

	slices.SortFunc(files, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	kept, bytes := 0, int64(0)
	for _, f := range files {
		if f.Size() <= l.File && kept < l.Files && bytes+f.Size() <= l.All {
			kept, bytes = kept+1, bytes+f.Size()
			continue
		}

		if f.Size() > l.File {
			tooLarge = append(tooLarge, f.Name())
		}
		if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
			return tooLarge, fmt.Errorf("remove old log: %w", err)
		}
	}

	return tooLarge, nil
}
