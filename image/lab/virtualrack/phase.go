package virtualrack

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/status"
)

// Phases that are not the appliance's own words for its stages and hosts.
const (
	PhaseOff       = "off"
	PhaseFirmware  = "firmware"  // power is on, nothing of ours has spoken
	PhaseInitramfs = "initramfs" // firstlight-init looks for the stick
	PhaseSystemd   = "systemd"

	// Of an appliance that is installed on a system.
	PhaseSystem       = "system"        // that starts
	PhaseInstalling   = "installing"    // firstlight install
	PhaseStarting     = "starting"      // it is installed and has not been heard of
	PhaseNotInstalled = "not-installed" // refused, or failed

	PhaseReady     = "ready"   // the appliance: every stage holds
	PhaseWaiting   = "waiting" // a node that the appliance has not spoken of
	PhaseInstalled = "provisioned"
	PhaseVerified  = "proven"
)

// Phases of clusters, in the appliance's words.
const (
	clusterReady   = "ready"
	clusterRefused = "refused"
	clusterFailed  = "failed"
)

// Phases of a cluster's nodes, in the appliance's words.
const (
	memberInstalled  = "installed"
	memberInstalling = "installing"
)

// ofCluster is a cluster's name among machines.
func ofCluster(name string) string { return "cluster " + name }

// Lines of the serial console that begin a phase; the programs that print them have tests.
const (
	lineInit    = ": looking for the stick"
	lineSystemd = "Welcome to "
	lineDaemon  = "firstlight: "
	lineReady   = "firstlight: Ready."
	lineNeeds   = "firstlight: Needs you: " // every stage holds, and a node or a cluster waits for a person
)

// stageForm is a stage's name as it stands before its news.
var stageForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)

// phaseTracker follows the appliance by what it prints, until it can be asked.
type phaseTracker struct {
	onSystem bool // the appliance is installed on one, whose console this is
	phase    string
	done     map[string]bool // stages
}

func (c *phaseTracker) powerOn() { c.phase, c.done = PhaseFirmware, map[string]bool{} }

// handleLine takes one line.
func (c *phaseTracker) handleLine(line string) {
	if c.onSystem {
		c.handleSystemLine(line)
		return
	}

	switch {
	case strings.Contains(line, lineReady), strings.Contains(line, lineNeeds):
		c.phase = PhaseReady
	case strings.Contains(line, lineInit):
		c.powerOn() // it may have restarted by itself
		c.phase = PhaseInitramfs
	case strings.Contains(line, lineSystemd) && c.phase == PhaseInitramfs:
		c.phase = PhaseSystemd
	case strings.HasPrefix(line, lineDaemon):
		name, news, ok := strings.Cut(strings.TrimPrefix(line, lineDaemon), ": ")
		if !ok || !stageForm.MatchString(name) {
			return
		}
		c.phase, c.done[name] = name, strings.HasPrefix(news, "ok,")
	}
}

// bootSteps are the phases before the first stage, as shares of the way.
const bootSteps = 3

// usualStages is how many there are until the appliance says it.
const usualStages = 17

// applianceState is the appliance's phase and how far it is, in percent: from what it says if
// it can be asked, else from its console.
func applianceState(on bool, c phaseTracker, doc *status.Document) (phase string, percent int) {
	switch {
	case !on:
		return PhaseOff, 0
	case doc == nil || len(doc.Stages) == 0:
		done := 0
		for _, ok := range c.done {
			if ok {
				done++
			}
		}

		steps := map[string]int{PhaseInitramfs: 1, PhaseSystemd: 2, PhaseInstalling: 1, PhaseStarting: 2}[c.phase]
		if len(c.done) > 0 {
			steps = bootSteps
		}

		if c.phase == PhaseReady {
			return PhaseReady, 100
		}

		return c.phase, min(99, 100*(steps+done)/(bootSteps+usualStages))
	}

	done, all, first := 0, 0, ""
	for _, s := range doc.Stages {
		if s.AfterReady {
			continue
		}

		all++
		switch {
		case s.State == status.StateReady:
			done++
		case first == "":
			first = s.Name
		}
	}

	if first == "" {
		return PhaseReady, 100
	}

	return first, 100 * (bootSteps + done) / (bootSteps + all)
}

// stateShare is how far a node is by the state of its BareMetalHost, in percent, where the
// appliance itself does not say it.
var stateShare = map[string]int{
	"new": 2, "registering": 5, "inspecting": 15, "match profile": 45, "preparing": 45, "ready": 48, "available": 50,
	"provisioning": 55, PhaseInstalled: 90,
}

