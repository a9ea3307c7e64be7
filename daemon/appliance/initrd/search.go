package initrd

import (
	"io"
	"os"
	"time"

	"firstlight.dev/firstlight/assets/stick"
)

// search waits for the boot disk, however long that takes.
type search struct {
	params  params
	drivers *loader
	events  <-chan uevent
	screen  io.Writer
	tables  *tables
	changed chan struct{}
	started time.Time
	shown   time.Time // when the screen was last written
}

// Intervals. The rescan is the safety net under the events; patience is how long an
// ordinary boot may take before people are told anything; the screen is then repeated.
const (
	rescan      = time.Second
	noticeDelay = 8 * time.Second
	repeat      = 5 * time.Second
)

func newSearch(p params, drivers *loader, events <-chan uevent, screen io.Writer) *search {
	s := &search{
		params:  p,
		drivers: drivers,
		events:  events,
		screen:  screen,
		changed: make(chan struct{}, 1),
		started: time.Now(),
	}
	s.shown = s.started.Add(noticeDelay - repeat)
	s.tables = &tables{open: openDisk, changed: s.changed, retry: rescan, seen: map[string]tableRead{}}
	return s
}

func openDisk(name string) (io.ReaderAt, io.Closer, error) {
	f, err := os.Open("/dev/" + name)
	return f, f, err
}

// find returns the boot disk. The error says that sysfs itself cannot be read.
func (s *search) find() (stick.BootInfo, error) {
	tick := time.NewTicker(rescan)
	defer tick.Stop()
	for {
		disks, err := listDisks(os.DirFS("/sys"))
		if err != nil {
			return stick.BootInfo{}, err
		}

		s.tables.fill(disks)
		boot, why := chooseDisk(disks, s.params)
		if why == nil {
			return boot, nil
		}

		if time.Since(s.shown) >= repeat {
			io.WriteString(s.screen, searchScreen(why, s.params, disks, time.Since(s.started)))
			s.shown = time.Now()
			// Events may be lost when many come at once: look for devices again, too.
			if err := s.drivers.coldplug(); err != nil {
				return stick.BootInfo{}, err
			}
		}

		select {
		case e := <-s.events:
			s.handleEvent(e)
		case <-s.changed:
		case <-tick.C:
		}
	}
}

// handleEvent loads drivers for a device that has appeared.
func (s *search) handleEvent(e uevent) {
	if m := e["MODALIAS"]; m != "" && e["ACTION"] == "add" {
		s.drivers.loadDevice(m)
	}
}

// drainEvents goes on taking events for a while, and forgets the tables: the stick may be
// another one afterwards.
func (s *search) drainEvents(d time.Duration) {
	end := time.After(d)
	for {
		select {
		case e := <-s.events:
			s.handleEvent(e)
		case <-end:
			s.tables.reset()
			return
		}
	}
}
