package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"firstlight.dev/firstlight/image/disk/mkfs"
)

// Where GRUB's first two stages keep what grub-install would fill in (GRUB manual,
// "BIOS installation"; grub-core/boot/i386/pc/boot.S and diskboot.S name the fields).
const (
	bootKernelSector = 0x5c // u64: first sector of core.img
	bootDrive        = 0x64 // u8: BIOS drive, 0xff for the one we were started from
	bootDriveCheck   = 0x66 // two bytes: a jump that nops turn into the check for bad BIOSes
	bootCodeEnd      = 440  // disk signature and MBR table follow

	coreFirstBlock = 0x1f4 // u64: second sector of core.img; u16 count and u16 segment follow
	coreBlockCount = 0x1fc
)

// PatchGrub prepares GRUB for BIOS machines without grub-install: boot is the package's
// boot.img, core a core.img of grub-mkimage that will lie at the sector coreLBA. It
// returns the boot code for sector 0 and the core for the BIOS boot partition.
func PatchGrub(boot, core []byte, coreLBA uint64) (bootCode, coreImage []byte, err error) {
	le := binary.LittleEndian
	if len(boot) != 512 || le.Uint16(boot[510:]) != 0xaa55 {
		return nil, nil, fmt.Errorf("patch boot.img: %d bytes are not a boot sector", len(boot))
	}
	if len(core) < 1024 || len(core) > Align {
		return nil, nil, fmt.Errorf(
			"patch core.img: %d bytes are not within 1024 and the BIOS partition's %d", len(core), Align,
		)
	}

	sectors := (len(core) - 512 + 511) / 512
	if got := int(le.Uint16(core[coreBlockCount:])); got != sectors {
		return nil, nil, fmt.Errorf("patch core.img: its block list says %d sectors, the file has %d", got, sectors)
	}

	bootCode = bytes.Clone(boot[:bootCodeEnd])
	le.PutUint64(bootCode[bootKernelSector:], coreLBA)
	bootCode[bootDrive] = 0xff
	bootCode[bootDriveCheck], bootCode[bootDriveCheck+1] = 0x90, 0x90
	coreImage = bytes.Clone(core)
	le.PutUint64(coreImage[coreFirstBlock:], coreLBA+1)
	return bootCode, coreImage, nil
}

// grubPrefix is where GRUB looks for grub.cfg: on the ESP, which is partition 2 of the disk
// the BIOS started, in the directory that Debian's signed GRUB has compiled in. Both
// firmwares so read one file.
const grubPrefix = "(,gpt2)/EFI/debian"

// grubModules is what the BIOS core needs: reading our disk, drawing the menu, telling
// the kernel which disk it is, keeping in mind which slot is tried, talking to a serial line.
var grubModules = []string{
	"biosdisk", "part_gpt", "fat", "ext2", "normal", "linux", "echo", "serial", "terminal",
	"configfile", "test", "regexp", "search", "search_fs_uuid", "search_fs_file", "search_label",
	"probe", "loadenv", "reboot", "halt", "sleep",
}

// BootLoaders are those that Debian built, unpacked.
type BootLoaders struct {
	Dir     string // with usr/lib/shim and usr/lib/grub
	Mkimage mkfs.Tool
}

// UEFI returns the boot loaders for UEFI, as Debian signed them: the firmware starts
// shim, shim starts GRUB, and Secure Boot can stay on.
func (b BootLoaders) UEFI() []File {
	return []File{
		HostFile("EFI/BOOT/BOOTX64.EFI", filepath.Join(b.Dir, "usr/lib/shim/shimx64.efi.signed")),
		HostFile("EFI/BOOT/mmx64.efi", filepath.Join(b.Dir, "usr/lib/shim/mmx64.efi.signed")),
		HostFile("EFI/BOOT/grubx64.efi", filepath.Join(b.Dir, "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed")),
	}
}

// BIOS makes GRUB's two stages for BIOS machines: boot.img as it is, and core.img with the modules built in.
func (b BootLoaders) BIOS(ctx context.Context) (boot, core []byte, err error) {
	dir, err := os.MkdirTemp("", "firstlight-grub-")
	if err != nil {
		return nil, nil, fmt.Errorf("make core.img: %w", err)
	}
	defer os.RemoveAll(dir)

	modules, out := filepath.Join(b.Dir, "usr/lib/grub/i386-pc"), filepath.Join(dir, "core.img")
	args := append([]string{"-d", modules, "-O", "i386-pc", "-p", grubPrefix, "-o", out}, grubModules...)
	if err := b.Mkimage.Run(ctx, time.Time{}, nil, args...); err != nil {
		return nil, nil, fmt.Errorf("make core.img: %w", err)
	}
	if core, err = os.ReadFile(out); err != nil {
		return nil, nil, fmt.Errorf("make core.img: %w", err)
	}
	if boot, err = os.ReadFile(filepath.Join(modules, "boot.img")); err != nil {
		return nil, nil, fmt.Errorf("read boot loader: %w", err)
	}

	return boot, core, nil
}
