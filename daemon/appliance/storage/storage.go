// Package storage gives the appliance its memory: it makes, finds, grows, checks and
// mounts the DATA partition of the disk the appliance was started from, binds the
// directories that must outlive a boot to it, and mounts SITE. It runs once per boot,
// before everything that keeps state, and every step may be cut by a power failure and
// repeated. No other disk is ever opened for writing.
package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/stick"
)

// Preparer does the work.
type Preparer struct {
	Log *slog.Logger
}

// Run does all and leaves the record at stick.StorageInfoFile. An error means that there is
// not even a place for volatile state, or no record of the boot. A DATA partition that
// cannot be made or used is no error: the record says so, and the daemon shows it.
func (k Preparer) Run(ctx context.Context) (stick.StorageInfo, error) {
	boot, err := stick.Load[stick.BootInfo](stick.BootInfoFile)
	if err != nil {
		return stick.StorageInfo{}, err
	}

	record, err := k.mountData(ctx, boot.Disk)
	if err != nil {
		// Whether state was lost or never there is told apart by mountData.
		k.Log.Error("no lasting storage", "state", record.State, "err", err)
		record.Reason = err.Error()
		if err := mountAt("tmpfs", stick.DataDir, "tmpfs", unix.MS_NODEV, "mode=0755,size=50%"); err != nil {
			return record, err
		}
	}

	for _, b := range stick.StateDirs() {
		if err := mountBind(b); err != nil {
			return record, err
		}
	}

	if record.State == stick.StorageData {
		if err := saveMachineID(stick.DataDir, boot.MachineID.ID); err != nil {
			k.Log.Error("machine-id not kept", "err", err)
		}
	}

	if err := mountSite(boot); err != nil {
		k.Log.Error("site partition not mounted", "err", err)
	} else {
		record.Site = true
	}

	return record, stick.Save(stick.StorageInfoFile, record)
}

// mountData leaves DATA mounted, or says why not: state volatile if the disk has none
// and no room for one, broken if there is one that cannot be used.
func (k Preparer) mountData(ctx context.Context, disk stick.Disk) (stick.StorageInfo, error) {
	table, err := readDisk(disk)
	if err != nil {
		return stick.StorageInfo{State: stick.StorageBroken}, err
	}

	decision := Decide(table, disk.Bytes)
	k.Log.Info("storage decided", "disk", disk.Path, "action", decision.Action, "room", decision.Room)
	unusable := stick.StorageBroken
	switch decision.Action {
	case NoRoom:
		return stick.StorageInfo{State: stick.StorageVolatile}, fmt.Errorf(
			"%s has no room for a %s partition (%d MiB free, %d needed): state is kept in memory and lost at power off; use a larger stick",
			disk.Path, stick.PartitionData, decision.Room>>20, leastData>>20)
	case Make:
		// Nothing of this appliance can be on a partition that is not there yet.
		unusable = stick.StorageVolatile
		fallthrough
	case Grow:
		if err := k.repart(ctx, disk); err != nil {
			if decision.Action == Make {
				return stick.StorageInfo{State: unusable}, err
			}
			k.Log.Error("data partition not grown", "err", err) // as large as before is still good
		}
	}

	part, err := findData(ctx, disk)
	if err != nil {
		return stick.StorageInfo{State: unusable}, err
	}

	record := stick.StorageInfo{State: unusable, Device: part.Path, GUID: part.GUID, Bytes: part.Bytes}
	if err := k.check(ctx, part.Path); err != nil {
		return record, err
	}
	if err := mountAt(part.Path, stick.DataDir, "ext4", unix.MS_NOATIME, "errors=remount-ro"); err != nil {
		return record, err
	}

	if err := k.growFileSystem(ctx, part); err != nil {
		k.Log.Error("file system not grown", "device", part.Path, "err", err)
	}

	record.State = stick.StorageData
	return record, nil
}

// mountAt makes dir and mounts on it; what is mounted there already is left alone, so
// that the work can be repeated within one boot.
func mountAt(source, dir, fstype string, flags uintptr, options string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("mount %s: %w", source, err)
	}
	if isMountPoint(dir) {
		return nil
	}
	if err := unix.Mount(source, dir, fstype, flags, options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, dir, err)
	}

	return nil
}

// isMountPoint compares a directory's device with its parent's. Binds within one file
// system do not show this way; mountBind knows its own.
func isMountPoint(dir string) bool {
	var here, above unix.Stat_t
	if unix.Stat(dir, &here) != nil || unix.Stat(filepath.Dir(dir), &above) != nil {
		return false
	}
	return here.Dev != above.Dev
}

func mountBind(b stick.StateDir) error {
	source := filepath.Join(stick.DataDir, stick.StateName, b.Name)
	if err := os.MkdirAll(source, 0o755); err != nil {
		return fmt.Errorf("bind %s: %w", b.Path, err)
	}
	if err := unix.Chmod(source, uint32(b.Mode)); err != nil {
		return fmt.Errorf("bind %s: %w", b.Path, err)
	}
	if err := os.MkdirAll(b.Path, 0o755); err != nil {
		return fmt.Errorf("bind %s: %w", b.Path, err)
	}
	if isMountPoint(b.Path) {
		return nil
	}
	if err := unix.Mount(source, b.Path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", b.Path, source, err)
	}

	return nil
}

// mountSite mounts the FAT partition that people put site.yaml on: read-only, and for
// root alone, since it holds the BMCs' passwords.
func mountSite(boot stick.BootInfo) error {
	part, ok := boot.Partition(stick.PartitionSite)
	if !ok {
		return fmt.Errorf("mount site: %s has no partition %s", boot.Disk.Path, stick.PartitionSite)
	}
	return mountAt(
		part.Path, stick.SiteDir, "vfat", siteFlags, "umask=0077,utf8",
	)
}

// saveMachineID writes the identity of this boot to DATA unless one is there.
func saveMachineID(dir, id string) error {
	path := filepath.Join(dir, stick.MachineIDName)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return atomicfile.Write(path, []byte(id+"\n"), 0o444)
}
