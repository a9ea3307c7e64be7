package fact

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	paths := r.archives(host)
	if len(paths) == 0 {
		return ""
	}

	newest := paths[0]
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

// archives are the paths of a host's, the newest first.
func (r *RamdiskLogs) archives(host string) []string {
	paths, _ := filepath.Glob(filepath.Join(r.Dir, "*~"+host+"_*.tar.gz")) // its pattern is sound: a host is a DNS name
	slices.SortFunc(paths, func(a, b string) int { return strings.Compare(timeOf(b), timeOf(a)) })
	return paths
}

// Times are when the archives of a host were fetched, in UTC as their names have it (2026-03-04-05-06-07), the newest
// first.
func (r *RamdiskLogs) Times(host string) (times []string) {
	for _, p := range r.archives(host) {
		times = append(times, timeOf(p))
	}
	return times
}

// maxRamdiskFile is how much is read of one file of an archive, in bytes.
const maxRamdiskFile = 1 << 20

// agentLog is the agent's own log; the ramdisk's configuration of the agent says so.
const agentLog = "ironic-python-agent.log"

// Text is what the files of a host's archive of a time say, each after a line with its name; the agent's own log is the
// last. Of a file that is longer than a megabyte that is its end. What was read before an error is returned with it.
func (r *RamdiskLogs) Text(host, at string) ([]byte, error) {
	for _, p := range r.archives(host) {
		if timeOf(p) != at {
			continue
		}
		var text, last []byte
		err := walkArchive(p, func(name string, content io.Reader) error {
			end, err := readEnd(content, maxRamdiskFile)
			if bytes.IndexByte(end, 0) >= 0 {
				return err // no text
			}
			end = append(fmt.Appendf(nil, "== %s\n", name), end...)
			if !bytes.HasSuffix(end, []byte("\n")) {
				end = append(end, '\n')
			}
			if filepath.Base(name) == agentLog {
				last = append(last, end...)
			} else if len(text) < 8*maxRamdiskFile {
				text = append(text, end...)
			}
			return err
		})
		return append(text, last...), err
	}
	return nil, fmt.Errorf("read ramdisk's log of %s: there is none of %s any more", host, at)
}

// readEnd reads all, and keeps the last bytes.
func readEnd(from io.Reader, most int) ([]byte, error) {
	var kept []byte
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		kept = append(kept, piece[:n]...)
		if len(kept) > 2*most {
			kept = append([]byte(nil), kept[len(kept)-most:]...)
		}
		if errors.Is(err, io.EOF) {
			return kept[max(0, len(kept)-most):], nil
		}
		if err != nil {
			return kept[max(0, len(kept)-most):], err
		}
	}
}

func lastError(path string) (last string, err error) {
	err = walkArchive(path, func(_ string, content io.Reader) error {
		lines := bufio.NewScanner(content)
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
		return nil // of a line that is too long the rest is left out
	})
	if err != nil {
		return "", err
	}
	return last, nil
}

// walkArchive has each file of an archive read, 64 MiB of it at most.
func walkArchive(path string, read func(name string, content io.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read ramdisk's log: %w", err)
	}
	defer f.Close()

	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("read ramdisk's log %s: %w", path, err)
	}

	for archive := tar.NewReader(z); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && header.Typeflag == tar.TypeReg {
			err = read(header.Name, io.LimitReader(archive, 64<<20))
		}
		if err != nil {
			return fmt.Errorf("read ramdisk's log %s: %w", path, err)
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
