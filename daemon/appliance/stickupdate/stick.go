package stickupdate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/stick"
)

// Medium is a partition: a block device, or a stretch of a file.
type Medium interface {
	io.ReaderAt
	io.WriterAt
	Sync() error // until what was written is on the medium
	Drop() error // what was read, so that the next read comes from the medium
}

// Partition is a medium and its size in bytes.
type Partition struct {
	Medium
	Bytes int64
}

// Stick is what of the stick an update reads and writes: by name of the partition.
type Stick struct {
	ESP   Partition
	Slots map[stick.Slot]Slot
}

// Slot is the two partitions of a slot.
type Slot struct{ Boot, Root Partition }

// errOneSlot is for sticks of versions that had no boot partitions.
var errOneSlot = errors.New("this stick has one slot: it was written by a version without updates in place; " +
	"write it again with `firstlight flash`, which keeps DATA")

// OpenStick opens the stick that this system runs from to write to it, for itself alone: the kernel refuses a partition
// that is in use. The running root is left out. The returned function closes it.
func OpenStick(boot stick.BootInfo) (s *Stick, closeAll func(), err error) {
	return openStick(boot, os.O_RDWR|unix.O_EXCL)
}

// ReadStick opens it only to read, while somebody else may write to it.
func ReadStick(boot stick.BootInfo) (s *Stick, closeAll func(), err error) {
	return openStick(boot, os.O_RDONLY)
}

func openStick(boot stick.BootInfo, flags int) (s *Stick, closeAll func(), err error) {
	var files []*os.File
	closeAll = func() {
		for _, f := range files {
			f.Close()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()

	open := func(name string) (Partition, error) {
		p, ok := boot.Partition(name)
		if !ok {
			return Partition{}, errOneSlot
		}
		f, err := os.OpenFile(p.Path, flags|unix.O_CLOEXEC, 0)
		if err != nil {
			return Partition{}, fmt.Errorf("open partition %s: %w", name, err)
		}
		files = append(files, f)
		return Partition{device{f}, p.Bytes}, nil
	}

	s = &Stick{Slots: map[stick.Slot]Slot{}}
	if s.ESP, err = open(stick.PartitionESP); err != nil {
		return nil, nil, err
	}
	for _, which := range []stick.Slot{stick.SlotA, stick.SlotB} {
		var slot Slot
		if slot.Boot, err = open(which.Boot()); err != nil {
			return nil, nil, err
		}
		if which != boot.Slot {
			if slot.Root, err = open(which.Root()); err != nil {
				return nil, nil, err
			}
		}
		s.Slots[which] = slot
	}

	return s, closeAll, nil
}

// device is an opened block device.
type device struct{ *os.File }

// Drop implements Medium.
func (d device) Drop() error {
	if err := unix.IoctlSetInt(int(d.Fd()), unix.BLKFLSBUF, 0); err != nil {
		return err
	}
	return unix.Fadvise(int(d.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// Environment reads the boot loader's memory.
func (s *Stick) Environment() (stick.Environment, error) {
	volume, err := fat.Open(s.ESP)
	if err != nil {
		return stick.Environment{}, fmt.Errorf("read ESP: %w", err)
	}
	block, err := volume.ReadFile(stick.EnvironmentPath)
	if err != nil {
		return stick.Environment{}, fmt.Errorf("read ESP: %w", err)
	}
	return stick.ParseEnvironment(block)
}

// SetEnvironment writes the one sector of the boot loader's memory that says something, and reads it back. Cut
// anywhere, the memory is what it was or what it shall be. Nothing else of the ESP is written.
func (s *Stick) SetEnvironment(e stick.Environment) error {
	volume, err := fat.Open(s.ESP)
	if err != nil {
		return fmt.Errorf("write ESP: %w", err)
	}
	at, err := volume.Offset(stick.EnvironmentPath)
	if err != nil {
		return fmt.Errorf("write ESP: %w", err)
	}

	sector, got := e.Encode()[:stick.EnvironmentSector], make([]byte, stick.EnvironmentSector)
	if _, err := s.ESP.WriteAt(sector, at); err != nil {
		return fmt.Errorf("write ESP: %w", err)
	}
	if err := errors.Join(s.ESP.Sync(), s.ESP.Drop()); err != nil {
		return fmt.Errorf("write ESP: %w", err)
	}
	if _, err := s.ESP.ReadAt(got, at); err != nil {
		return fmt.Errorf("read back ESP: %w", err)
	}
	if !bytes.Equal(got, sector) {
		return errors.New("read back ESP: it differs from what was written; the stick is faulty or write-protected")
	}
	return nil
}

// Version is what a slot holds, "" for nothing.
func (s *Stick) Version(which stick.Slot) string {
	volume, err := fat.Open(s.Slots[which].Boot)
	if err != nil {
		return ""
	}
	config, err := readConfig(volume)
	if err != nil {
		return ""
	}
	return config.Version
}
