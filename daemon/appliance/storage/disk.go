package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/stick"
)

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

// findData waits until the kernel has made the device of the DATA partition.
func findData(ctx context.Context, d stick.Disk) (stick.Partition, error) {
	t, err := readDisk(d)
	if err != nil {
		return stick.Partition{}, err
	}

	e, ok := t.Entry(stick.PartitionData)
	if !ok {
		return stick.Partition{}, fmt.Errorf("find data partition: %s has none", d.Path)
	}

	node, err := awaitNode(ctx, d.Path, e.Index)
	if err != nil {
		return stick.Partition{}, err
	}

	return stick.Partition{
		Index: e.Index,
		Name:  e.Name,
		GUID:  e.GUID,
		Path:  node,
		Start: e.Start,
		Bytes: e.Bytes,
	}, nil
}

// awaitNode waits until a partition of a disk has a device, and returns it.
func awaitNode(ctx context.Context, disk string, index int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if node := nodeOf(disk, index); node != "" {
			return node, nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("find data partition: the kernel made no device for entry %d of %s", index, disk)
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

// repairBootDisk makes the first copy of the table whole again.
func (k Preparer) repairBootDisk(disk stick.Disk) error {
	f, err := openDisk(disk.Path)
	if err != nil {
		return err
	}
	defer f.Close()

	return k.repairTable(f, disk.Bytes)
}

// growPartition gives DATA the space behind it; it is not mounted yet.
func (k Preparer) growPartition(disk stick.Disk, room Room) error {
	f, err := openDisk(disk.Path)
	if err != nil {
		return err
	}
	defer f.Close()

	if err := k.addToTable(f, disk.Bytes, room); err != nil {
		return err
	}
	return changePartition(f, unix.BLKPG_RESIZE_PARTITION, room)
}

// growFileSystem fills the device, if that is larger than the file system (mounted).
func (k Preparer) growFileSystem(ctx context.Context, device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()

	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	have, err := ext4Bytes(f)
	if err != nil || size-have < align {
		return err
	}

	return run(ctx, 0, "resize2fs", device)
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

// output executes a program that keys are handed to, each by a pipe: the first is /dev/fd/3 to it. No key is in its
// command line, nor in the error.
func (k Preparer) output(ctx context.Context, keys [][]byte, name string, args ...string) ([]byte, error) {
	if k.Exec != nil {
		return k.Exec(ctx, keys, name, args...)
	}

	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	for _, key := range keys {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("run %s: %w", name, err)
		}
		defer r.Close()

		cmd.ExtraFiles = append(cmd.ExtraFiles, r)
		go func() { // a token may be longer than a pipe holds
			_, _ = w.Write(key)
			w.Close()
		}()
	}

	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("run %s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}

	return out, nil
}
