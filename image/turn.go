package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// turnPoll is how often a build asks whether the one before it has ended.
const turnPoll = time.Second

// takeTurn waits until no other build writes to the directory of out, and keeps others waiting until release is called,
// or this program ends. Two builds at once would write the same files.
func takeTurn(ctx context.Context, out string, progress Progress) (release func(), err error) {
	dir := filepath.Dir(out)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of the image: %w", err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the directory of the image: %w", err)
	}

	for told := false; ; told = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		if !told {
			progress.Log("waiting for another build that writes to " + dir)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("another build writes to %s: %w", dir, ctx.Err())
		case <-time.After(turnPoll):
		}
	}
}
