package image

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/verity"
	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/media"
)

// stamp remembers what the outputs were made from; they are not kept in the cache.
type stamp struct {
	Key    string
	Files  []File
	Times  []time.Time
	Code   string  // what wrote them, see publisher
	Frames []int64 // of the compressed image
	Base   string  // digest of the base of the root file system
	At     int64   // where it begins in the image, in bytes
	Boot   string  // of this machine, in which the outputs were written or looked at last
}

// hasRoot tells whether the image has this base of its root file system at at.
func (s stamp) hasRoot(base cache.Item, at int64) bool { return s.Base == base.Digest && s.At == at }

func (b *build) stampPath() string {
	return filepath.Join(filepath.Dir(b.Out), "."+filepath.Base(b.Out)+".stamp")
}

// readStamp reads the stamp of an earlier build whose outputs are still what they were. They were
// not waited for until they were on the disk: after a start of this machine, which may have lost
// power, their digests are looked at once.
func (b *build) readStamp() (s stamp, ok bool) {
	text, err := os.ReadFile(b.stampPath())
	if err != nil || json.Unmarshal(text, &s) != nil || len(s.Files) != len(s.Times) {
		return s, false
	}

	dir, boot := filepath.Dir(b.Out), bootID()
	for i, file := range s.Files {
		path := filepath.Join(dir, filepath.Base(file.Path))
		info, err := os.Stat(path)
		if err != nil || info.Size() != file.Bytes || !info.ModTime().Equal(s.Times[i]) {
			return s, false
		}
		if s.Boot == boot || file.SHA256 == "" {
			continue
		}
		if digest, err := cache.FileDigest(path); err != nil || digest != file.SHA256 {
			return s, false
		}
	}

	if s.Boot != boot {
		s.Boot = boot
		_ = s.write(b.stampPath()) // else they are looked at again
	}

	return s, true
}

// bootID is another one after each start of this machine, random(4); empty where there is none.
func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

func (s stamp) write(path string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write stamp: %w", err)
	}
	return os.WriteFile(path, text, 0o644)
}

// publisherDigest digests what decides about the bytes of an image, compressed and not, and of its block map.
func (b *build) publisherDigest() (string, error) {
	return b.sources.Digest("image/media", "image/disk")
}

// previousOutputs is what the outputs of the build before give to this one.
type previousOutputs struct {
	published *media.PreviousImage // nil if nothing
	known     verity.Known
	open      []io.Closer
}

func (o previousOutputs) Close() {
	for _, c := range o.open {
		c.Close()
	}
}

// openPrevious opens the outputs of the build before, if they are as the same code wrote them. An image
// whose root has the same base at the same place, and that is for the same eyes, becomes the file in which the new one is made.
func (b *build) openPrevious(base cache.Item, at int64) (o previousOutputs, err error) {
	s, ok := b.readStamp()
	code, err := b.publisherDigest()
	if err != nil || !ok || s.Code != code {
		return o, err
	}

	text, err := os.ReadFile(b.Out + media.SuffixBmap)
	if err != nil {
		return o, nil // what is gone cannot be used
	}

	blocks, err := media.ParseBmap(text)
	if err != nil {
		return o, nil
	}

	packed, err := os.Open(b.Out + media.SuffixZstd)
	if err != nil {
		return o, nil
	}

	o.open = append(o.open, packed)
	o.published = &media.PreviousImage{Packed: packed, Bmap: blocks, Frames: s.Frames}
	if !b.basePlaced && s.hasRoot(base, at) && b.samePerm() {
		kept, err := disk.ReuseImage(b.Out, base.Path, at)
		if err == nil { // else a new file is made, as if there had been no image
			b.basePlaced, o.known, o.published.Reused = true, kept.Hashes, media.Extent{Start: kept.From, End: kept.To}
			return o, nil
		}
	}

	image, err := os.Open(b.Out)
	if err != nil {
		return o, nil // no image to compare with, and the frames serve for nothing
	}

	o.open = append(o.open, image)
	o.published.Image = image
	return o, nil
}

func (b *build) writeStamp(s stamp) (err error) {
	if s.Code, err = b.publisherDigest(); err != nil {
		return err
	}

	for _, file := range s.Files {
		info, err := os.Stat(file.Path)
		if err != nil {
			return fmt.Errorf("write stamp: %w", err)
		}
		s.Times = append(s.Times, info.ModTime())
	}

	s.Boot = bootID()
	return s.write(b.stampPath())
}
