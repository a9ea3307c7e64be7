// Package cache keeps what was built under the digest of what it was built from. An
// entry is there whole or not at all, and what is there is never made again.
package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Store is a directory of entries.
type Store struct {
	Dir string
}

// Item is one entry: a file, or a directory.
type Item struct {
	Path   string
	Digest string // sha256 of a file's content, 64 hex digits; of a directory, its key
	Made   bool   // by this call
}

// DefaultStore is $FIRSTLIGHT_CACHE, or firstlight in the user's cache directory.
func DefaultStore() (Store, error) {
	if dir := os.Getenv("FIRSTLIGHT_CACHE"); dir != "" {
		abs, err := filepath.Abs(dir)
		return Store{abs}, err
	}

	dir, err := os.UserCacheDir()
	if err != nil {
		return Store{}, fmt.Errorf("find the cache directory: %w; set FIRSTLIGHT_CACHE", err)
	}

	return Store{filepath.Join(dir, "firstlight")}, nil
}

// Key digests a list of strings: no two different lists have the same key.
func Key(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s,", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// path is where an entry lies.
func (s Store) path(kind, key string) string { return filepath.Join(s.Dir, kind, key) }

// Lookup finds an entry; ok is false when it is not there.
func (s Store) Lookup(kind, key string) (item Item, ok bool) {
	path := s.path(kind, key)
	sum, err := os.ReadFile(path + ".sum")
	if err != nil {
		return Item{}, false
	}
	if _, err := os.Lstat(path); err != nil {
		return Item{}, false
	}

	now := time.Now()
	_ = os.Chtimes(path+".sum", now, now) // what Prune goes by
	return Item{Path: path, Digest: strings.TrimSpace(string(sum))}, true
}

// Do returns the entry, calling make if it is not there. make writes a file or a
// directory at the path that it is given; when it fails nothing stays.
func (s Store) Do(kind, key string, make func(path string) error) (Item, error) {
	if item, ok := s.Lookup(kind, key); ok {
		return item, nil
	}
	if err := os.MkdirAll(filepath.Join(s.Dir, kind), 0o755); err != nil {
		return Item{}, fmt.Errorf("make cache: %w", err)
	}

	scratch, err := os.MkdirTemp(filepath.Join(s.Dir, kind), ".new-")
	if err != nil {
		return Item{}, fmt.Errorf("make cache: %w", err)
	}
	defer removeAll(scratch)

	fresh := filepath.Join(scratch, "entry")
	if err := make(fresh); err != nil {
		return Item{}, err
	}

	info, err := os.Stat(fresh)
	if err != nil {
		return Item{}, fmt.Errorf("keep %s: %w", kind, err)
	}

	digest := key
	if !info.IsDir() {
		if digest, err = FileDigest(fresh); err != nil {
			return Item{}, err
		}
	}

	path := s.path(kind, key)
	if err := os.Rename(fresh, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return Item{}, fmt.Errorf("keep %s: %w", kind, err)
	}

	sum := filepath.Join(scratch, "sum")
	if err := os.WriteFile(sum, []byte(digest+"\n"), 0o644); err != nil {
		return Item{}, fmt.Errorf("keep %s: %w", kind, err)
	}
	if err := os.Rename(sum, path+".sum"); err != nil {
		return Item{}, fmt.Errorf("keep %s: %w", kind, err)
	}

	return Item{Path: path, Digest: digest, Made: true}, nil
}

// Prune removes entries that were not used since a time, and returns how many.
func (s Store) Prune(unusedSince time.Time) (int, error) {
	sums, err := filepath.Glob(filepath.Join(s.Dir, "*", "*.sum"))
	if err != nil {
		return 0, err
	}

	removed := 0
	for _, sum := range sums {
		info, err := os.Stat(sum)
		if err != nil || !info.ModTime().Before(unusedSince) {
			continue
		}
		if err := os.Remove(sum); err != nil {
			return removed, fmt.Errorf("prune cache: %w", err)
		}

		removeAll(strings.TrimSuffix(sum, ".sum"))
		removed++
	}

	return removed, nil
}

// removeAll also removes directories that an archive made read-only.
func removeAll(path string) {
	if os.RemoveAll(path) == nil {
		return
	}
	_ = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(path)
}

// FileDigest is the sha256 of a file, 64 hex digits.
func FileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("digest file: %w", err)
	}
	defer f.Close()

	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("digest file %s: %w", path, err)
	}

	return hex.EncodeToString(h.Sum(nil)), nil
}
