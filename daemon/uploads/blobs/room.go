package blobs

import (
	"fmt"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/artifact"
)

// diskSpace asks the file system of a folder.
func diskSpace(dir string) (free, size int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, fmt.Errorf("ask for room in %s: %w", dir, err)
	}
	return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize, nil
}

// checkRoom refuses what the disk cannot hold beside what is on its way: the remaining octets of each upload,
// scratch files for the parts, and a second time what is to be pushed into the registry.
func (d *Store) checkRoom(k artifact.Key, length, givenUp int64) error {
	if !d.Local {
		return nil
	}

	free, size, err := d.Disk()
	if err != nil {
		return err
	}

	free -= artifact.ReservedSpace(size) - givenUp
	need := int64(maxSending+1) * d.PartSize
	for _, e := range d.allEntries() {
		r := e.metadata()
		need += r.ImageLength - r.ImageOffset + d.registryOverhead(e.key, r)
	}

	d.mu.Lock()
	for w := range d.wholes {
		need += w.record.ImageLength + d.registryOverhead(w.key, w.record)
	}
	d.mu.Unlock()

	if own := length + d.registryOverhead(k, artifact.Metadata{ImageLength: length}); need+own > free {
		return &Error{
			Kind: Full,
			Text: fmt.Sprintf(
				"the disk has room for %d bytes; %s needs %d, and unfinished uploads and their scratch files need %d",
				max(free, 0), k.Name, own, need,
			),
		}
	}

	return nil
}

// registryOverhead is what an artifact will need besides its own octets: layers in the registry, until they are there.
func (d *Store) registryOverhead(k artifact.Key, r artifact.Metadata) int64 {
	if !d.Pushed || k.Collection != artifact.Container || len(r.ServedAs) > 0 || r.NotServed != "" {
		return 0
	}
	return r.ImageLength
}

// roomFor refuses the next octets of an upload when they would take what the appliance itself needs: since
// it was announced others may have filled the disk.
func (d *Store) roomFor(octets int64) error {
	if !d.Local {
		return nil
	}

	free, size, err := d.Disk()
	if err != nil {
		return err
	}
	if least := artifact.ReservedSpace(size); free-octets < least {
		return fmt.Errorf("%w: %d bytes are free, and %d of them are the appliance's own", ErrFull, free, least)
	}

	return nil
}
