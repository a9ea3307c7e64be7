package storage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
)

// keyMediumPatience is how long a new DATA waits for a medium with a key on a machine that has no TPM.
const keyMediumPatience = 10 * time.Second

// refusal says why DATA is not made, and in which state that leaves the appliance; its text is for people.
type refusal struct{ making }

func (r refusal) Error() string { return r.Refusal }

// makeData makes an encrypted DATA in the free space of the disk. All of it, and what opens it, is there before the
// partition table names it: a power cut leaves either no DATA or a whole one, and the next boot decides again.
func (k Preparer) makeData(ctx context.Context, boot stick.BootInfo, room Room, require Requirement) error {
	r := k.findKeys(ctx, 0)
	defer r.close()

	if !r.KeyFile && (!r.TPM || require == RequireKeyFile) {
		wait := keyMediumPatience
		if require == RequireKeyFile {
			wait = keyMediumWait
		}
		k.findKeyFile(ctx, r, wait)
	}

	if err := r.dropDeafTPM(); err != nil {
		k.Log.Error("TPM does not seal", "err", err)
	}

	plan := planMaking(require, r.means)
	if len(plan.Ways) == 0 {
		return refusal{plan}
	}

	disk, err := openDisk(boot.Disk.Path)
	if err != nil {
		return err
	}
	defer disk.Close()

	_ = changePartition(disk, unix.BLKPG_DEL_PARTITION, Room{}) // of a try before, in this boot
	if err := changePartition(disk, unix.BLKPG_ADD_PARTITION, room); err != nil {
		return fmt.Errorf("make %s: %w", stick.PartitionData, err)
	}

	node, err := awaitNode(ctx, boot.Disk.Path, stick.NumberData)
	if err == nil {
		err = k.fillData(ctx, node, boot.MachineID.ID, plan.Ways, r)
	}
	if err == nil {
		err = k.addToTable(disk, boot.Disk.Bytes, room)
	}
	if err != nil {
		_ = changePartition(disk, unix.BLKPG_DEL_PARTITION, Room{})
		return fmt.Errorf("make %s: %w", stick.PartitionData, err)
	}

	return nil
}

// fillData makes the volume on a device, all by which it is opened, and its file system.
func (k Preparer) fillData(ctx context.Context, device, machineID string, ways []stick.Seal, r *keyring) error {
	v := volume{k: k, device: device}
	key, err := v.make(ctx, machineID, ways, r)
	if err != nil {
		return err
	}
	if err := v.open(ctx, key); err != nil {
		return err
	}

	// No discard: some sticks answer it with minutes of silence. What is zero there is so by the kernel, later.
	err = run(ctx, 0, "mkfs.ext4", "-q", "-F", "-L", stick.PartitionData, "-m", "0", "-E", "nodiscard,lazy_itable_init=1",
		mapped)
	return errors.Join(err, v.close(ctx))
}

// make makes the volume with the first of the ways, then adds the others, and returns a key that opens it.
func (v volume) make(ctx context.Context, machineID string, ways []stick.Seal, r *keyring) ([]byte, error) {
	t, key, err := r.newToken(ways[0])
	if err != nil {
		return nil, err
	}
	if err := v.format(ctx, volumeUUID(machineID), key, ways[0]); err != nil {
		return nil, err
	}

	t.Slots = []string{"0"}
	if err := v.addToken(ctx, t); err != nil {
		return nil, err
	}
	if err := v.check(ctx, t, r); err != nil {
		return nil, fmt.Errorf("open by %s: %w", t.Way, err)
	}

	for _, way := range ways[1:] {
		if err := v.add(ctx, way, key, r); err != nil {
			return nil, fmt.Errorf("add %s: %w", way, err)
		}
	}

	return key, nil
}

// volumeUUID is the machine-id as a UUID's text: firstlight-init reads the appliance's identity from it before
// anything can open the volume.
func volumeUUID(machineID string) string {
	if len(machineID) != 32 {
		return machineID // cryptsetup refuses it
	}
	return machineID[:8] + "-" + machineID[8:12] + "-" + machineID[12:16] + "-" + machineID[16:20] + "-" + machineID[20:]
}

