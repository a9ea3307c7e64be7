package disk

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"firstlight.dev/firstlight/assets/secureboot"
)

// ownedModules is what GRUB needs where it checks all that it reads: as for BIOS, with what checks signatures, and its
// configuration built in.
var ownedModules = []string{
	"part_gpt", "fat", "normal", "linux", "echo", "serial", "terminal", "configfile", "test", "regexp", "probe", "loadenv",
	"reboot", "halt", "sleep", "memdisk", "tar", "pgp", "gcry_rsa", "gcry_sha1", "gcry_sha256",
}

// ownedConfig is run first. $root is the disk in memory here; which partition GRUB was
// loaded from is in $fw_path in Debian's builds, in $cmdpath in others. No one who stands in front of the
// machine gets a prompt, where the checks could be switched off: there is no such user.
const ownedConfig = `set superusers=nobody
export superusers
regexp --set=1:root "^.([^)]+)" "$fw_path$cmdpath"
source (memdisk)/boot/grub/stick.cfg
echo "Firstlight: GRUB's configuration has ended. Trying again in 60 seconds."
sleep 60
reboot
`

// OwnedGRUB makes the GRUB that an owner signs, instead of Debian's: it has its configuration in itself and reads no file
// that the owner's key has not signed, but for its memory. It still has a placeholder for that key, see
// secureboot.PutGRUBKey. config is the stick's grub.cfg.
func (b BootLoaders) OwnedGRUB(ctx context.Context, config []byte) ([]byte, error) {
	dir, err := os.MkdirTemp("", "firstlight-grub-")
	if err != nil {
		return nil, fmt.Errorf("make GRUB for Secure Boot: %w", err)
	}
	defer os.RemoveAll(dir)

	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range []struct{ name, text string }{{"boot/grub/grub.cfg", ownedConfig}, {"boot/grub/stick.cfg", string(config)}} {
		header := tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text)), Format: tar.FormatUSTAR}
		if err := w.WriteHeader(&header); err != nil {
			return nil, fmt.Errorf("make GRUB for Secure Boot: %w", err)
		}
		if _, err := w.Write([]byte(f.text)); err != nil {
			return nil, fmt.Errorf("make GRUB for Secure Boot: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("make GRUB for Secure Boot: %w", err)
	}

	disk, key, out := filepath.Join(dir, "memdisk"), filepath.Join(dir, "key"), filepath.Join(dir, "grub.efi")
	if err := os.WriteFile(disk, archive.Bytes(), 0o644); err != nil {
		return nil, fmt.Errorf("make GRUB for Secure Boot: %w", err)
	}
	if err := os.WriteFile(key, secureboot.PlaceholderKey(), 0o644); err != nil {
		return nil, fmt.Errorf("make GRUB for Secure Boot: %w", err)
	}

	args := append([]string{
		"-d", filepath.Join(b.Dir, "usr/lib/grub/x86_64-efi"), "-O", "x86_64-efi", "-m", disk,
		"--pubkey", key, "--disable-shim-lock", "-o", out,
	}, ownedModules...)
	if err := b.Mkimage.Run(ctx, time.Time{}, nil, args...); err != nil {
		return nil, fmt.Errorf("make GRUB for Secure Boot: %w", err)
	}
	grub, err := os.ReadFile(out)
	if err != nil {
		return nil, fmt.Errorf("make GRUB for Secure Boot: %w", err)
	}
	return grub, nil
}
