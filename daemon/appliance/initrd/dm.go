package initrd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ioctls of /dev/mapper/control, from linux/dm-ioctl.h: struct dm_ioctl of 312 bytes,
// then, when a table is loaded, one struct dm_target_spec of 40 bytes and its parameters.
const (
	dmHeader  = 312
	dmTarget  = 40
	dmCreate  = 3
	dmRemove  = 4
	dmSuspend = 6 // without the suspend flag: resume
	dmLoad    = 9

	dmReadOnly = 1 << 0
	sector     = 512
)

// dmName is what `dmsetup ls` shows.
const dmName = "firstlight-root"

// mapVerity makes the read-only device that checks every block of device against the
// tree before it gives it out, and returns its path.
func mapVerity(v verity, device, rootHash string) (string, error) {
	c, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("map root: %w", err)
	}
	defer c.Close()

	head, err := dmCall(c, dmCreate, dmReadOnly, nil)
	if err != nil {
		return "", fmt.Errorf("map root: create device: %w", err)
	}

	params := append([]byte(v.table(device, rootHash)), 0)
	target := make([]byte, dmTarget, dmTarget+len(params)+8)
	ne := binary.NativeEndian
	ne.PutUint64(target[8:], v.blocks*(4096/sector)) // length
	copy(target[24:40], "verity")
	target = append(target, params...)
	for len(target)%8 != 0 {
		target = append(target, 0)
	}

	if _, err := dmCall(c, dmLoad, dmReadOnly, target); err != nil {
		return "", fmt.Errorf("map root: load table: %w", err)
	}
	if _, err := dmCall(c, dmSuspend, 0, nil); err != nil {
		return "", fmt.Errorf("map root: resume: %w", err)
	}

	// new_encode_dev of the kernel: minor bits 0-7 and 20-31, major bits 8-19.
	dev := ne.Uint64(head[40:])
	return fmt.Sprintf("/dev/dm-%d", dev&0xff|dev>>12&0xfff00), nil
}

// unmap takes the device away again, if it is there. What was unmounted just now may hold it
// for a moment.
func unmap() {
	c, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer c.Close()

	for range 20 {
		if _, err := dmCall(c, dmRemove, 0, nil); !errors.Is(err, unix.EBUSY) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// dmCall issues one ioctl and returns the header the kernel filled.
func dmCall(c *os.File, command, flags uint32, target []byte) ([]byte, error) {
	buf := make([]byte, dmHeader+len(target))
	ne := binary.NativeEndian
	ne.PutUint32(buf[0:], 4) // version 4.0.0
	ne.PutUint32(buf[12:], uint32(len(buf)))
	ne.PutUint32(buf[16:], dmHeader) // data_start
	if target != nil {
		ne.PutUint32(buf[20:], 1) // target_count
	}

	ne.PutUint32(buf[28:], flags)
	copy(buf[48:176], dmName)
	copy(buf[dmHeader:], target)
	request := 3<<30 | dmHeader<<16 | 0xfd<<8 | uintptr(command) // _IOWR(0xfd, command, struct dm_ioctl)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, c.Fd(), request, uintptr(unsafe.Pointer(&buf[0]))); errno != 0 {
		return nil, errno
	}

	return buf[:dmHeader], nil
}
