// Package vswitch is the lab's Ethernet: a switch whose ports are unix sockets that machines
// plug into, or functions of this process. What passes a port can be lost, delayed and cut,
// and everything can be captured; none of it needs the kernel or root.
package vswitch

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Fault is what is wrong with a port, in both directions. The zero value is a good cable.
type Fault struct {
	Loss  float64       `json:"loss,omitempty"`  // share of frames that are lost, 0 to 1
	Delay time.Duration `json:"delay,omitempty"` // of every frame
	Cut   bool          `json:"cut,omitempty"`   // nothing passes
	Out   bool          `json:"out,omitempty"`   // unplugged: nothing passes, and what was plugged in is to see that
	Side  int           `json:"side,omitempty"`  // only ports of the same side hear each other
}

// String says what a cable does, as in "is cut and is on side 1"; of a good one "is good".
func (f Fault) String() string {
	var all []string
	if f.Out {
		all = append(all, "is unplugged")
	}
	if f.Cut {
		all = append(all, "is cut")
	}
	if f.Loss > 0 {
		all = append(all, fmt.Sprintf("loses %.3g %% of the frames", 100*f.Loss))
	}
	if f.Delay > 0 {
		all = append(all, fmt.Sprintf("delays frames by %s", f.Delay))
	}
	if f.Side != 0 {
		all = append(all, fmt.Sprintf("is on side %d", f.Side))
	}
	if len(all) == 0 {
		return "is good"
	}
	return strings.Join(all, " and ")
}

// Switch connects ports. Its zero value is not usable; see New.
type Switch struct {
	Name string

	mu      sync.Mutex
	ports   map[*Port]bool
	table   table
	rack    []netip.Prefix
	outside map[netip.Addr]int
	capture *Capture
	line    delayLine
	closed  bool
}

// New makes a switch. The prefixes are the addresses that belong to the rack: frames to
// others are counted, see Outside.
func New(name string, rack ...netip.Prefix) *Switch {
	s := &Switch{
		Name:    name,
		ports:   map[*Port]bool{},
		table:   table{},
		rack:    rack,
		outside: map[netip.Addr]int{},
	}
	s.line.init()
	return s
}

// Port is one place to plug in.
type Port struct {
	Name string
	sw   *Switch
	out  chan []byte // to what is plugged in
	done chan struct{}
	once sync.Once
	stop func() error // ends what feeds the port

	vlan  uint16 // of an access port; 0: it is a trunk; guarded by sw.mu, like what follows
	fault Fault
	stats Stats
}

// Stats counts what has passed a port, as the machine on it sees it.
type Stats struct {
	Sent     int64 `json:"sent"`     // frames from the machine
	Received int64 `json:"received"` // frames to the machine
	Bytes    int64 `json:"bytes"`    // of both
	Lost     int64 `json:"lost"`     // by a fault, for a tag that the port does not take, or because the machine did not take them in time
}

// queue is how many frames wait for a machine before further ones are lost.
const queue = 4096

// Attach makes a port of this process. receive gets every frame for it, one at a time, and
// must not keep it.
func (s *Switch) Attach(name string, receive func(frame []byte)) (*Port, error) {
	p, err := s.add(name)
	if err != nil {
		return nil, err
	}

	go func() {
		for {
			select {
			case <-p.done:
				return
			case frame := <-p.out:
				receive(frame)
			}
		}
	}()

	return p, nil
}

func (s *Switch) add(name string) (*Port, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("plug %s into switch %s: it is closed", name, s.Name)
	}

	p := &Port{Name: name, sw: s, out: make(chan []byte, queue), done: make(chan struct{})}
	s.ports[p] = true
	return p, nil
}

// Send takes a frame from what is plugged in. The frame belongs to the switch from then on.
func (p *Port) Send(frame []byte) {
	s := p.sw
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ports[p] || len(frame) < headerBytes {
		return
	}

	p.stats.Sent++
	p.stats.Bytes += int64(len(frame))
	if p.fault.drops() {
		p.stats.Lost++
		return
	}

	frame, ok := p.enter(frame)
	if !ok {
		p.stats.Lost++
		return
	}

	s.observe(frame)
	to := s.table.forward(p, frame, time.Now())
	for other := range s.ports {
		if other == p || to != nil && other != to || other.fault.Side != p.fault.Side {
			continue
		}
		out, ok := other.leave(frame)
		if !ok {
			continue
		}
		if other.fault.drops() {
			other.stats.Lost++
			continue
		}
		if delay := p.fault.Delay + other.fault.Delay; delay > 0 {
			s.line.add(time.Now().Add(delay), func() { s.deliver(other, out) })
			continue
		}

		other.put(out)
	}
}

// deliver is put for a frame that comes late.
func (s *Switch) deliver(p *Port, frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports[p] && !p.fault.Cut && !p.fault.Out {
		p.put(frame)
	}
}

// put never waits: a machine that does not read must not stop the others.
func (p *Port) put(frame []byte) {
	select {
	case p.out <- frame:
		p.stats.Received++
		p.stats.Bytes += int64(len(frame))
	default:
		p.stats.Lost++
	}
}

func (f Fault) drops() bool { return f.Cut || f.Out || f.Loss > 0 && rand.Float64() < f.Loss }

// observe captures a frame and remembers where to it was addressed, if that is outside.
func (s *Switch) observe(frame []byte) {
	if s.capture != nil {
		s.capture.writeFrame(time.Now(), frame)
	}

	to := destination(frame)
	if !to.IsValid() || isInternal(to, s.rack) {
		return
	}

	const most = 1000 // different ones
	if _, known := s.outside[to]; known || len(s.outside) < most {
		s.outside[to]++
	}
}

// SetFault changes what is wrong with the port.
func (p *Port) SetFault(f Fault) {
	p.sw.mu.Lock()
	defer p.sw.mu.Unlock()
	p.fault = f
}

// Fault is what is wrong with the port.
func (p *Port) Fault() Fault {
	p.sw.mu.Lock()
	defer p.sw.mu.Unlock()
	return p.fault
}

// Stats counts what has passed.
func (p *Port) Stats() Stats {
	p.sw.mu.Lock()
	defer p.sw.mu.Unlock()
	return p.stats
}

// Outside is every address outside the rack that a frame was addressed to, with how many.
func (s *Switch) Outside() map[netip.Addr]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[netip.Addr]int{}
	for a, n := range s.outside {
		all[a] = n
	}

	return all
}

// Capture sends a copy of every frame to c from now on; nil ends it.
func (s *Switch) Capture(c *Capture) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.capture = c
}

// Close unplugs the port.
func (p *Port) Close() error {
	p.sw.mu.Lock()
	delete(p.sw.ports, p)
	p.sw.table.forgetPort(p)
	p.sw.mu.Unlock()
	var err error
	p.once.Do(func() {
		close(p.done)
		if p.stop != nil {
			err = p.stop()
		}
	})
	return err
}

// Close unplugs everything.
func (s *Switch) Close() error {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Keys(s.ports))
	s.mu.Unlock()
	var errs []error
	for _, p := range all {
		errs = append(errs, p.Close())
	}

	s.line.close()
	return errors.Join(errs...)
}
