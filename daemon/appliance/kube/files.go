package kube

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// writeFile replaces a file as a whole, in a directory that may have to be made.
func writeFile(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	return atomicfile.Write(path, data, mode)
}

func fileIs(path string, want []byte) bool {
	have, err := os.ReadFile(path)
	return err == nil && bytes.Equal(have, want)
}

// syncPath brings a file or directory to the disk.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()

	return f.Sync()
}
