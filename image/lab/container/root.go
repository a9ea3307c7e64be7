// Package container holds what it takes to run a root tree of this product in namespaces of this machine: the tree is
// mounted from the image that holds it, without a copy, and gets control groups of its own.
package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/stick"
)

// squashfsMagic is how a squashfs begins.
const squashfsMagic = "hsqs"

// FindRoot finds a root tree: a directory, a squashfs file, or the first squashfs among the partitions of a disk image.
// offset is where the squashfs begins in path, in bytes.
func FindRoot(root string) (path string, offset int64, err error) {
	path, err = filepath.Abs(root)
	if err != nil {
		return "", 0, fmt.Errorf("find root tree: %w", err)
	}

	f, err := os.Open(path)
	if err != nil {
		return "", 0, fmt.Errorf("find root tree: %w", err)
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil {
		return "", 0, fmt.Errorf("find root tree: %w", err)
	}

	magic := make([]byte, len(squashfsMagic))
	if _, err := f.ReadAt(magic, 0); info.IsDir() || err == nil && string(magic) == squashfsMagic {
		return path, 0, nil
	}

	table, err := stick.ReadTable(f, info.Size(), 512)
	if err != nil {
		return "", 0, fmt.Errorf("find root tree in %s: %w", path, err)
	}

	for _, e := range table.Entries {
		if _, err := f.ReadAt(magic, e.Start); err == nil && string(magic) == squashfsMagic {
			return path, e.Start, nil
		}
	}

	return "", 0, fmt.Errorf("find root tree in %s: no partition holds a squashfs", path)
}

// MountRoot mounts, read-only and at target, what FindRoot found; a directory is bound there.
func MountRoot(path string, offset int64, target string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("mount root tree: %w", err)
	}

	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("mount root tree: %w", err)
	}
	if info.IsDir() {
		return Bind(path, target, unix.MS_RDONLY)
	}

	return MountLoop(path, offset, target, "squashfs")
}

// MountLoop mounts the file system that begins at offset in file, to be read. The loop device frees
// itself with the mount. Where the kernel has SELinux on, all in there is labelled as the file is.
func MountLoop(file string, offset int64, target, fs string) error {
	labels, err := labelsLike(file)
	if err != nil {
		return err
	}

	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open loop control: %w", err)
	}
	defer control.Close()

	backing, err := os.Open(file)
	if err != nil {
		return err
	}
	defer backing.Close()

	for range 16 { // another process may take the free one first
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return fmt.Errorf("find free loop device: %w", err)
		}

		name := fmt.Sprintf("/dev/loop%d", n)
		loop, err := os.OpenFile(name, os.O_RDONLY, 0)
		if err != nil {
			return fmt.Errorf("open loop device: %w", err)
		}

		config := unix.LoopConfig{Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{
			Offset: uint64(offset),
			Flags:  unix.LO_FLAGS_READ_ONLY | unix.LO_FLAGS_AUTOCLEAR,
		}}
		if err := unix.IoctlLoopConfigure(int(loop.Fd()), &config); err != nil {
			loop.Close()
			if errors.Is(err, unix.EBUSY) {
				continue
			}
			return fmt.Errorf("set up %s: %w", name, err)
		}

		err = unix.Mount(name, target, fs, unix.MS_RDONLY, labels)
		loop.Close()
		if err != nil {
			return fmt.Errorf("mount %s: %w", file, err)
		}

		return nil
	}

	return errors.New("find free loop device: all were taken at once")
}

// labelsLike is the option of a mount by which all files there have the SELinux label of a file, "" where the kernel has
// SELinux off. Without it a squashfs, whose files have no labels, could not have anything laid over it: no file system
// may have files that are unlabelled.
func labelsLike(file string) (string, error) {
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err != nil {
		return "", nil
	}

	label := make([]byte, 4096) // as long as the kernel lets one be
	n, err := unix.Getxattr(file, "security.selinux", label)
	if err != nil {
		return "", fmt.Errorf("read SELinux label of %s: %w", file, err)
	}

	return `context="` + strings.TrimRight(string(label[:n]), "\x00") + `"`, nil
}

// Bind shows source at target, making target like it. A source that is to be written to (flags are 0) is made, as a
// directory, if it is absent.
func Bind(source, target string, flags uintptr) error {
	info, err := os.Stat(source)
	if errors.Is(err, os.ErrNotExist) && flags == 0 {
		if err = os.MkdirAll(source, 0o755); err == nil {
			info, err = os.Stat(source)
		}
	}

	if err != nil {
		return err
	}

	if err := makeMountPoint(target, info.IsDir()); err != nil {
		return fmt.Errorf("make mount point %s: %w", target, err)
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s on %s: %w", source, target, err)
	}

	if flags != 0 {
		if err := remount(target, flags); err != nil {
			return fmt.Errorf("bind %s on %s: %w", source, target, err)
		}
	}

	return nil
}

// remount gives a mount these flags alone: a program may be on a file system from which nothing is run. In a user
// namespace the kernel refuses to take away what the machine has set, and the mount keeps the flags that it has.
func remount(target string, flags uintptr) error {
	err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|flags, "")
	if !errors.Is(err, unix.EPERM) {
		return err
	}

	var fs unix.Statfs_t
	if err := unix.Statfs(target, &fs); err != nil {
		return err
	}

	for _, f := range []struct {
		have int64
		flag uintptr
	}{
		{unix.ST_RDONLY, unix.MS_RDONLY},
		{unix.ST_NOSUID, unix.MS_NOSUID},
		{unix.ST_NODEV, unix.MS_NODEV},
		{unix.ST_NOEXEC, unix.MS_NOEXEC},
		{unix.ST_NOATIME, unix.MS_NOATIME},
		{unix.ST_NODIRATIME, unix.MS_NODIRATIME},
		{unix.ST_RELATIME, unix.MS_RELATIME},
	} {
		if fs.Flags&f.have != 0 {
			flags |= f.flag
		}
	}

	return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|flags, "")
}

// makeMountPoint leaves a directory or a file at target.
func makeMountPoint(target string, dir bool) error {
	if dir {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}

	existing, err := os.Lstat(target)
	switch {
	case err == nil && existing.Mode().IsRegular():
		return nil
	case err == nil: // a mount would follow the link
		if err := os.Remove(target); err != nil {
			return err
		}
	}

	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o755)
	if err != nil {
		return err
	}

	return f.Close()
}

// Pivot makes root the root of the mount namespace and lets go of the old one. A chroot would leave
// that below it, and what enters a container's namespace (kubectl exec) would land there.
func Pivot(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	// Volumes of pods are seen by containers that run already. No root that is shared can be pivoted.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return err
	}

	return os.Chdir("/")
}
