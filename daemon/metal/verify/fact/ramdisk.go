package fact

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"firstlight.dev/firstlight/daemon/engine/apply"
)

// RamdiskLogs are the archives that Ironic fetches from a deploy ramdisk after a failure,
// UUID_NAMESPACE~HOST_…_TIME.tar.gz each.
type RamdiskLogs struct {
	Dir string

	mu   sync.Mutex
	read map[string]string // archive to its last error
}

// LastError is the last line of a host's newest archive that the agent logged as an error;
// "" if there is none.
func (r *RamdiskLogs) LastError(host string) string {
	paths, _ := filepath.Glob(filepath.Join(r.Dir, "*~"+host+"_*.tar.gz"))
	newest := ""
	for _, p := range paths {
		if timeOf(p) > timeOf(newest) {
			newest = p
		}
	}

	if newest == "" {
		return ""
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if text, ok := r.read[newest]; ok {
		return text
	}

	text, err := lastError(newest)
	if err != nil {
		return "" // still being written, or torn: the next look tells
	}

	r.read = map[string]string{newest: text}
	return text
}

// timeOf is the end of an archive's name, which sorts like the time.
func timeOf(path string) string {
	name := strings.TrimSuffix(filepath.Base(path), ".tar.gz")
	return name[strings.LastIndex(name, "_")+1:]
}

func lastError(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read ramdisk's log: %w", err)
	}
	defer f.Close()

	z, err := gzip.NewReader(f)
	if err != nil {
		return "", fmt.Errorf("read ramdisk's log %s: %w", path, err)
	}

	last := ""
	for archive := tar.NewReader(z); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return last, nil
		}
		if err != nil {
			return "", fmt.Errorf("read ramdisk's log %s: %w", path, err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}

		lines := bufio.NewScanner(io.LimitReader(archive, 64<<20))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			for _, level := range []string{" ERROR ", " CRITICAL "} {
				if _, said, ok := strings.Cut(lines.Text(), level); ok {
					if text := logMessage(said); text != "" && !strings.HasPrefix(text, "Traceback") {
						last = text
					}
				}
			}
		}
	}
}

// record is what oslo.log writes after the level: logger, request, text. The lines of a traceback have no
// request.
var record = regexp.MustCompile(`^\S+ \[[^\]]*\] (.*)$`)

// logMessage is the text of a record; "" for what is none.
func logMessage(said string) string {
	if m := record.FindStringSubmatch(said); m != nil {
		return apply.RedactIronicError(m[1])
	}
	return ""
}
