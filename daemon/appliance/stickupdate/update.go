// Package stickupdate writes another version of the appliance into the slot of the stick that it does not run from, has
// the boot loader try it once, and keeps it when the appliance comes to Ready with it. Until then the stick starts what
// it started before, wherever the power is cut. docs/disk.md says how.
package stickupdate

import (
	"context"
	"errors"
	"fmt"
	"io"

	"firstlight.dev/firstlight/assets/stick"
)

// Progress is told how far a phase is, in bytes.
type Progress func(phase string, done, total int64)

// Phases that report their progress.
const (
	PhaseWrite = "write"
	PhaseCheck = "check"
)

// Running is what the appliance runs now.
type Running struct {
	Version string
	Slot    stick.Slot
	Trial   bool // and it is not kept yet
}

// Refuse says why the appliance does not update to a version; nil if it may. An older one is refused unless downgrade
// (stick.CheckUpgrade).
func Refuse(r Running, version string, downgrade bool) error {
	switch {
	case r.Trial:
		return errors.New("the running version is on trial itself: it is kept when the appliance is ready; try again then")
	case downgrade:
		return nil
	}
	return stick.CheckUpgrade(r.Version, version)
}

// Write puts the image into the slot that is not running, reads it back, and has the boot loader try it at the next
// start. signature is the image's, nil for none. Cut before the end, the stick starts the running version as before.
func Write(
	ctx context.Context,
	image *Image,
	s *Stick,
	running stick.Slot,
	signature []byte,
	progress Progress,
) error {
	into := running.Other()
	slot := s.Slots[into]
	if err := checkRoom(image, slot, into); err != nil {
		return err
	}

	// What the slot held is no longer whole from here on: nothing may start it.
	if err := s.SetEnvironment(stick.Environment{Slot: running}); err != nil {
		return err
	}

	total := image.boot.Size() + image.root.Size()
	written := int64(0)
	for _, part := range []struct {
		from *io.SectionReader
		to   Partition
		name string
	}{{image.boot, slot.Boot, into.Boot()}, {image.root, slot.Root, into.Root()}} {
		err := copyTo(ctx, part.to, part.from, func(done int64) { progress(PhaseWrite, written+done, total) })
		if err != nil {
			return fmt.Errorf("write %s: %w", part.name, err)
		}
		written += part.from.Size()
	}

	if signature != nil {
		if err := putSignature(slot.Boot, signature); err != nil {
			return fmt.Errorf("write signature to %s: %w", into.Boot(), err)
		}
	}

	progress(PhaseCheck, 0, total)
	root := io.NewSectionReader(slot.Root, 0, image.root.Size())
	if err := checkSlot(ctx, slot.Boot, root, image); err != nil {
		return fmt.Errorf("read back slot %s: %w; the stick is faulty", into, err)
	}
	progress(PhaseCheck, total, total)

	return s.SetEnvironment(stick.Environment{Slot: running, Try: into})
}

// checkRoom refuses an image that is larger than the slot.
func checkRoom(image *Image, slot Slot, into stick.Slot) error {
	for _, part := range []struct {
		name       string
		need, have int64
	}{
		{into.Boot(), image.boot.Size(), slot.Boot.Bytes},
		{into.Root(), image.root.Size(), slot.Root.Bytes},
	} {
		if part.need > part.have {
			return fmt.Errorf("the image needs %d MiB in %s, which has %d: write the stick with `firstlight flash`, which "+
				"keeps DATA", (part.need+1<<20-1)>>20, part.name, part.have>>20)
		}
	}
	return nil
}

// syncEvery bounds how much is only in memory, so that progress is that of the medium.
const syncEvery = 32 << 20

// copyTo writes all of from to the start of a partition, until it is on the medium.
func copyTo(ctx context.Context, to Partition, from *io.SectionReader, report func(done int64)) error {
	buf := make([]byte, 1<<20)
	for at := int64(0); at < from.Size(); {
		if err := ctx.Err(); err != nil {
			return err
		}

		n := min(int64(len(buf)), from.Size()-at)
		if _, err := from.ReadAt(buf[:n], at); err != nil {
			return fmt.Errorf("read image: %w", err)
		}
		if _, err := to.WriteAt(buf[:n], at); err != nil {
			return err
		}

		at += n
		if at%syncEvery == 0 || at == from.Size() {
			if err := to.Sync(); err != nil {
				return err
			}
			report(at)
		}
	}
	return to.Drop()
}
