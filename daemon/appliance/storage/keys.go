package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-tpm/tpm2/transport"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/tpm"
)

// openTPM opens the TPM 2.0 of this machine.
func (k Preparer) openTPM(ctx context.Context) (transport.TPMCloser, error) {
	if k.TPM != nil {
		return k.TPM()
	}
	return tpm.Open(ctx)
}

// Bounds of a key file, in bytes without the white space around it. Less than 20 could be guessed.
const (
	minKeyFile = 20
	maxKeyFile = 512
)

// readKeyFile reads the key file of the medium labelled stick.KeyMediumLabel; nil without an error if there is no such
// medium after wait.
func (k Preparer) readKeyFile(ctx context.Context, wait time.Duration) ([]byte, error) {
	if k.KeyFile != nil {
		return k.KeyFile()
	}

	device := filepath.Join("/dev/disk/by-label", stick.KeyMediumLabel) // by udev
	deadline := time.Now().Add(wait)
	for {
		if _, err := os.Stat(device); err == nil {
			break
		}
		if time.Now().After(deadline) {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}

	dir := filepath.Join(stick.RunDir, "key")
	if err := mountKeyMedium(device, dir); err != nil {
		return nil, err
	}
	defer func() {
		_ = unix.Unmount(dir, 0)
		_ = os.Remove(dir)
	}()

	f, err := os.Open(filepath.Join(dir, stick.KeyFileName))
	if err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}
	defer f.Close()

	return parseKeyFile(f)
}

// mountKeyMedium mounts it to be read, by root alone. It is never written to, not even to replay a journal.
func mountKeyMedium(device, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("mount key medium: %w", err)
	}

	const flags = unix.MS_RDONLY | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOSUID
	err := unix.Mount(device, dir, "vfat", flags, "umask=0077")
	if err != nil {
		err = unix.Mount(device, dir, "ext4", flags, "noload")
	}
	if err != nil {
		return fmt.Errorf("mount %s: %w; its file system must be FAT or ext4", device, err)
	}

	return nil
}

// parseKeyFile reads a key: one line of text.
func parseKeyFile(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxKeyFile+64))
	if err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}

	key := bytes.TrimSpace(b)
	switch {
	case len(key) < minKeyFile || len(key) > maxKeyFile:
		return nil, fmt.Errorf("read key file: its key has %d bytes; %d to %d are asked for", len(key), minKeyFile, maxKeyFile)
	case strings.ContainsAny(string(key), "\r\n\x00"):
		return nil, errors.New("read key file: it must be one line of text")
	}

	return key, nil
}
