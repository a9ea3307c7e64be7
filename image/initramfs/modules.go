package initramfs

import (
	"bytes"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"firstlight.dev/firstlight/image/drivers"
)

// wantedModules lists what the initramfs must be able to drive: directories (ending in a slash)
// and single modules, below kernel/. Everything else waits for udev on the real root.
// Kept short on purpose: firmware reads the archive at 1 MB/s on old USB ports.
var wantedModules = []string{
	// Buses a stick or a disk hangs on.
	"drivers/usb/host/", "drivers/usb/storage/", "drivers/ata/", "drivers/nvme/host/",
	"drivers/virtio/", "drivers/block/virtio_blk", "drivers/mmc/core/", "drivers/mmc/host/sdhci-pci",
	"drivers/mmc/host/sdhci-acpi", "drivers/mmc/host/rtsx_pci_sdmmc", "drivers/misc/cardreader/rtsx_pci", "drivers/pci/controller/vmd",
	// Disks behind SCSI, and the host adapters of common servers.
	"drivers/scsi/sd_mod", "drivers/scsi/virtio_scsi", "drivers/scsi/megaraid/", "drivers/scsi/mpt3sas/",
	"drivers/scsi/mpi3mr/", "drivers/scsi/smartpqi/", "drivers/scsi/hpsa", "drivers/scsi/aacraid/",
	"drivers/scsi/isci/", "drivers/scsi/vmw_pvscsi", "drivers/scsi/hv_storvsc", "drivers/message/fusion/mptsas",
	"drivers/scsi/arcmsr/", "drivers/scsi/mvsas/",
	// A keyboard, so that a person can at least reset by it.
	"drivers/hid/hid-generic", "drivers/hid/usbhid/",
	// The root: verity, squashfs, overlay. DATA: ext4. SITE and ESP: FAT.
	"drivers/md/dm-verity", "fs/squashfs/", "fs/overlayfs/", "fs/ext4/", "fs/fat/vfat",
	"fs/nls/nls_ascii", "fs/nls/nls_cp437", "fs/nls/nls_iso8859-1", "fs/nls/nls_utf8",
	// Checksums of ext4 (softdep crypto-crc32c) where the kernel has them as modules.
	"crypto/sha256_generic", "arch/x86/crypto/sha256-ssse3", "crypto/crc32c_generic", "arch/x86/crypto/crc32c-intel", "lib/libcrc32c",
}

// table is one of the text files by which modules are found, cut down to what is stored.
type table struct {
	name    string
	content []byte
}

type moduleSet struct {
	names  []string // as in modules.dep, sorted
	tables []table
}

// selectModules closes wanted over the dependencies that depmod found.
func selectModules(dir fs.FS) (moduleSet, error) {
	read := func(name string) ([]string, error) {
		b, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, fmt.Errorf("read kernel modules: %w", err)
		}
		return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n"), nil
	}
	depLines, err := read("modules.dep")
	if err != nil {
		return moduleSet{}, err
	}

	deps := map[string][]string{}
	for _, line := range depLines {
		if name, rest, ok := strings.Cut(line, ":"); ok {
			deps[name] = strings.Fields(rest)
		}
	}

	chosen := map[string]bool{}
	var add func(string)
	add = func(name string) {
		if chosen[name] {
			return
		}
		chosen[name] = true
		for _, d := range deps[name] {
			add(d)
		}
	}
	for name := range deps {
		if isWanted(name) {
			add(name)
		}
	}

	if len(chosen) == 0 {
		return moduleSet{}, fmt.Errorf("read kernel modules: modules.dep names none of those a boot needs; is it a kernel's module directory?")
	}

	set := moduleSet{}
	for name := range chosen {
		set.names = append(set.names, name)
	}

	slices.Sort(set.names)

	var dep bytes.Buffer
	base := map[string]bool{}
	for _, name := range set.names {
		base[drivers.ModuleName(name)] = true
		dep.WriteString(plainName(name) + ":")
		for _, d := range deps[name] {
			dep.WriteString(" " + plainName(d))
		}

		dep.WriteByte('\n')
	}

	set.tables = append(set.tables, table{"modules.dep", dep.Bytes()})
	// alias PATTERN MODULE: the last word is the module. softdep MODULE pre: … post: …: the second is.
	for _, t := range []struct {
		name string
		word func([]string) string
	}{
		{"modules.alias", func(w []string) string { return w[len(w)-1] }},
		{"modules.softdep", func(w []string) string { return w[1] }},
	} {
		lines, err := read(t.name)
		if err != nil {
			return moduleSet{}, err
		}

		var out bytes.Buffer
		for _, line := range lines {
			w := strings.Fields(line)
			if len(w) >= 3 && w[0] != "#" && base[drivers.CanonicalName(t.word(w))] {
				out.WriteString(line + "\n")
			}
		}

		set.tables = append(set.tables, table{t.name, out.Bytes()})
	}

	builtin, err := fs.ReadFile(dir, "modules.builtin")
	if err != nil {
		return moduleSet{}, fmt.Errorf("read kernel modules: %w", err)
	}

	set.tables = append(set.tables, table{"modules.builtin", builtin})
	return set, nil
}

func isWanted(name string) bool {
	rel := strings.TrimPrefix(name, "kernel/")
	for _, w := range wantedModules {
		if strings.HasSuffix(w, "/") && strings.HasPrefix(rel, w) {
			return true
		}
		if strings.TrimSuffix(plainName(rel), ".ko") == w {
			return true
		}
	}
	return false
}

// plainName drops the compression suffix: a.ko.xz becomes a.ko.
func plainName(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, ".xz"), ".zst")
}
