package media

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// FormatSums is SHA256SUMS in sha256sum's format: the named digests in hexadecimal digits, in the order of names.
func FormatSums(names []string, sums map[string]string) (string, error) {
	var list strings.Builder
	for _, name := range names {
		if len(sums[name]) != 2*sha256.Size {
			return "", fmt.Errorf("write %s: %s has no digest", SumsName, name)
		}
		fmt.Fprintf(&list, "%s  %s\n", sums[name], name)
	}
	return list.String(), nil
}

// WriteSums writes SHA256SUMS into dir, as FormatSums has it.
func WriteSums(dir string, names []string, sums map[string]string) error {
	list, err := FormatSums(names, sums)
	if err != nil {
		return err
	}

	err = replace(filepath.Join(dir, SumsName), 0o644, func(w io.Writer) error {
		_, err := io.WriteString(w, list)
		return err
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", SumsName, err)
	}

	return nil
}

// DigestFile gives the sha256 of a file in hexadecimal digits.
func DigestFile(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()

	return digestReader(ctx, f)
}

// digestReader reads r to its end.
func digestReader(ctx context.Context, r io.Reader) (string, error) {
	h := sha256.New()
	buf := make([]byte, 1<<20)
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}

		n, err := r.Read(buf)
		h.Write(buf[:n])
		if err == io.EOF {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}

// ParseSums reads sha256sum's format and returns the digests by file name.
func ParseSums(text string) (map[string]string, error) {
	sums := map[string]string{}
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		digest, name, ok := strings.Cut(line, "  ")
		if raw, err := hex.DecodeString(digest); !ok || err != nil || len(raw) != sha256.Size || name == "" {
			return nil, fmt.Errorf("%s:%d: want 64 hexadecimal digits, two blanks and a file name", SumsName, i+1)
		}
		sums[name] = digest
	}
	return sums, nil
}
