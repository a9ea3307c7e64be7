package netboot

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"sync"
	"time"

	"firstlight.dev/firstlight/pxe/bootfile"
	"firstlight.dev/firstlight/pxe/bootserver"
	"firstlight.dev/firstlight/pxe/concat"
)

// ramdiskTail is what follows a file of ramdiskDir, of a size in bytes, when it is served: the ramdisk learns there
// to trust this appliance's root. It is not copied to DATA for that: a hundred megabytes, read and written at each
// first boot.
func (s *Server) ramdiskTail(name string, size int64) ([]byte, error) {
	if name != "initramfs" {
		return nil, nil
	}
	return s.RamdiskTail(size)
}

// ramdiskOpener opens the kernel and the ramdisk of the stick, whose root is given, each with its tail. They count as
// changed when they began to be served, since another stick came with a start of the daemon, or when the tail became
// another one: the authority is replaced meanwhile.
func ramdiskOpener(
	root fs.FS, tailOf func(name string, size int64) ([]byte, error), since time.Time,
) func(*os.Root, string) (bootserver.File, fs.FileInfo, error) {
	tails := tailTimes{since: since}
	return func(_ *os.Root, name string) (bootserver.File, fs.FileInfo, error) {
		file, info, err := openExtents(root, path.Join(ramdiskDir, name))
		if err != nil {
			return nil, nil, err
		}

		tail, err := tailOf(name, info.Size())
		if err != nil {
			return nil, nil, errors.Join(bootfile.ErrRead, err, file.Close())
		}

		whole := concat.New(concat.Part{ReadSeeker: file, Size: info.Size()}, concat.Bytes(tail))
		return whole, tailedInfo{info, whole.Size(), tails.of(name, tail)}, nil
	}
}

// tailTimes knows since when each tail is as it is.
type tailTimes struct {
	since time.Time // of those that were never others

	mu    sync.Mutex
	tails map[string][]byte
	times map[string]time.Time
}

func (t *tailTimes) of(name string, tail []byte) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tails == nil {
		t.tails, t.times = map[string][]byte{}, map[string]time.Time{}
	}

	former, known := t.tails[name]
	switch {
	case !known:
		t.times[name] = t.since
	case !bytes.Equal(former, tail):
		t.times[name] = time.Now()
	}
	t.tails[name] = tail
	return t.times[name]
}

// tailedInfo is the file's, but for its size and its time.
type tailedInfo struct {
	fs.FileInfo
	size  int64
	since time.Time
}

func (i tailedInfo) Size() int64        { return i.size }
func (i tailedInfo) ModTime() time.Time { return i.since }
