package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/stick"
)

// definitions is where systemd-repart is told about DATA; an overlay puts it there.
const definitions = "/usr/lib/firstlight/repart.d"

// readDisk reads the table of the boot disk and makes sure it is that disk: names are
// given out anew when something is plugged in or out.
func readDisk(d stick.Disk) (stick.Table, error) {
	f, err := os.Open(d.Path)
	if err != nil {
		return stick.Table{}, fmt.Errorf("open boot disk: %w", err)
	}
	defer f.Close()

	sector := int64(512)
	if b, err := os.ReadFile(filepath.Join(
		"/sys/block", filepath.Base(d.Path), "queue/logical_block_size",
	)); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
			sector = n
		}
	}

	t, err := stick.ReadTable(f, d.Bytes, sector)
	if err != nil {
		return stick.Table{}, fmt.Errorf("read boot disk %s: %w", d.Path, err)
	}
	if t.GUID != d.GUID {
		return stick.Table{}, fmt.Errorf(
			"read boot disk %s: its GUID is %s, this boot is from %s", d.Path, t.GUID, d.GUID,
		)
	}

	return t, nil
}

// repart runs systemd-repart on this one device. It formats the new file system first
// and writes the partition table last, so that a power cut leaves either no DATA or a
// whole one; it moves the second copy of the table to the end of the medium.
func (k Preparer) repart(ctx context.Context, d stick.Disk) error {
	began := time.Now()
	// No discard: some sticks answer it with minutes of silence.
	err := run(ctx, 0, "systemd-repart", "--dry-run=no", "--discard=no", "--seed=random", "--no-pager", "--no-legend",
		"--definitions="+definitions, d.Path)
	k.Log.Info("partition table written", "disk", d.Path, "took", time.Since(began).Round(time.Millisecond), "err", err)
	return err
}

// findData waits until the kernel has made the device of the DATA partition.
func findData(ctx context.Context, d stick.Disk) (stick.Partition, error) {
	t, err := readDisk(d)
	if err != nil {
		return stick.Partition{}, err
	}

	e, ok := t.Entry(stick.PartitionData)
	if !ok {
		return stick.Partition{}, fmt.Errorf("find data partition: %s has none after systemd-repart", d.Path)
	}

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if node := nodeOf(d.Path, e.Index); node != "" {
			return stick.Partition{
				Index: e.Index,
				Name:  e.Name,
				GUID:  e.GUID,
				Path:  node,
				Start: e.Start,
				Bytes: e.Bytes,
			}, nil
		}
		select {
		case <-ctx.Done():
			return stick.Partition{}, fmt.Errorf(
				"find data partition: the kernel made no device for entry %d of %s", e.Index, d.Path,
			)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// nodeOf returns the device of a disk's partition, "" if there is none yet.
func nodeOf(disk string, index int) string {
	dir := filepath.Join("/sys/block", filepath.Base(disk))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}

	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name(), "partition"))
		if err != nil || strings.TrimSpace(string(b)) != strconv.Itoa(index) {
			continue
		}

		node := "/dev/" + e.Name()
		if _, err := os.Stat(node); err == nil {
			return node
		}
	}

	return ""
}

// check replays the journal and, if the file system was marked as faulty, repairs it.
// e2fsck's exit code is a sum of bits: 1 and 2 are repaired, from 4 on something is left.
func (k Preparer) check(ctx context.Context, device string) error {
	err := run(ctx, 3, "e2fsck", "-p", device)
	if err == nil {
		return nil
	}

	k.Log.Warn("file system needs repair", "device", device, "err", err)
	// -y throws away what fits nowhere: better than no appliance, and the record of what
	// nodes do is in their own disks and BMCs.
	if err := run(ctx, 3, "e2fsck", "-f", "-y", device); err != nil {
		return fmt.Errorf("repair %s: %w; what this appliance had done is unknown, so it does nothing: save the partition's content, then write the stick again with --forget", stick.PartitionData, err)
	}

	return nil
}

// growFileSystem fills the partition, if it is larger than the file system (mounted).
func (k Preparer) growFileSystem(ctx context.Context, p stick.Partition) error {
	f, err := os.Open(p.Path)
	if err != nil {
		return err
	}

	have, err := ext4Bytes(f)
	f.Close()
	if err != nil || p.Bytes-have < align {
		return err
	}

	return run(ctx, 0, "resize2fs", p.Path)
}

// ext4Bytes reads the length of a file system from its superblock
// (Documentation/filesystems/ext4/super.rst).
func ext4Bytes(f interface {
	ReadAt([]byte, int64) (int, error)
}) (int64, error) {
	sb := make([]byte, 1024)
	if _, err := f.ReadAt(sb, 1024); err != nil {
		return 0, fmt.Errorf("read ext4 superblock: %w", err)
	}

	le := binary.LittleEndian
	if le.Uint16(sb[0x38:]) != 0xef53 || le.Uint32(sb[0x18:]) > 6 {
		return 0, errors.New("read ext4 superblock: no ext4")
	}

	blocks := uint64(le.Uint32(sb[4:]))
	if le.Uint32(sb[0x60:])&0x80 != 0 { // INCOMPAT_64BIT
		blocks |= uint64(le.Uint32(sb[0x150:])) << 32
	}

	if blocks > 1<<48 {
		return 0, errors.New("read ext4 superblock: length makes no sense")
	}

	return int64(blocks) * (1024 << le.Uint32(sb[0x18:])), nil
}

// run executes a program; exit codes up to good are success. The error carries the
// command and what it said.
func run(ctx context.Context, good int, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) && exit.ExitCode() >= 0 && exit.ExitCode() <= good {
		return nil
	}

	return fmt.Errorf("run %s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(out))
}