// nodeState is a node's phase and how far it is.
func nodeState(name string, doc *status.Document) (phase string, percent int, n status.Node) {
	if doc != nil {
		for _, n := range doc.Nodes {
			if n.Name != name {
				continue
			}
			switch {
			case n.Verified:
				return PhaseVerified, 100, n
			case n.State == "" || n.State == "absent":
				return PhaseWaiting, n.Percent, n
			case n.Percent > 0:
				return n.State, n.Percent, n
			}
			return n.State, stateShare[n.State], n
		}
	}
	return PhaseWaiting, 0, status.Node{}
}

// unknownMachines are what the appliance speaks of besides the rack's machines.
func (r Rack) unknownMachines(doc *status.Document) []UnknownMachine {
	var all []UnknownMachine
	for _, n := range doc.Nodes {
		if slices.ContainsFunc(r.Nodes, func(c MachineSpec) bool { return c.Name == n.Name }) {
			continue
		}

		x := UnknownMachine{Name: n.Name, Why: n.Why, Next: n.Next}
		for _, c := range r.Machines() {
			if slices.ContainsFunc(c.Cards, func(card Card) bool { return card.MAC.String() == n.Name }) {
				x.Machine = c.Name
			}
		}

		all = append(all, x)
	}
	return all
}

// rackOutcome tells whether a rack has come to its end: text says how, failed that it is not the
// one wanted. Without a word about the launch it is over when all nodes are installed.
func rackOutcome(doc *status.Document, o Order) (over, failed bool, text string) {
	if doc == nil {
		return false, false, ""
	}
	if doc.State == status.StateFailed {
		return true, true, doc.Summary
	}

	if o.Discover && len(doc.Nodes) < o.Nodes {
		return false, false, "" // others are still to be discovered
	}

	switch doc.Launch.State {
	case status.LaunchSucceeded:
		if !o.Cluster {
			return true, false, doc.Launch.Text
		}
		return clustersOutcome(doc)
	case status.LaunchFailed:
		return true, true, doc.Launch.Text
	case status.LaunchRunning, status.LaunchNothing:
		return false, false, ""
	}

	installed := 0
	for _, n := range doc.Nodes {
		if n.State == PhaseInstalled {
			installed++
		}
	}

	if installed < o.Nodes {
		return false, false, ""
	}

	return true, false, "every node is installed"
}

// clustersOutcome tells whether the clusters of a rack whose nodes are proven have come to their end.
func clustersOutcome(doc *status.Document) (over, failed bool, text string) {
	ready := 0
	for _, c := range doc.Clusters {
		switch c.State {
		case clusterReady:
			ready++
		case clusterRefused, clusterFailed:
			return true, true, fmt.Sprintf("cluster %s: %s", c.Name, cmp.Or(c.Error, c.Text))
		}
	}

	if ready == 0 || ready < len(doc.Clusters) {
		return false, false, ""
	}

	return true, false, doc.Launch.Text + ", and its cluster is ready"
}

// Event is a change of the phase of a machine, or of a cluster.
type Event struct {
	At      time.Time `json:"at"`
	Machine string    `json:"machine"`
	Phase   string    `json:"phase"`
	CPU     float64   `json:"cpu"` // seconds of processor time that the machine had used
}

// closingEvents are the events by which a rack that ends at a moment, or did so in a crash, closes the phases
// of its machines and clusters, the last of each in last: until it is started again they are off.
// cpu is what machines had used by then, where that is known.
func closingEvents(last map[string]Event, at time.Time, cpu map[string]float64) []Event {
	var all []Event
	for _, name := range slices.Sorted(maps.Keys(last)) {
		if e := last[name]; e.Phase != PhaseOff {
			off := Event{At: at, Machine: name, Phase: PhaseOff, CPU: max(e.CPU, cpu[name])}
			if at.Before(e.At) {
				off.At = e.At
			}
			all = append(all, off)
		}
	}
	return all
}

// Span is a phase that a machine was in.
type Span struct {
	Machine string  `json:"machine"`
	Phase   string  `json:"phase"`
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"` // seconds
	Open    bool    `json:"open,omitempty"`
}

// Spans are the phases of each machine, machine by machine in the order in which they first
// appear. The last phase of each is open: it goes on, until now.
func Spans(events []Event, now time.Time, cpu map[string]float64) []Span {
	var order []string
	by := map[string][]Event{}
	for _, e := range events {
		if _, known := by[e.Machine]; !known {
			order = append(order, e.Machine)
		}
		by[e.Machine] = append(by[e.Machine], e)
	}

	var all []Span
	for _, machine := range order {
		for i, e := range by[machine] {
			s := Span{Machine: machine, Phase: e.Phase}
			if i+1 < len(by[machine]) {
				next := by[machine][i+1]
				// A supervisor that starts again counts from nothing.
				s.Seconds, s.CPU = next.At.Sub(e.At).Seconds(), max(0, next.CPU-e.CPU)
			} else {
				s.Seconds, s.CPU, s.Open = now.Sub(e.At).Seconds(), max(0, cpu[machine]-e.CPU), true
			}
			all = append(all, s)
		}
	}

	return all
}
