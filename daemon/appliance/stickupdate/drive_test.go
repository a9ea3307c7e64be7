package stickupdate

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
)

// drive is the stick of an appliance, in a file, behind a cache: what was written to a partition is on the medium when
// that partition is synced. The power is cut before one of its operations. The record on DATA is a file of its own,
// which its writer syncs.
type drive struct {
	file   *os.File
	table  *gpt.Table
	memory int64  // where GRUB's is on the ESP
	record string // path
	random *rand.Rand
	isLiar bool // it says that it has synced, and has not

	mu      sync.Mutex
	cache   []cachedWrite // oldest first
	running stick.Slot    // nothing may write to it; "" while GRUB runs
	strays  []string      // writes to where nothing may be written
	doing   string        // by the appliance
	begun   bool          // a part of the slot was written since then
	saved   []byte        // the record at the last operation, nil for none

	left  int    // operations until the power is cut; negative: it is not
	isOff bool   // since the power was cut
	cutAt moment // of the last cut
	had   [][]byte
	seen  []moment
}

// cachedWrite is what is not on the medium yet.
type cachedWrite struct {
	partition string
	at        int64 // in the file
	b         []byte
}

// moment is that before an operation of the drive.
type moment struct {
	phase   string
	isDirty bool // something is not on the medium yet, or comes with this operation
}

// losses are what may become of what was written and not synced.
type losses string

const (
	allIsLost     losses = "lost"      // all of it
	lastIsTorn    losses = "torn"      // the last write ends anywhere, those before it are there
	someAreThere  losses = "scattered" // some of its sectors are there, in any order
	driveSector          = 512
	recordPartial        = ".update.json.new" // of package atomicfile
)

func newDrive(t *testing.T, path, dir string, random *rand.Rand) *drive {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	table, err := gpt.ReadPrimary(f)
	require.NoError(t, err)
	d := &drive{file: f, table: table, record: filepath.Join(dir, FileName), random: random, left: -1}
	volume, err := fat.Open(d.medium(stick.PartitionESP))
	require.NoError(t, err)
	d.memory, err = volume.Offset(stick.EnvironmentPath)
	require.NoError(t, err)
	return d
}

// medium is a partition as it is without the cache.
func (d *drive) medium(name string) *io.SectionReader {
	p, _ := d.table.Find(name)
	return io.NewSectionReader(d.file, p.Offset(), p.Size())
}

// stick is the drive as the appliance opens it.
func (d *drive) stick() *Stick {
	part := func(name string) Partition {
		p, _ := d.table.Find(name)
		return Partition{cachedPart{d, name, p.Offset()}, p.Size()}
	}
	s := &Stick{ESP: part(stick.PartitionESP), Slots: map[stick.Slot]Slot{}}
	for _, which := range []stick.Slot{stick.SlotA, stick.SlotB} {
		s.Slots[which] = Slot{part(which.Boot()), part(which.Root())}
	}
	return s
}

// begin says what the appliance does from now on.
func (d *drive) begin(doing string) { d.doing, d.begun = doing, false }

// operation is what is done to a partition.
type operation int

const (
	reads operation = iota
	writes
	syncs
)

// phase is in which part of an update an operation is.
func (d *drive) phase(partition string, o operation) string {
	switch {
	case d.doing != phaseUpdate:
		return d.doing
	case partition == stick.PartitionESP && !d.begun:
		return "forget the slot"
	case partition == stick.PartitionESP:
		return "choose the trial"
	case o == reads:
		return "read the slot back"
	}
	return "write the slot"
}

// step is before each operation; false if the power is cut.
func (d *drive) step(partition string, o operation) bool {
	if d.isOff {
		return false
	}
	d.begun = d.begun || partition != stick.PartitionESP

	now := moment{d.phase(partition, o), o == writes || len(d.cache) > 0}
	record, err := os.ReadFile(d.record)
	if err != nil {
		record = nil
	}
	isSaved := !bytes.Equal(record, d.saved)
	if isSaved {
		now.phase = "record"
	}
	d.seen = append(d.seen, now)
	if d.left != 0 {
		d.left--
		d.saved = record
		return true
	}

	d.isOff, d.cutAt, d.had = true, now, [][]byte{record}
	if isSaved {
		d.had = append(d.had, d.saved)
	}
	return false
}

