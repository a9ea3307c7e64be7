package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/stick"
)

// mountDisk mounts the root of a disk image: its first partition with an ext4.
func mountDisk(file, target string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil {
		return err
	}

	table, err := stick.ReadTable(f, info.Size(), 512)
	if err != nil {
		return fmt.Errorf("read partitions of %s: %w", file, err)
	}

	for _, e := range table.Entries {
		magic := make([]byte, 2)
		if _, err := f.ReadAt(magic, e.Start+0x438); err == nil && magic[0] == 0x53 && magic[1] == 0xef {
			return mountLoop(file, e.Start, target, "ext4")
		}
	}

	return fmt.Errorf("find root in %s: no partition holds an ext4", file)
}

// mountLoop mounts the file system that begins at offset in file, to be read. The loop device frees
// itself with the mount.
func mountLoop(file string, offset int64, target, fs string) error {
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
			Offset: uint64(offset), Flags: unix.LO_FLAGS_READ_ONLY | unix.LO_FLAGS_AUTOCLEAR}}
		if err := unix.IoctlLoopConfigure(int(loop.Fd()), &config); err != nil {
			loop.Close()
			if err == unix.EBUSY {
				continue
			}
			return fmt.Errorf("set up %s: %w", name, err)
		}

		err = unix.Mount(name, target, fs, unix.MS_RDONLY, "")
		loop.Close()
		if err != nil {
			return fmt.Errorf("mount %s: %w", file, err)
		}

		return nil
	}

	return fmt.Errorf("find free loop device: all were taken at once")
}
