package drivers

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// ModuleName returns the name that the kernel knows a module's file by: kernel/fs/dm-mod.ko.xz is dm_mod.
func ModuleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return CanonicalName(name)
}

// CanonicalName returns names of modules as the kernel writes them, with _ for -.
func CanonicalName(names string) string { return strings.ReplaceAll(names, "-", "_") }

// ReadModule reads a module's file, which may be compressed (.ko.xz, .ko.zst).
func ReadModule(dir fs.FS, file string) ([]byte, error) {
	f, err := dir.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read kernel module: %w", err)
	}
	defer f.Close()

	var r io.Reader = f
	switch path.Ext(file) {
	case ".xz":
		r, err = xz.NewReader(f)
	case ".zst":
		r, err = zstd.NewReader(f, zstd.WithDecoderConcurrency(1))
	}

	if err != nil {
		return nil, fmt.Errorf("read kernel module %s: %w", file, err)
	}

	content, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read kernel module %s: %w", file, err)
	}

	return content, nil
}