// cachedPart is a partition of a drive.
type cachedPart struct {
	d    *drive
	name string
	at   int64
}

func (p cachedPart) ReadAt(b []byte, at int64) (int, error) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	if !p.d.step(p.name, reads) {
		return 0, errCut
	}
	n, err := p.d.file.ReadAt(b, p.at+at)
	for _, w := range p.d.cache {
		from, to := max(w.at, p.at+at), min(w.at+int64(len(w.b)), p.at+at+int64(n))
		if from < to {
			copy(b[from-p.at-at:to-p.at-at], w.b[from-w.at:])
		}
	}
	return n, err
}

// WriteAt begins the write also if the power is cut in it.
func (p cachedPart) WriteAt(b []byte, at int64) (int, error) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	if p.d.isOff {
		return 0, errCut
	}
	isOn := p.d.step(p.name, writes)
	p.d.checkPlace(p.name, at, len(b))
	p.d.cache = append(p.d.cache, cachedWrite{p.name, p.at + at, bytes.Clone(b)})
	if !isOn {
		return 0, errCut
	}
	return len(b), nil
}

// checkPlace notes a write to anything but the sector of GRUB's memory that changes, and the slot that does not run.
func (d *drive) checkPlace(partition string, at int64, n int) {
	other := d.running.Other()
	switch {
	case partition == stick.PartitionESP && at == d.memory && (n == stick.EnvironmentSector || d.running == ""):
	case d.running != "" && (partition == other.Boot() || partition == other.Root()):
	default:
		d.strays = append(d.strays, partition)
	}
}

// Sync brings to the medium what was written to this partition.
func (p cachedPart) Sync() error {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	if !p.d.step(p.name, syncs) {
		return errCut
	}
	if p.d.isLiar {
		return nil
	}
	return p.d.flush(p.name)
}

// flush brings to the medium what was written to a partition, "" for all.
func (d *drive) flush(partition string) error {
	isOf := func(w cachedWrite) bool { return partition == "" || w.partition == partition }
	for _, w := range d.cache {
		if isOf(w) {
			if _, err := d.file.WriteAt(w.b, w.at); err != nil {
				return err
			}
		}
	}
	d.cache = slices.DeleteFunc(d.cache, isOf)
	return nil
}

func (p cachedPart) Drop() error {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	if !p.d.step(p.name, reads) {
		return errCut
	}
	return nil
}

// switchOn ends a power cut, and returns how many bytes that were written are not on the medium. A record that was
// being written is the one before or the new one; what was begun of its file is there as well.
func (d *drive) switchOn(how losses) (lost int64, err error) {
	for i, w := range d.cache {
		switch end := len(w.b); how {
		case lastIsTorn:
			if i == len(d.cache)-1 {
				end = d.random.IntN(len(w.b) + 1)
			}
			lost += int64(len(w.b) - end)
			_, err = d.file.WriteAt(w.b[:end], w.at)
		case someAreThere:
			for at := 0; at < end && err == nil; at += driveSector {
				sector := w.b[at:min(at+driveSector, end)]
				if d.random.IntN(2) == 0 {
					lost += int64(len(sector))
					continue
				}
				_, err = d.file.WriteAt(sector, w.at+int64(at))
			}
		default:
			lost += int64(end)
		}
		if err != nil {
			return lost, err
		}
	}

	record := d.had[d.random.IntN(len(d.had))]
	if len(d.had) > 1 {
		begun := d.had[0][:d.random.IntN(len(d.had[0]))]
		if err := os.WriteFile(filepath.Join(filepath.Dir(d.record), recordPartial), begun, 0o600); err != nil {
			return lost, err
		}
	}
	if err := os.Remove(d.record); err != nil && !os.IsNotExist(err) {
		return lost, err
	}
	if record != nil {
		err = os.WriteFile(d.record, record, 0o600)
	}
	d.cache, d.saved, d.isOff, d.left = nil, record, false, -1
	return lost, err
}
