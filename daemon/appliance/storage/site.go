package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// siteFlags are those that SITE is mounted with.
const siteFlags = unix.MS_RDONLY | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOSUID

// siteMode is the only mode that a file may be given on a FAT file system whose umask is 0077: execution cannot be
// taken away there (fat_allow_set_mode of Linux).
const siteMode = 0o700

// ReplaceSite replaces the file name on SITE, which is mounted read-only in dir, and returns when it is on the medium: a
// power cut leaves the old document or the new one. SITE is mounted to be written meanwhile; after a kill it stays so
// until the next call or boot. Nothing is written if check returns an error: it is called while no one else replaces the
// file.
func ReplaceSite(dir, name string, text []byte, check func() error) error {
	if !isMountPoint(dir) {
		return fmt.Errorf("write site: SITE is not mounted in %s; was this machine started from a stick?", dir)
	}

	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("write site: %w", err)
	}
	defer d.Close()

	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("write site: lock %s: %w", dir, err)
	}

	if err := check(); err != nil {
		return err
	}

	remount, err := makeWritable(dir)
	if err != nil {
		return fmt.Errorf("write site: mount %s to write: %w; is the stick write-protected?", dir, err)
	}

	err = atomicfile.Write(filepath.Join(dir, name), text, siteMode)
	if err != nil {
		err = fmt.Errorf("write site: %w", err)
	}
	if back := unix.Mount("", dir, "", remount|siteFlags, ""); back != nil {
		err = errors.Join(err, fmt.Errorf("mount %s read-only again: %w", dir, back))
	}

	return err
}

// makeWritable mounts SITE to be written, and returns by which flags that is undone. The mount alone is changed where
// that is enough: in `firstlight try` SITE is a directory of somebody's file system, which stays as it is. On a stick the
// file system itself is read-only.
func makeWritable(dir string) (remount uintptr, err error) {
	remount = unix.MS_REMOUNT | unix.MS_BIND
	if err := unix.Mount("", dir, "", remount|siteFlags&^unix.MS_RDONLY, ""); err != nil {
		return remount, err
	}

	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil || s.Flags&unix.ST_RDONLY == 0 {
		return remount, err
	}

	remount = unix.MS_REMOUNT
	return remount, unix.Mount("", dir, "", remount|siteFlags&^unix.MS_RDONLY, "")
}
