package fat

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// span is a piece of the file system, in bytes from its start.
type span struct{ at, end int64 }

// Digest is the sha256 of all that is in use: tables and the space before them, and every cluster of a file or a
// directory to its end. The content of the file at blank counts as zeros, if there is one. So no program, however it
// reads a file system, finds in two volumes of one digest anything that differs, but for that content and clusters that
// are free.
func (v *Volume) Digest(blank string) (string, error) {
	blanks, err := v.spansOf(blank)
	if err != nil {
		return "", err
	}

	sum := sha256.New()
	buf := make([]byte, 1<<20)
	for _, used := range v.spansInUse() {
		for at := used.at; at < used.end; {
			b := buf[:min(int64(len(buf)), used.end-at)]
			if n, err := v.r.ReadAt(b, at); n < len(b) {
				return "", fmt.Errorf("read %d bytes at %d: %w", len(b), at, err)
			}
			for _, s := range blanks {
				if from, to := max(s.at, at), min(s.end, at+int64(len(b))); from < to {
					clear(b[from-at : to-at])
				}
			}
			sum.Write(b)
			at += int64(len(b))
		}
	}

	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// spansInUse are what is before the clusters, and the clusters that are not free, in order.
func (v *Volume) spansInUse() []span {
	all := []span{{0, v.dataStart}}
	for c := uint32(2); c < v.clusters+2; c++ {
		if v.nextCluster(c) == 0 {
			continue
		}

		at := v.clusterOffset(c)
		if last := &all[len(all)-1]; last.end == at {
			last.end += v.clusterSize
		} else {
			all = append(all, span{at, at + v.clusterSize})
		}
	}
	return all
}

// spansOf are where the content of the file at path is; none if there is no such file.
func (v *Volume) spansOf(name string) ([]span, error) {
	list, err := v.List()
	if err != nil {
		return nil, err
	}

	for _, e := range list {
		if e.Dir || !strings.EqualFold(e.Path, name) {
			continue
		}

		chain, err := v.chain(e.cluster)
		if err != nil {
			return nil, fmt.Errorf("read /%s: %w", e.Path, err)
		}
		var all []span
		for i, c := range chain {
			at, left := v.clusterOffset(c), e.Size-int64(i)*v.clusterSize
			all = append(all, span{at, at + min(left, v.clusterSize)})
		}
		return all, nil
	}

	return nil, nil
}
