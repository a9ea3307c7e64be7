// Package storage gives the appliance its memory: it makes, finds, grows, checks and
// mounts the DATA partition of the disk the appliance was started from, binds the
// directories that must outlive a boot to it, and mounts SITE. It runs once per boot,
// before everything that keeps state, and every step may be cut by a power failure and
// repeated. No other disk is ever opened for writing.
package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-tpm/tpm2/transport"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/luks"
	"firstlight.dev/firstlight/assets/stick"
)

// Preparer does the work.
type Preparer struct {
	Log  *slog.Logger
	Site []string // paths of the site document: the first that is there counts

	// TPM opens the TPM 2.0 of this machine; KeyFile reads the key file of the owner's medium, nil if there is none.
	// Nil: really.
	TPM     func() (transport.TPMCloser, error)
	KeyFile func() ([]byte, error)

	// Variables is where the firmware's variables are, and Restart starts the machine anew. "", nil: really.
	Variables string
	Restart   func() error

	// SiteDir is where SITE is mounted, and WriteSite replaces a file there, as ReplaceSite. "", nil: really.
	SiteDir   string
	WriteSite func(dir, name string, text []byte, check func() error) error

	// Exec runs a program that is handed keys, the first as /dev/fd/3, and returns what it printed. Nil: really.
	Exec func(ctx context.Context, keys [][]byte, name string, args ...string) ([]byte, error)
}

// Run does all and leaves the record at stick.StorageInfoFile. An error means that there is
// not even a place for volatile state, or no record of the boot. A DATA partition that
// cannot be made or used is no error: the record says so, and the daemon shows it.
func (k Preparer) Run(ctx context.Context) (stick.StorageInfo, error) {
	boot, err := stick.Load[stick.BootInfo](stick.BootInfoFile)
	if err != nil {
		return stick.StorageInfo{}, err
	}

	siteErr := mountSite(boot) // first: it says what the key of DATA must be
	require := RequireUnknown
	if siteErr == nil {
		require = readRequirement(k.Site...)
	}

	// Before DATA is made: its seal depends on the firmware's keys.
	chain, err := k.enroll(ctx, boot, siteErr == nil && asksToEnroll(k.Site...))
	if err != nil {
		k.Log.Error("Secure Boot", "err", err)
	}

	record, err := k.mountData(ctx, boot, require)
	record.BootNote = chain
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
		if err := k.saveIdentity(ctx, boot.MachineID.ID, record); err != nil {
			k.Log.Error("machine-id not kept", "err", err)
		}
	}

	if siteErr != nil {
		k.Log.Error("site partition not mounted", "err", siteErr)
	} else {
		record.Site = true
	}

	return record, stick.Save(stick.StorageInfoFile, record)
}

// mountData leaves DATA mounted, or says why not: state volatile if the disk has none and no room for one, locked if
// nothing here may open or make it, broken if there is one that cannot be used.
func (k Preparer) mountData(ctx context.Context, boot stick.BootInfo, require Requirement) (stick.StorageInfo, error) {
	disk := boot.Disk
	table, err := readDisk(disk)
	if err != nil {
		return stick.StorageInfo{State: stick.StorageBroken}, err
	}

	if table.Backup {
		if err := k.repairBootDisk(disk); err != nil {
			k.Log.Error("partition table not repaired", "err", err) // the other copy is still good
		}
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
		err := checkNumber(table)
		if err == nil {
			err = k.makeData(ctx, boot, dataRoom(table, disk.Bytes), require)
		}
		if refused, ok := errors.AsType[refusal](err); ok {
			return stick.StorageInfo{State: refused.State}, err
		}
		if err != nil {
			// Nothing of this appliance can be on a partition that is not there yet.
			return stick.StorageInfo{State: stick.StorageVolatile}, err
		}
		unusable = stick.StorageVolatile
	case Grow:
		if err := k.growPartition(disk, dataRoom(table, disk.Bytes)); err != nil {
			k.Log.Error("data partition not grown", "err", err) // as large as before is still good
		}
	}

	part, err := findData(ctx, disk)
	if err != nil {
		return stick.StorageInfo{State: unusable}, err
	}

	record := stick.StorageInfo{State: unusable, Device: part.Path, GUID: part.GUID, Bytes: part.Bytes}
	device, seal, err := k.openData(ctx, part.Path)
	if locked := lockedError(""); errors.As(err, &locked) {
		record.State = stick.StorageLocked
		return record, err
	}
	if err != nil {
		return record, err
	}
	if err := k.check(ctx, device); err != nil {
		return record, err
	}
	if err := mountAt(device, stick.DataDir, "ext4", unix.MS_NOATIME, "errors=remount-ro"); err != nil {
		return record, err
	}

	if err := k.growFileSystem(ctx, device); err != nil {
		k.Log.Error("file system not grown", "device", device, "err", err)
	}

	record.State = stick.StorageData
	record.Seal, record.KeyFile = seal.Way, seal.KeyFile
	record.SealNote = strings.TrimSpace(describeForeign(require, seal.Opened) + " " + seal.Note)
	return record, nil
}

// openData returns the device of DATA's file system: the partition itself if an earlier version made it, which is used
// as it is, else the opened volume.
func (k Preparer) openData(ctx context.Context, partition string) (device string, seal sealInfo, err error) {
	f, err := os.Open(partition)
	if err != nil {
		return "", seal, fmt.Errorf("open %s: %w", stick.PartitionData, err)
	}
	_, err = luks.Read(f)
	f.Close()
	if errors.Is(err, luks.ErrNone) {
		return partition, sealInfo{Way: stick.SealNone, Opened: stick.SealNone}, nil
	}
	if err != nil {
		return "", seal, fmt.Errorf("open %s: %w; write the stick again with --forget, and restore an away copy",
			stick.PartitionData, err)
	}

	v := volume{k: k, device: partition}
	seal, err = v.unlock(ctx, func(key []byte) error {
		if _, err := os.Stat(mapped); err == nil {
			return nil // the work is repeated within one boot
		}
		return v.open(ctx, key)
	})
	return mapped, seal, err
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

// saveIdentity writes the identity of this boot to DATA unless one is there, and has the volume say which it is.
func (k Preparer) saveIdentity(ctx context.Context, id string, record stick.StorageInfo) error {
	if err := saveMachineID(stick.DataDir, id); err != nil || record.Seal == stick.SealNone {
		return err
	}

	kept, err := os.ReadFile(filepath.Join(stick.DataDir, stick.MachineIDName))
	if err != nil {
		return err
	}
	f, err := os.Open(record.Device)
	if err != nil {
		return err
	}
	defer f.Close()

	// The one on DATA is right: an away copy may have brought it.
	want := volumeUUID(string(bytes.TrimSpace(kept)))
	if h, err := luks.Read(f); err != nil || h.UUID == want {
		return err
	}
	return volume{k: k, device: record.Device}.setUUID(ctx, want)
}

// saveMachineID writes the identity of this boot to DATA unless one is there.
func saveMachineID(dir, id string) error {
	path := filepath.Join(dir, stick.MachineIDName)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return atomicfile.Write(path, []byte(id+"\n"), 0o444)
}
