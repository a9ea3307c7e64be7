package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// maxLine is more than an Event without bodies takes, in bytes.
const maxLine = 1 << 20

// Read lists what logs say since a time, oldest first. Of NAME.log it also reads the complete files NAME-TIME.log next
// to it. A log that is not there has nothing. A line that a power cut tore is left out. The error is about what could
// not be read; what could is returned with it.
func Read(logs []string, since time.Time) ([]Entry, error) {
	found := map[types.UID]Entry{} // a long request has an Event at its beginning and one at its end
	var failed []error
	for _, log := range logs {
		complete, _ := filepath.Glob(strings.TrimSuffix(log, ".log") + "-*.log") // named by time, the oldest first
		for _, file := range append(complete, log) {
			if err := readFile(file, since, found); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = append(failed, fmt.Errorf("read audit log: %w", err))
			}
		}
	}

	byTime := func(a, b Entry) int { return a.Time.Compare(b.Time) }
	return slices.SortedFunc(maps.Values(found), byTime), errors.Join(failed...)
}

func readFile(path string, since time.Time, found map[types.UID]Entry) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()

	if info, err := f.Stat(); err != nil || info.ModTime().Before(since) {
		return err
	}

	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var e auditv1.Event
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.AuditID != "" && !e.RequestReceivedTimestamp.Time.Before(since) {
			found[e.AuditID] = newEntry(e)
		}
	}
	return lines.Err()
}
