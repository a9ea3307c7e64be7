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
	"github.com/google/go-tpm/tpm2/transport/linuxtpm"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/stick"
)

// tpmWait is how long the driver of a TPM that the firmware announces may take.
const tpmWait = 30 * time.Second

// openTPM opens the TPM 2.0 of this machine. A TPM that the firmware announces is waited for: without that, a driver
// that is slow would leave DATA unsealed.
func (k Preparer) openTPM(ctx context.Context) (transport.TPMCloser, error) {
	if k.TPM != nil {
		return k.TPM()
	}

	_, err := os.Stat("/sys/firmware/acpi/tables/TPM2") // TCG ACPI Specification
	announced := err == nil
	deadline := time.Now().Add(tpmWait)
	for {
		t, err := linuxtpm.Open("/dev/tpmrm0") // through the kernel's resource manager; of TPM 2.0 alone
		switch {
		case err == nil:
			return t, nil
		case !errors.Is(err, os.ErrNotExist):
			return nil, err
		case !announced:
			return nil, describeNoTPM()
		case time.Now().After(deadline):
			return nil, fmt.Errorf("the firmware announces a TPM 2.0, and no driver took it in %s", tpmWait)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func describeNoTPM() error {
	if version, err := os.ReadFile("/sys/class/tpm/tpm0/tpm_version_major"); err == nil {
		return fmt.Errorf("its TPM is of version %s, not 2", bytes.TrimSpace(version))
	}
	return errors.New("the firmware announces no TPM 2.0")
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
