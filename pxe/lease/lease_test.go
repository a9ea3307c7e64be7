package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
)

// fakeClock is a machine's clock: boot, uptime, and a wall clock that may lie.
type fakeClock struct {
	boot string
	up   time.Duration
	wall time.Time
}

func newClock() *fakeClock {
	return &fakeClock{boot: "first", up: time.Minute, wall: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
}

func (c *fakeClock) clock() Clock {
	return Clock{Uptime: func() time.Duration { return c.up }, BootID: func() string { return c.boot }, Wall: func() time.Time { return c.wall }}
}

func (c *fakeClock) pass(d time.Duration) { c.up, c.wall = c.up+d, c.wall.Add(d) }

// opened is a journal whose writer runs.
type opened struct {
	*Journal
	t    *testing.T
	stop context.CancelFunc
	done chan error
}

func open(t *testing.T, dir string, c *fakeClock) *opened {
	t.Helper()
	j, err := OpenJournal(dir, c.clock())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	o := &opened{Journal: j, t: t, stop: stop, done: make(chan error, 1)}
	go func() { o.done <- j.Run(ctx) }()
	return o
}

func (o *opened) close() {
	o.t.Helper()
	o.stop()
	require.NoError(o.t, <-o.done)
}

// put commits and waits until it is on disk.
func (o *opened) put(changes ...Lease) {
	o.t.Helper()
	done := make(chan error, 1)
	o.Commit(changes, func(err error) { done <- err })
	require.NoError(o.t, <-done)
}

var subnet = netip.MustParsePrefix("172.22.0.0/24")

func some(n int, start Tick) Lease {
	return Lease{Addr: netip.AddrFrom4([4]byte{172, 22, 0, byte(n)}), MAC: MAC{2, 0, 0, 0, 0, byte(n)}, Subnet: subnet, State: Active,
		Start: start, Duration: time.Hour, Hostname: fmt.Sprintf("n\"%d\n", n), UUID: "u u", Arch: 7}
}

func TestJournalKeepsLeasesOverRestart(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	j := open(t, dir, c)
	want := some(1, j.Now())
	j.put(want, some(2, j.Now()))
	released := some(2, j.Now())
	released.State = Free
	j.put(released)
	j.close()
	j = open(t, dir, c)
	defer j.close()
	assert.ElementsMatch(t, []Lease{want, released}, j.Leases())
	assert.Zero(t, j.SkippedLines())
}

func TestJournalIsNotShared(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, newClock())
	defer j.close()
	_, err := OpenJournal(dir, newClock().clock())
	require.ErrorContains(t, err, "another server uses it")
}

// TestTornTail cuts the journal at every byte: what was on disk before the cut is kept.
func TestTornTail(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	j := open(t, dir, c)
	path := filepath.Join(dir, journalName)
	size := func() int64 {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Size()
	}
	var ends []int64
	for i := range 5 {
		j.put(some(i+1, j.Now()))
		ends = append(ends, size())
	}
	j.close()
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for n := ends[0]; n <= int64(len(whole)); n++ {
		kept, _, skipped, err := replay(strings.NewReader(string(whole[:n])))
		require.NoError(t, err)
		acknowledged := 0
		for i, end := range ends {
			if end <= n {
				acknowledged++
				assert.Contains(t, kept, some(i+1, 0).Addr)
			}
		}
		assert.GreaterOrEqual(t, len(kept), acknowledged)
		assert.LessOrEqual(t, skipped, 1)
	}
}

// TestDamage flips bytes: a damaged line is skipped, the others are kept, nothing is invented.
func TestDamage(t *testing.T) {
	var text []byte
	for i := range 20 {
		text = appendLease(text, some(i+1, Tick(time.Hour)))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		bad := []byte(string(text))
		at := rng.IntN(len(bad))
		bad[at] ^= byte(1 + rng.IntN(255))
		kept, _, skipped, err := replay(strings.NewReader(string(bad)))
		require.NoError(t, err)
		assert.GreaterOrEqual(t, len(kept), 18) // a lost line end costs two
		assert.LessOrEqual(t, skipped, 2)
		for addr, l := range kept {
			assert.Equal(t, some(int(addr.As4()[3]), Tick(time.Hour)), l)
		}
	}
}

func TestCompactionKeepsAll(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	j := open(t, dir, c)
	for round := range minCompact/200 + 3 {
		var batch []Lease
		for i := range 200 {
			batch = append(batch, some(i+1, j.Now()))
			batch[i].Hostname = fmt.Sprint(round)
		}
		j.put(batch...)
	}
	j.close()
	info, err := os.Stat(filepath.Join(dir, journalName))
	require.NoError(t, err)
	assert.Less(t, info.Size(), int64(minCompact*100), "never compacted")
	j = open(t, dir, c)
	defer j.close()
	kept := j.Leases()
	require.Len(t, kept, 200)
	for _, l := range kept {
		assert.Equal(t, fmt.Sprint(minCompact/200+2), l.Hostname)
	}
}

