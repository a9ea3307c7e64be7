// Package initramfs writes the first file system the kernel sees: firstlight-init and
// the kernel modules it may need before the root is mounted, as a cpio archive
// compressed with zstd. The same input gives the same bytes.
package initramfs

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/klauspost/compress/zstd"
	"github.com/u-root/u-root/pkg/cpio"

	"firstlight.dev/firstlight/image/drivers"
)

// Source is what goes in.
type Source struct {
	// Init is the static firstlight-init executable.
	Init []byte
	// Release is the kernel's release as uname -r gives it, for example 6.12.57+deb13-amd64.
	Release string
	// Modules is the directory usr/lib/modules/<Release> of the root file system. Modules
	// may be compressed (.ko.xz, .ko.zst); they are stored plain, since the whole archive
	// is compressed and Debian's signatures cover the plain file.
	Modules fs.FS
	// Firmware has what modules load: files below usr/lib/firmware of the root, by the names that modules give,
	// compressed or not. Nil where there is none.
	Firmware func(name string) (files map[string][]byte, err error)
	// Microcode goes, uncompressed, in front of the archive; its size is a multiple of 4. Empty for none.
	Microcode []byte
}

// Summary says what was written.
type Summary struct {
	Modules int
	Plain   int64 // bytes of the modules, uncompressed
}

// Build writes the archive to w.
func Build(w io.Writer, src Source) (Summary, error) {
	set, err := selectModules(src.Modules)
	if err != nil {
		return Summary{}, err
	}

	a := archive{dirs: map[string]bool{}}
	for _, d := range []string{"dev", "proc", "sys", "run", "sysroot"} {
		a.mkdir(d)
	}

	// The kernel opens it for PID 1 before anything is mounted on /dev.
	a.records = append(a.records, cpio.CharDev("dev/console", 0o600, 5, 1))
	a.addFile("init", src.Init, 0o755)

	sum := Summary{Modules: len(set.names)}
	base := path.Join("lib/modules", src.Release)
	for _, name := range set.names {
		plain, err := drivers.ReadModule(src.Modules, name)
		if err != nil {
			return Summary{}, err
		}

		sum.Plain += int64(len(plain))
		a.addFile(path.Join(base, plainName(name)), plain, 0o644)
		if err := a.addFirmware(src, plain); err != nil {
			return Summary{}, fmt.Errorf("add firmware of %s: %w", name, err)
		}
	}

	for _, t := range set.tables {
		a.addFile(path.Join(base, t.name), t.content, 0o644)
	}

	if _, err := w.Write(src.Microcode); err != nil {
		return Summary{}, fmt.Errorf("write microcode: %w", err)
	}

	return sum, a.write(w)
}

// addFirmware adds the files that a module names and that there are.
func (a *archive) addFirmware(src Source, module []byte) error {
	if src.Firmware == nil {
		return nil
	}

	info, err := drivers.ParseInfo(module)
	if err != nil {
		return err
	}

	for _, name := range info["firmware"] {
		files, err := src.Firmware(name)
		if err != nil {
			return err
		}
		for _, file := range slices.Sorted(maps.Keys(files)) {
			a.addFile(path.Join("lib/firmware", file), files[file], 0o644)
		}
	}

	return nil
}

// archive collects records; parents are made on demand.
type archive struct {
	records []cpio.Record
	dirs    map[string]bool // what is there, directories and files
}

func (a *archive) mkdir(p string) {
	if p == "." || a.dirs[p] {
		return
	}

	a.mkdir(path.Dir(p))
	a.dirs[p] = true
	a.records = append(a.records, cpio.Directory(p, 0o755))
}

func (a *archive) addFile(p string, content []byte, perm uint64) {
	if a.dirs[p] { // a file that several modules name
		return
	}
	a.dirs[p] = true
	a.mkdir(path.Dir(p))
	a.records = append(a.records, cpio.StaticFile(p, string(content), perm))
}

func (a *archive) write(w io.Writer) error {
	slices.SortFunc(a.records, func(x, y cpio.Record) int { return cmp.Compare(x.Name, y.Name) })
	z, err := newCompressor(w, zstd.SpeedBetterCompression)
	if err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}

	rw := cpio.Newc.Writer(z)
	for i, r := range a.records {
		r = cpio.MakeReproducible(r)
		r.Ino = uint64(i + 1) // equal numbers would be taken for hard links
		if err := rw.WriteRecord(r); err != nil {
			return fmt.Errorf("write initramfs entry %s: %w", r.Name, err)
		}
	}

	if err := cpio.WriteTrailer(rw); err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}

	return z.Close()
}
