package lease

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	journalName = "leases.journal"
	queueLen    = 1024                // commits that may wait for the disk; more block the caller
	minCompact  = 16384               // records before a journal is worth rewriting
	tickEvery   = time.Minute         // how much lease time a reboot may lose
	forgetAfter = 30 * 24 * time.Hour // a machine not seen for so long is not remembered
)

// ErrBroken is reported for every commit while the journal cannot be written.
var ErrBroken = errors.New("lease journal cannot be written")

// Journal is the file of all changes, newest last. Its writer commits whatever waits with
// one fsync. A line is a checksum and a record; a line that a crash tore is skipped, which
// is safe because nobody was told of it. The file is rewritten, never edited.
type Journal struct {
	dir   string
	clock Clock
	disk  disk
	lock  *os.File
	queue chan commit

	anchor anchor // set once by OpenJournal

	mu      sync.Mutex // guards all below
	leases  map[netip.Addr]Lease
	version uint64
	changed chan struct{} // closed and replaced at every version

	file    file // below: only the writer
	records int
	buf     []byte
	broken  error
	skipped int
}

type commit struct {
	changes []Lease
	done    func(error)
}

// OpenJournal reads what is kept in dir, which it makes if need be, and rewrites the
// journal. Only one process may have it open. Torn and damaged lines are skipped; Skipped
// counts them.
func OpenJournal(dir string, clock Clock) (*Journal, error) {
	return openJournal(dir, clock, systemDisk{})
}

func openJournal(dir string, clock Clock, disk disk) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make lease directory %s: %w", dir, err)
	}

	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lease lock: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("lock lease directory %s: another server uses it: %w", dir, err)
	}

	j := &Journal{
		dir:     dir,
		clock:   clock.orSystem(),
		disk:    disk,
		lock:    lock,
		queue:   make(chan commit, queueLen),
		changed: make(chan struct{}),
	}
	if err := j.load(); err != nil {
		lock.Close()
		return nil, err
	}
	if err := j.compact(); err != nil {
		lock.Close()
		return nil, err
	}

	return j, nil
}

func (j *Journal) path() string { return filepath.Join(j.dir, journalName) }

func (j *Journal) load() error {
	j.leases = map[netip.Addr]Lease{}
	f, err := os.Open(j.path())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read lease journal %s: %w", j.path(), err)
	}

	var last anchor
	if f != nil {
		defer f.Close()
		if j.leases, last, j.skipped, err = replay(f); err != nil {
			return fmt.Errorf("read lease journal %s: %w", j.path(), err)
		}
	}

	var newest Tick
	for _, l := range j.leases {
		newest = max(newest, l.Start)
	}

	j.anchor = resumeAnchor(last, newest, j.clock.BootID(), j.clock.Uptime())
	return nil
}

// replay returns the last state of every address, the last anchor, and how many lines
// were unreadable.
func replay(r io.Reader) (map[netip.Addr]Lease, anchor, int, error) {
	kept, last, skipped := map[netip.Addr]Lease{}, anchor{}, 0
	in := bufio.NewReaderSize(r, 1<<16)
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) { // no record is so long: damage
			skipped++
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = in.ReadSlice('\n')
			}
			line = nil
		}

		if err != nil && !errors.Is(err, io.EOF) {
			return nil, anchor{}, 0, err
		}

		if len(line) > 0 {
			rec, ok := parseRecord(bytes.TrimSuffix(line, []byte("\n")))
			switch {
			case !ok || line[len(line)-1] != '\n':
				skipped++
			case rec.clock != nil:
				last = *rec.clock
			default:
				kept[rec.lease.Addr] = rec.lease
			}
		}

		if err != nil {
			return kept, last, skipped, nil
		}
	}
}

// Now is the lease clock.
func (j *Journal) Now() Tick { return j.anchor.now(j.clock.Uptime()) }

// SkippedLines is the number of unreadable lines found when the journal was opened: the torn
// end after a power cut, or damage.
func (j *Journal) SkippedLines() int { return j.skipped }

// Leases returns the durable state of every address.
func (j *Journal) Leases() []Lease {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := make([]Lease, 0, len(j.leases))
	for _, l := range j.leases {
		all = append(all, l)
	}

	return all
}

// Commit hands over changes that belong together; done is called once, from the writer,
// when they are on disk or cannot be. It blocks while queueLen commits wait.
func (j *Journal) Commit(changes []Lease, done func(error)) {
	j.queue <- commit{changes, done}
}

// Run writes until ctx ends, then writes what still waits and closes the file. Callers
// stop committing first.
func (j *Journal) Run(ctx context.Context) error {
	defer j.lock.Close()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case c := <-j.queue:
			j.commit(j.drainQueue(c))
		case <-tick.C:
			j.commit(j.drainQueue())
		case <-ctx.Done():
			j.commit(j.drainQueue())
			return j.file.Close()
		}
	}
}

// drainQueue takes all that waits, without waiting for more.
func (j *Journal) drainQueue(batch ...commit) []commit {
	for len(batch) < queueLen {
		select {
		case c := <-j.queue:
			batch = append(batch, c)
		default:
			return batch
		}
	}
	return batch
}

// commit makes one batch durable and tells its callers.
func (j *Journal) commit(batch []commit) {
	err := j.write(batch)
	if err == nil {
		j.applyBatch(batch)
		if limit := max(minCompact, 4*len(j.leases)); j.records > limit {
			// The batch is on disk either way; the next write finds out if this went wrong.
			j.broken = j.compact()
		}
	}
	for _, c := range batch {
		if c.done != nil {
			c.done(err)
		}
	}
}

func (j *Journal) write(batch []commit) error {
	if j.broken != nil {
		// After a failed fsync nobody knows what the file holds: begin a new one.
		if err := j.compact(); err != nil {
			return fmt.Errorf("%w: %w", ErrBroken, err)
		}
		j.broken = nil
	}

	j.buf = j.buf[:0]
	n := 0
	for _, c := range batch {
		for _, l := range c.changes {
			j.buf = appendLease(j.buf, l)
			n++
		}
	}

	if n == 0 {
		j.buf = appendClock(j.buf, j.currentAnchor())
		n = 1
	}

	_, err := j.file.Write(j.buf)
	if err == nil {
		err = j.file.syncData()
	}

	if err != nil {
		j.broken = err
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}

	j.records += n
	return nil
}

func (j *Journal) currentAnchor() anchor {
	up := j.clock.Uptime()
	return anchor{tick: j.anchor.now(up), boot: j.anchor.boot, uptime: up}
}

func (j *Journal) applyBatch(batch []commit) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range batch {
		for _, l := range c.changes {
			j.leases[l.Addr] = l
		}
	}

	j.version++
	close(j.changed)
	j.changed = make(chan struct{})
}

// Changes returns a number that grows with every durable change, and a channel that is
// closed at the next one.
func (j *Journal) Changes() (uint64, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.version, j.changed
}

// compact writes the last state of every address to a new file and renames it over the
// journal: a crash leaves the old one or the new one.
func (j *Journal) compact() error {
	now := j.Now()
	j.mu.Lock()
	maps.DeleteFunc(j.leases, func(_ netip.Addr, l Lease) bool { return now-l.End() > Tick(forgetAfter) })
	buf := appendClock(nil, j.currentAnchor())
	for _, l := range j.leases {
		buf = appendLease(buf, l)
	}

	records := len(j.leases)
	j.mu.Unlock()

	f, err := replaceFile(j.disk, j.path(), buf)
	if err != nil {
		return err
	}

	if j.file != nil {
		j.file.Close()
	}

	j.file, j.records = f, records
	return nil
}
