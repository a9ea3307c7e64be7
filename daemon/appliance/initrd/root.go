package initrd

import (
	"crypto/rand"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/u-root/u-root/pkg/mount"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/luks"
	"firstlight.dev/firstlight/assets/stick"
)

const (
	newRoot    = "/sysroot"
	overlayDir = "/run/firstlight/overlay" // tmpfs: what is changed at run time
	dataOnce   = "/run/firstlight/data"    // DATA, only while the machine-id is read
	systemd    = "/usr/lib/systemd/systemd"
	damageName = "damage" // stick.DamageFile, relative to stick.RunDir
)

// mountDir makes the directory and mounts on it.
func mountDir(source, dir, fstype, options string, flags uintptr) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	if _, err := mount.Mount(source, dir, fstype, options, flags); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	return nil
}

// buildRoot makes newRoot: squashfs, checked by dm-verity while it is read, below a
// tmpfs. It fills in the record's verity. Undone by tearDown.
func buildRoot(b *stick.BootInfo, rootHash string) error {
	part, _ := b.Partition(b.Slot.Root())
	f, err := os.Open(part.Path)
	if err != nil {
		return fmt.Errorf("open root: %w", err)
	}

	v, err := readVerity(f)
	f.Close()
	if err != nil {
		return err
	}

	device, err := mapVerity(v, part.Path, rootHash)
	if err != nil {
		return err
	}

	b.Verity = stick.Verity{RootHash: rootHash, Device: device, Blocks: v.blocks}
	if err := mountDir(device, stick.LowerDir, "squashfs", "", unix.MS_RDONLY); err != nil {
		return fmt.Errorf("%w (the kernel's messages above say which block is corrupted)", err)
	}
	if err := mountDir("tmpfs", overlayDir, "tmpfs", "mode=0755,size=50%", 0); err != nil {
		return err
	}

	upper, work := filepath.Join(overlayDir, "upper"), filepath.Join(overlayDir, "work")
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
		return fmt.Errorf("make overlay: %w", err)
	}

	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", stick.LowerDir, upper, work)
	return mountDir("overlay", newRoot, "overlay", options, 0)
}

// tearDown undoes what buildRoot has done, however far it came.
func tearDown() {
	for _, dir := range []string{newRoot, overlayDir, stick.LowerDir} {
		_ = mount.Unmount(dir, false, true) // not mounted is fine; u-root refuses force with lazy
	}
	unmap()
}

// checkMountPoints looks at the directories that switch_root moves this system's mounts to, one
// after the other: it could not be undone halfway.
func checkMountPoints(root string) error {
	for _, m := range early {
		if _, err := os.Stat(filepath.Join(root, m.dir)); err != nil {
			return err
		}
	}
	return nil
}

// libraryDirs is where Debian keeps what systemd is linked against.
var libraryDirs = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/systemd", "/usr/lib64", "/lib64"}

// checkInit reads all that PID 1 cannot live without: the program, its loader and its
// libraries. A corrupted block there would otherwise end in a kernel panic nobody
// understands. The pages stay in memory, so nothing is read twice.
func checkInit(root string) error {
	seen := map[string]bool{}
	queue := []string{systemd}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		if seen[name] {
			continue
		}

		seen[name] = true
		needed, err := openProgram(filepath.Join(root, name))
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}

		for _, lib := range needed {
			for _, dir := range libraryDirs {
				path := filepath.Join(dir, filepath.Base(lib))
				if _, err := os.Stat(filepath.Join(root, path)); err == nil {
					queue = append(queue, path)
					break
				}
			}
		}
	}

	return nil
}

// openProgram reads a program or library that is a file.
func openProgram(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	return readProgram(f)
}

// readProgram reads all of a program or library and returns the libraries and the loader it names.
func readProgram(f interface {
	io.Reader
	io.ReaderAt
}) ([]string, error) {
	if _, err := io.Copy(io.Discard, f); err != nil {
		return nil, err
	}

	e, err := elf.NewFile(f)
	if err != nil {
		return nil, err
	}

	needed, err := e.ImportedLibraries()
	if err != nil {
		return nil, err
	}

	if s := e.Section(".interp"); s != nil {
		b, err := s.Data()
		if err != nil {
			return nil, err
		}
		needed = append(needed, strings.TrimRight(string(b), "\x00"))
	}

	return needed, nil
}

// dataFlags are those that DATA is mounted with: nothing on it is written or run here.
const dataFlags = unix.MS_RDONLY | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOSUID

// storedMachineID reads the identity from DATA: of an encrypted one it is the volume's UUID, which `firstlightd storage`
// makes it. An earlier version's DATA is not encrypted and has it in a file. A read-only mount replays the journal if
// the power was cut, as with any root file system; without that the file could be
// missing although it was written. Nothing is formatted or repaired here.
func storedMachineID(b stick.BootInfo) (id string, ok bool) {
	part, ok := b.Partition(stick.PartitionData)
	if !ok {
		return "", false
	}
	if id, ok := volumeID(part.Path); ok {
		return id, true
	}
	if err := mountDir(part.Path, dataOnce, "ext4", "", dataFlags); err != nil {
		return "", false
	}
	defer func() {
		_ = mount.Unmount(dataOnce, true, false)
		_ = os.Remove(dataOnce)
	}()

	raw, err := os.ReadFile(filepath.Join(dataOnce, stick.MachineIDName))
	id = strings.TrimSpace(string(raw))
	return id, err == nil && isHex(id, 16)
}

// volumeID is the identity that an encrypted DATA has in its header.
func volumeID(path string) (id string, ok bool) {
	f, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer f.Close()

	h, err := luks.Read(f)
	id = strings.ReplaceAll(h.UUID, "-", "")
	return id, err == nil && isHex(id, 16)
}

// mintMachineID makes a new identity: random, marked as a version 4 UUID as systemd does.
func mintMachineID() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails (crypto/rand)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return hex.EncodeToString(b)
}

// writeMachineID gives the new root its machine-id: the kept one, or a new one which
// `firstlightd storage` will keep.
func writeMachineID(b *stick.BootInfo, root string) error {
	b.MachineID = stick.MachineID{Source: stick.MachineIDFromData}
	var ok bool
	if b.MachineID.ID, ok = storedMachineID(*b); !ok {
		b.MachineID = stick.MachineID{ID: mintMachineID(), Source: stick.MachineIDMinted}
	}

	path := filepath.Join(root, "etc/machine-id")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("write machine-id: %w", err)
	}
	if err := os.WriteFile(path, []byte(b.MachineID.ID+"\n"), 0o444); err != nil {
		return fmt.Errorf("write machine-id: %w", err)
	}

	return nil
}

// nameVersion writes the exact version into the new root's /etc/os-release. The read-only one has the version that
// is worked towards, so that it is the same for many commits.
func nameVersion(root, version string) error {
	text, err := os.ReadFile(filepath.Join(root, "usr/lib/os-release"))
	if err != nil {
		return fmt.Errorf("name the version: %w", err)
	}

	var release strings.Builder // os-release(5)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "IMAGE_VERSION=") {
			line = fmt.Sprintf("IMAGE_VERSION=%q\n", version)
		}
		release.WriteString(line)
	}

	path := filepath.Join(root, "etc/os-release") // in Debian a link to the read-only one
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("name the version: %w", err)
	}
	if err := os.WriteFile(path, []byte(release.String()), 0o644); err != nil {
		return fmt.Errorf("name the version: %w", err)
	}

	return nil
}