// TestBrokenDisk: no commit succeeds while the journal cannot be written, and it mends itself.
func TestBrokenDisk(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	j := open(t, dir, c)
	j.put(some(1, j.Now()))
	require.NoError(t, j.file.Close()) // the writer is idle: as good as a failing disk
	aside := dir + "-aside"
	require.NoError(t, os.Rename(dir, aside))
	result := make(chan error, 1)
	for range 3 {
		j.Commit([]Lease{some(2, j.Now())}, func(err error) { result <- err })
		require.ErrorIs(t, <-result, ErrBroken)
	}
	assert.Len(t, j.Leases(), 1, "what is not on disk is not listed")
	require.NoError(t, os.Rename(aside, dir))
	j.put(some(3, j.Now()))
	j.close()
	j = open(t, dir, c)
	defer j.close()
	assert.Len(t, j.Leases(), 2)
}

// TestFault09ClockJumps: leases live by time served, whatever the wall clock says.
func TestFault09ClockJumps(t *testing.T) {
	years := 10 * 365 * 24 * time.Hour
	cases := []struct {
		name   string
		change func(*fakeClock)
		left   time.Duration // of a lease of one hour, half used
	}{
		{"nothing", func(*fakeClock) {}, 30 * time.Minute},
		{"ten years forward while serving", func(c *fakeClock) { c.wall = c.wall.Add(years) }, 30 * time.Minute},
		{"ten years back while serving", func(c *fakeClock) { c.wall = c.wall.Add(-years) }, 30 * time.Minute},
		{"reboot after ten years", func(c *fakeClock) { c.boot, c.up, c.wall = "second", time.Second, c.wall.Add(years) }, 30 * time.Minute},
		{"reboot with a dead RTC", func(c *fakeClock) { c.boot, c.up, c.wall = "second", time.Second, time.Unix(0, 0) }, 30 * time.Minute},
		{"restart within one boot", func(c *fakeClock) { c.pass(10 * time.Minute) }, 20 * time.Minute},
	}
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			dir, c := t.TempDir(), newClock()
			j := open(t, dir, c)
			j.put(some(1, j.Now()))
			c.pass(30 * time.Minute)
			j.put(some(2, j.Now())) // time that a record has seen survives a reboot
			if !strings.Contains(x.name, "while serving") {
				j.close()
				x.change(c)
				j = open(t, dir, c)
			} else {
				x.change(c)
			}
			defer j.close()
			for _, l := range j.Leases() {
				if l.Addr == some(1, 0).Addr {
					assert.Equal(t, x.left, time.Duration(l.End()-j.Now()))
				}
			}
			c.pass(2 * time.Hour)
			for _, l := range j.Leases() {
				assert.False(t, l.IsActive(j.Now()), "frozen: %v", l)
			}
		})
	}
}

func TestISCGolden(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	j := open(t, dir, c)
	defer j.close()
	active, moved, declined := some(1, j.Now()), some(2, j.Now()), some(3, j.Now())
	moved.MAC, moved.State, moved.Hostname = active.MAC, Free, ""
	declined.State = Declined
	expired := some(4, j.Now())
	expired.Duration = time.Minute
	j.put(active, moved, declined, expired)
	c.pass(10 * time.Minute)
	path := filepath.Join(dir, "dhcpd.leases")
	require.NoError(t, WriteISC(path, j.List()))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	goldentest.Check(t, "testdata/dhcpd.leases", got)
}

// TestReaderNeverSeesHalfAFile reads while leases change.
func TestReaderNeverSeesHalfAFile(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	path := filepath.Join(dir, "dhcpd.leases")
	j := open(t, dir, c)
	ctx, stop := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	go func() { kept <- j.MaintainISC(ctx, path, func(err error) { t.Error(err) }) }()
	reads := 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		j.put(some(1+reads%200, j.Now()))
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(string(text), "}\n") || strings.HasSuffix(string(text), "endian;\n"), "half a file: %q", text)
		require.Equal(t, strings.Count(string(text), "\nlease "), strings.Count(string(text), "\n}\n"))
		reads++
	}
	stop()
	require.NoError(t, <-kept)
	j.close()
	assert.NotZero(t, reads)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, min(reads, 200), strings.Count(string(text), "binding state active"))
}

// FuzzReplay: no journal panics, and what is read is written the same again.
func FuzzReplay(f *testing.F) {
	f.Add(appendLease(nil, some(1, Tick(time.Hour))))
	f.Add(appendClock(appendLease(nil, some(2, 0)), anchor{tick: 5e9, boot: "b o\"ot", uptime: 7e9}))
	f.Add([]byte("00000000 A\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		kept, _, _, err := replay(strings.NewReader(string(data)))
		require.NoError(t, err)
		for _, l := range kept {
			again, ok := parseRecord(appendLease(nil, l)[:len(appendLease(nil, l))-1])
			require.True(t, ok)
			require.Equal(t, l, again.lease)
		}
	})
}
