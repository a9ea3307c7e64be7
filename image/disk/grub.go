package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"time"
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
		return nil, nil, fmt.Errorf("patch core.img: %d bytes are not within 1024 and the BIOS partition's %d", len(core), Align)
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

// GrubPrefix is where GRUB looks for grub.cfg: on the ESP, which is partition 2 of the disk
// the BIOS started, in the directory that Debian's signed GRUB has compiled in. Both
// firmwares so read one file.
const GrubPrefix = "(,gpt2)/EFI/debian"

// GrubModules returns what the BIOS core needs: reading our disk, drawing the menu, telling
// the kernel which disk it is, talking to a serial line.
func GrubModules() []string {
	return []string{
		"biosdisk", "part_gpt", "fat", "ext2", "normal", "linux", "echo", "serial", "terminal",
		"configfile", "test", "regexp", "search", "search_fs_uuid", "search_fs_file", "search_label",
		"probe", "reboot", "halt", "sleep",
	}
}

// GrubTools are grub-mkimage and the directory with the i386-pc modules.
type GrubTools struct {
	Mkimage Tool
	Modules string // such as usr/lib/grub/i386-pc
}

// GrubCore makes core.img with the modules built in.
func GrubCore(ctx context.Context, tools GrubTools, modules []string, prefix string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "firstlight-grub-")
	if err != nil {
		return nil, fmt.Errorf("make core.img: %w", err)
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "core.img")
	args := append([]string{"-d", tools.Modules, "-O", "i386-pc", "-p", prefix, "-o", out}, modules...)
	if err := tools.Mkimage.run(ctx, time.Time{}, nil, args...); err != nil {
		return nil, fmt.Errorf("make core.img: %w", err)
	}
	core, err := os.ReadFile(out)
	if err != nil {
		return nil, fmt.Errorf("make core.img: %w", err)
	}
	return core, nil
}