// openDisk opens the boot disk to write its table.
func openDisk(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open boot disk: %w", err)
	}
	return f, nil
}

// changePartition tells the kernel about DATA alone (BLKPG, include/uapi/linux/blkpg.h); the others are in use.
func changePartition(disk *os.File, op int32, room Room) error {
	p := unix.BlkpgPartition{Start: room.Start, Length: room.Bytes, Pno: stick.NumberData}
	arg := unix.BlkpgIoctlArg{Op: op, Datalen: int32(unsafe.Sizeof(p)), Data: (*byte)(unsafe.Pointer(&p))}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, disk.Fd(), unix.BLKPG, uintptr(unsafe.Pointer(&arg)))
	if errno != 0 {
		return fmt.Errorf("change partition %d of %s in the kernel: %w", stick.NumberData, disk.Name(), errno)
	}
	return nil
}

// addToTable adds DATA to the table, or gives it a larger place.
func (k Preparer) addToTable(disk *os.File, size int64, room Room) error {
	began := time.Now()
	err := writeTable(disk, size, func(t *gpt.Table) error {
		for i, p := range t.Partitions {
			if p.Name == stick.PartitionData {
				t.Partitions[i].Last = uint64(room.Start+room.Bytes)/gpt.SectorSize - 1
				return nil
			}
		}

		kind, err := gpt.ParseGUID(gpt.TypeLinux)
		if err != nil {
			return err
		}

		data := gpt.Partition{
			Index: stick.NumberData,
			Type:  kind,
			First: uint64(room.Start) / gpt.SectorSize,
			Last:  uint64(room.Start+room.Bytes)/gpt.SectorSize - 1,
			Name:  stick.PartitionData,
		}
		rand.Read(data.GUID[:])
		data.GUID[7], data.GUID[8] = data.GUID[7]&0x0f|0x40, data.GUID[8]&0x3f|0x80 // version 4, in the order of a disk
		t.Partitions = append(t.Partitions, data)
		return nil
	})
	k.Log.Info("partition table written", "disk", disk.Name(), "took", time.Since(began).Round(time.Millisecond), "err", err)
	return err
}

// repairTable writes both copies from the one that is whole, after a power cut in addToTable.
func (k Preparer) repairTable(disk *os.File, size int64) error {
	err := writeTable(disk, size, func(*gpt.Table) error { return nil })
	k.Log.Info("partition table repaired", "disk", disk.Name(), "err", err)
	return err
}

// writeTable changes the table of a disk of size bytes. The copy at the disk's end is on the medium before the other
// one is touched, so that at any moment one of them is whole.
func writeTable(disk *os.File, size int64, change func(*gpt.Table) error) error {
	t, err := gpt.ReadPrimary(disk)
	if errors.Is(err, gpt.ErrNoTable) {
		t, err = gpt.ReadBackup(disk, size)
	}
	if err != nil {
		return fmt.Errorf("write partition table: %w", err)
	}
	if err := change(t); err != nil {
		return fmt.Errorf("write partition table: %w", err)
	}

	if t, err = t.Resize(size); err != nil {
		return fmt.Errorf("write partition table: %w", err)
	}
	start, end, err := t.Encode()
	if err != nil {
		return fmt.Errorf("write partition table: %w", err)
	}

	for _, part := range []struct {
		bytes []byte
		at    int64
	}{
		{end, size/gpt.SectorSize*gpt.SectorSize - int64(len(end))},
		{start, gpt.SectorSize},
	} {
		if _, err := disk.WriteAt(part.bytes, part.at); err != nil {
			return fmt.Errorf("write partition table: %w", err)
		}
		if err := disk.Sync(); err != nil {
			return fmt.Errorf("write partition table: %w", err)
		}
	}

	return nil
}
