// Package unknown keeps what machines say of themselves that neither the site nor a host names: a ramdisk inspects
// them, and its inventory would be lost. Nothing of it is trusted or decides anything; it is shown, with what is to be
// written to have such a machine installed.
package unknown

import (
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/status"
)

// What is kept: so many machines, and each for so long. Of more than that the oldest goes.
const (
	maxMachines = 128
	maxAge      = 72 * time.Hour
)

// Machines are the unknown machines that were inspected lately. Its methods may be called at the same time.
type Machines struct {
	Path    string                // in memory: what strangers send is not written to the stick
	IsKnown func(mac string) bool // a node of the site or a host has it by now
	Log     *slog.Logger
	Changed func() // must not block; nil: no one asks

	mu   sync.Mutex
	read bool
	all  map[string]status.UnknownMachine // by MAC
}

// Add keeps the inventory of a machine that booted from a MAC (lower case), in place of an earlier one.
func (m *Machines) Add(mac string, said map[string]any, now time.Time) {
	m.mu.Lock()
	m.load()
	_, had := m.all[mac]
	m.all[mac] = parse(mac, said, now)
	for len(m.all) > maxMachines {
		delete(m.all, m.oldest())
	}
	m.save()
	m.mu.Unlock()
	if !had {
		m.Log.Info("unknown machine inspected", "mac", mac)
	}
	if m.Changed != nil {
		m.Changed()
	}
}

// List returns the machines that are still unknown, by MAC.
func (m *Machines) List(now time.Time) []status.UnknownMachine {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.load()
	var all []status.UnknownMachine
	for mac, u := range m.all {
		if now.Sub(u.Time) < maxAge && !m.IsKnown(mac) {
			all = append(all, u)
		}
	}

	slices.SortFunc(all, func(a, b status.UnknownMachine) int { return strings.Compare(a.MAC, b.MAC) })
	return all
}

func (m *Machines) oldest() (mac string) {
	for candidate, u := range m.all {
		if mac == "" || u.Time.Before(m.all[mac].Time) {
			mac = candidate
		}
	}
	return mac
}

// load takes up what an earlier life of the daemon kept; what cannot be read is not missed.
func (m *Machines) load() {
	if m.read {
		return
	}

	m.read, m.all = true, map[string]status.UnknownMachine{}
	text, err := os.ReadFile(m.Path)
	if err != nil {
		return
	}
	if err := json.Unmarshal(text, &m.all); err != nil || m.all == nil {
		m.all = map[string]status.UnknownMachine{}
	}
}

func (m *Machines) save() {
	text, err := json.Marshal(m.all)
	if err == nil {
		err = atomicfile.Write(m.Path, text, 0o600)
	}
	if err != nil {
		m.Log.Warn("unknown machines not kept", "error", err)
	}
}
