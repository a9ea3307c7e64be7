// Package boottrace remembers, per machine, where it last was on its way from firmware to
// kernel: the first answer to "why is this node stuck". It lives in memory only: the
// machines themselves repeat the way. One thing decides by it, whether a server of which
// nothing is known may be reset, so what others say in a machine's name is marked as that.
package boottrace

import (
	"cmp"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Step is a place on the way, in the order of the way.
type Step string

// The steps. A machine that stops at one of them stopped after it.
const (
	StepDiscover Step = "discover" // it asked by DHCP
	StepOffer    Step = "offer"    // it was offered an address
	StepLease    Step = "lease"    // its address was acknowledged
	StepTFTP     Step = "tftp"     // it loads a boot program by TFTP
	StepBootFile Step = "bootfile" // it loads a boot program by HTTP
	StepScript   Step = "script"   // it was given an iPXE script
	StepKernel   Step = "kernel"   // it loads a kernel
	StepRamdisk  Step = "ramdisk"  // it loads a ramdisk
	StepImage    Step = "image"    // it loads any other file: an OS image
	StepDisc     Step = "disc"     // its BMC reads the disc that it boots from, in place of all before
)

// Event is one thing a machine did. Bytes of Total were sent when it was noted; Total
// is 0 when unknown. Refused, if set, is the sentence the machine was refused with;
// Error what cut the step short.
type Event struct {
	MAC     net.HardwareAddr
	Addr    netip.Addr // may be invalid
	Step    Step
	Detail  string // file name, script kind, offered address
	Bytes   int64
	Total   int64
	Refused string
	Error   string

	// ByAnother means that a machine with another MAC asked, or one whose MAC is unknown: it says nothing of what this
	// one does.
	ByAnother bool
}

// Trace is the state of one machine. Times are of the server's clock.
type Trace struct {
	MAC     string     `json:"mac"`
	Addr    netip.Addr `json:"addr,omitzero"`
	First   time.Time  `json:"first"` // first event ever noted
	Since   time.Time  `json:"since"` // begin of this boot: the last DISCOVER, or the disc
	Last    Mark       `json:"last"`
	Marks   []Mark     `json:"marks"` // one per step of this boot, in order of time
	Boots   int        `json:"boots"` // DISCOVERs and discs after a quiet minute or more
	Refused string     `json:"refused,omitempty"`
}

// Mark is what is kept of an event.
type Mark struct {
	Step    Step      `json:"step"`
	Time    time.Time `json:"time"`
	Count   int       `json:"count"` // how often in this boot
	Detail  string    `json:"detail,omitempty"`
	Bytes   int64     `json:"bytes,omitempty"`
	Total   int64     `json:"total,omitempty"`
	Refused string    `json:"refused,omitempty"`
	Error   string    `json:"error,omitempty"`

	ByAnother bool `json:"byAnother,omitempty"` // as in Event
}

// Recorder holds the records. The zero value is ready to use and keeps DefaultLimit machines.
// All methods may be called from many goroutines; a nil *Book takes notes and forgets them.
type Recorder struct {
	Limit int              // most machines kept; the longest silent one goes first
	Now   func() time.Time // nil: time.Now

	mu       sync.Mutex
	machines map[string]*Trace
}

// DefaultLimit is how many machines a Book keeps: some racks, not a flood of made-up addresses.
const DefaultLimit = 2048

// quiet is how long a machine is silent before a new DISCOVER counts as a new boot:
// firmware, iPXE and the ramdisk each send their own within one boot.
const quiet = time.Minute

// Add adds an event. Events without a MAC are dropped.
func (b *Recorder) Add(e Event) {
	if b == nil || len(e.MAC) == 0 {
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.Now != nil {
		now = b.Now()
	}

	r := b.traceOf(e.MAC.String(), now)
	if e.ByAnother && slices.ContainsFunc(r.Marks, func(m Mark) bool { return m.Step == e.Step && !m.ByAnother }) {
		return // the machine itself is the better witness
	}
	if e.Addr.IsValid() && !e.ByAnother {
		r.Addr = e.Addr
	}

	if (e.Step == StepDiscover || e.Step == StepDisc) && now.Sub(r.Last.Time) >= quiet {
		r.Boots, r.Since, r.Marks, r.Refused = r.Boots+1, now, nil, ""
	}

	m := Mark{
		Step:    e.Step,
		Time:    now,
		Count:   1,
		Detail:  e.Detail,
		Bytes:   e.Bytes,
		Total:   e.Total,
		Refused: e.Refused,
		Error:   e.Error,

		ByAnother: e.ByAnother,
	}
	i := slices.IndexFunc(r.Marks, func(old Mark) bool { return old.Step == e.Step })
	if i >= 0 {
		m.Count += r.Marks[i].Count
	}

	r.Last, r.Refused = m, e.Refused
	switch {
	case i < 0:
		r.Marks = append(r.Marks, m)
	case m.IsRefused() && !r.Marks[i].IsRefused(): // it has its boot program, whatever else it asks for
		r.Marks[i].Count = m.Count
	default:
		r.Marks = append(slices.Delete(r.Marks, i, i+1), m)
	}
}

// IsRefused tells of a boot program that was asked for and refused: no step on the way.
func (m Mark) IsRefused() bool {
	return m.Refused != "" && (m.Step == StepTFTP || m.Step == StepBootFile)
}

// Progress says how far a step that was noted has come: Bytes, and that it moved just now.
// It counts as no event, and is forgotten if the step was not noted.
func (b *Recorder) Progress(e Event) {
	if b == nil {
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.machines[e.MAC.String()]
	if !ok {
		return
	}

	now := time.Now()
	if b.Now != nil {
		now = b.Now()
	}

	for i := range r.Marks {
		if m := &r.Marks[i]; m.Step == e.Step && m.Detail == e.Detail {
			m.Bytes, m.Time = e.Bytes, now
			if r.Last.Step == m.Step && r.Last.Detail == m.Detail {
				r.Last = *m
			}
		}
	}
}

func (b *Recorder) traceOf(mac string, now time.Time) *Trace {
	if r, ok := b.machines[mac]; ok {
		return r
	}

	limit := b.Limit
	if limit <= 0 {
		limit = DefaultLimit
	}

	if len(b.machines) >= limit {
		b.evict()
	}

	if b.machines == nil {
		b.machines = map[string]*Trace{}
	}

	r := &Trace{MAC: mac, First: now, Since: now}
	b.machines[mac] = r
	return r
}

// evict forgets the machine that got least far, and among those the longest silent:
// a flood of made-up addresses never gets past DISCOVER.
func (b *Recorder) evict() {
	var victim *Trace
	far := func(r *Trace) int { return min(len(r.Marks), 3) }
	for _, r := range b.machines {
		if victim == nil || far(r) < far(victim) || far(r) == far(victim) && r.Last.Time.Before(victim.Last.Time) {
			victim = r
		}
	}

	delete(b.machines, victim.MAC)
}

// Get returns the record of one machine.
func (b *Recorder) Get(mac net.HardwareAddr) (Trace, bool) {
	if b == nil {
		return Trace{}, false
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.machines[mac.String()]
	if !ok {
		return Trace{}, false
	}

	return r.clone(), true
}

// List returns all records, sorted by MAC.
func (b *Recorder) List() []Trace {
	if b == nil {
		return nil
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]Trace, 0, len(b.machines))
	for _, r := range b.machines {
		all = append(all, r.clone())
	}

	slices.SortFunc(all, func(x, y Trace) int { return cmp.Compare(x.MAC, y.MAC) })
	return all
}

func (r *Trace) clone() Trace {
	c := *r
	c.Marks = slices.Clone(r.Marks)
	return c
}

// ServeHTTP answers GET with all records as a JSON array, or with one when the path ends
// in a MAC address. Whoever mounts it decides who may read it.
func (b *Recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "records are read only", http.StatusMethodNotAllowed)
		return
	}

	var answer any = b.List()
	if mac, err := net.ParseMAC(r.URL.Path[lastSlash(r.URL.Path):]); err == nil {
		one, ok := b.Get(mac)
		if !ok {
			http.Error(w, "no record of "+mac.String()+": it was never heard of on this network", http.StatusNotFound)
			return
		}
		answer = one
	}

	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(answer) // a client that went away is its own business
}

func lastSlash(path string) int {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return i + 1
		}
	}
	return 0
}
