package drivers

import (
	"bytes"
	"debug/elf"
	"errors"
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

// ReadInfo returns what a module's file says of itself, by field: depends, firmware, alias and others (the section
// .modinfo, include/linux/module.h). A field that is there several times has several values.
func ReadInfo(dir fs.FS, file string) (map[string][]string, error) {
	content, err := ReadModule(dir, file)
	if err != nil {
		return nil, err
	}

	return ParseInfo(content)
}

// ParseInfo is ReadInfo of a module that was read.
func ParseInfo(content []byte) (map[string][]string, error) {
	module, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}

	section := module.Section(".modinfo")
	if section == nil {
		return nil, errors.New("it has no section .modinfo")
	}

	text, err := section.Data()
	if err != nil {
		return nil, err
	}

	info := map[string][]string{}
	for field := range strings.SplitSeq(string(text), "\x00") {
		if key, value, ok := strings.Cut(field, "="); ok {
			info[key] = append(info[key], value)
		}
	}

	return info, nil
}
