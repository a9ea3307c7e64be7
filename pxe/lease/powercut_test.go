package lease

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// forgetfulDisk has on its real disk what a power cut would leave: what was synced, under the names that were.
type forgetfulDisk struct {
	systemDisk
	renames []func() error
}

func (d *forgetfulDisk) create(path string) (file, error) {
	f, err := d.systemDisk.create(path)
	return &forgetfulFile{file: f}, err
}

func (d *forgetfulDisk) rename(from, to string) error {
	d.renames = append(d.renames, func() error { return os.Rename(from, to) })
	return nil
}

func (d *forgetfulDisk) syncDir(string) error {
	for _, rename := range d.renames {
		if err := rename(); err != nil {
			return err
		}
	}
	d.renames = nil
	return nil
}

type forgetfulFile struct {
	file
	cached []byte
}

func (f *forgetfulFile) Write(b []byte) (int, error) {
	f.cached = append(f.cached, b...)
	return len(b), nil
}

func (f *forgetfulFile) Sync() error {
	_, err := f.file.Write(f.cached)
	f.cached = nil
	return err
}

func (f *forgetfulFile) syncData() error { return f.Sync() }

// afterPowerCut reads the leases that are durable.
func afterPowerCut(t *testing.T, dir string) []Lease {
	f, err := os.Open(filepath.Join(dir, journalName))
	if !assert.NoError(t, err) {
		return nil
	}
	defer f.Close()
	kept, _, _, err := replay(f)
	assert.NoError(t, err)

	var leases []Lease
	for _, l := range kept {
		leases = append(leases, l)
	}
	return leases
}

// TestPowerCut: a lease that its machine was told of is there after a power cut at any moment, also one in the
// middle of a rewrite.
func TestPowerCut(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	first := open(t, dir, c)
	older := some(1, first.Now())
	first.put(older)
	first.close()

	j, err := openJournal(dir, c.clock(), &forgetfulDisk{})
	require.NoError(t, err)
	assert.ElementsMatch(t, []Lease{older}, afterPowerCut(t, dir), "while the journal is rewritten")

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	newer, durable := some(2, j.Now()), make(chan []Lease, 1)
	j.Commit([]Lease{newer}, func(err error) {
		assert.NoError(t, err)
		durable <- afterPowerCut(t, dir)
	})
	assert.ElementsMatch(t, []Lease{older, newer}, <-durable, "when the machine is told")

	stop()
	require.NoError(t, <-ended)
}

// TestEndedLeasesAreRemembered: a machine that was off for weeks gets its address again; one that is never seen
// again is forgotten.
func TestEndedLeasesAreRemembered(t *testing.T) {
	for days, remembered := range map[int]bool{0: true, 29: true, 31: false} {
		dir, c := t.TempDir(), newClock()
		j := open(t, dir, c)
		l := some(1, j.Now())
		j.put(l)
		c.pass(l.Duration + time.Duration(days)*24*time.Hour + time.Minute)
		j.close()

		j = open(t, dir, c)
		assert.Equal(t, remembered, len(j.Leases()) == 1, "%d days after its end", days)
		j.close()
	}
}
