package main

import (
	"fmt"
	"os"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/lab/container"
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
			return container.MountLoop(file, e.Start, target, "ext4")
		}
	}

	return fmt.Errorf("find root in %s: no partition holds an ext4", file)
}
