package virtualrack

import (
	"fmt"
	"math"
	"time"

	"firstlight.dev/firstlight/image/lab/accelerator"
)

// HostCapacity is what this computer has for a rack.
type HostCapacity struct {
	Accel accelerator.Choice
	Speed float64 // of the processors that a rack gets, see accelerator
	Cores int
	MiB   int     // of memory, free; 0: its kernel does not say
	Share float64 // of its processors, that each machine will be throttled to; 0: none is
}

// Fit is a rack that suits a host.
type Fit struct {
	Nodes         int
	TimeoutFactor float64  // how many times as long as on the README's computer something may take
	Text          []string // what to expect, in sentences
}

// What the README's computer takes from power on, emulated, on two processors that have nothing else to do.
// docs/performance.md has the figures; a slower computer took as many times longer as its emulation was slower.
const (
	usualCores       = 2
	usualOne         = 10 * time.Minute // one node proven
	usualOneDone     = 18 * time.Minute // and its cluster ready
	usualTwo         = 11 * time.Minute
	usualTwoDone     = 20 * time.Minute
	speedForTwo      = 0.5 // of the README's: below it two nodes and the appliance keep each other waiting
	speedForAny      = 0.2 // below it parts of Kubernetes miss their own deadlines
	minTimeoutFactor = 1
	maxTimeoutFactor = 6
)

// relativeSpeed is how fast a rack makes progress, next to the README's computer. What else runs here is in Speed
// already. More processors than that computer has help by an amount that was not measured.
func (h HostCapacity) relativeSpeed() float64 {
	pace := h.Speed
	if h.Share > 0 {
		pace *= min(1, h.Share/usualCores)
	}
	return pace
}

// Fit decides what suits a host: as many nodes as were asked for, or where nobody asked (0) two, or one
// where memory or speed do not suffice for two.
func (h HostCapacity) Fit(o Order, asked int) Fit {
	pace := h.relativeSpeed()
	f := Fit{Nodes: asked, TimeoutFactor: min(max(minTimeoutFactor, 1/pace), maxTimeoutFactor)}
	slow := h.Accel.Kind != accelerator.KVM && pace < speedForTwo
	tight := h.MiB > 0 && h.MiB < o.Appliance+2*o.MiB
	if asked == 0 {
		f.Nodes = 2
		if slow || tight {
			f.Nodes = 1
		}
	}

	f.Text = append(f.Text, h.describe(), h.expectedTime(f.Nodes, pace))
	switch {
	case asked > 1 && slow:
		f.Text = append(f.Text, "One node (N=1) would suit this computer better: more keep each other waiting.")
	case asked > 0 || f.Nodes == 2:
	case tight:
		f.Text = append(f.Text, fmt.Sprintf(
			"One node: two would need %d MiB of memory, %d MiB are free. N=2 asks for two.", o.Appliance+2*o.MiB,
			h.MiB,
		))
	default:
		f.Text = append(f.Text, "One node: two would keep each other waiting. N=2 asks for two.")
	}

	if h.Accel.Kind != accelerator.KVM && pace < speedForAny {
		f.Text = append(f.Text, "That is too slow for deadlines within Kubernetes, and the rack may never finish: stop what else runs here, or use a faster computer.")
	}

	return f
}

// describe is what there is.
func (h HostCapacity) describe() string {
	text := fmt.Sprintf("%s. Here are %d processors", h.Accel, h.Cores)
	if h.Cores == 1 {
		text = fmt.Sprintf("%s. Here is one processor", h.Accel)
	}

	if h.MiB > 0 {
		text += fmt.Sprintf(" and %.1f GiB of free memory", float64(h.MiB)/1024)
	}

	if h.Share > 0 {
		text += fmt.Sprintf("; each machine is throttled to %v processors", h.Share)
	}

	return text + "."
}

// expectedTime is how long it will take.
func (h HostCapacity) expectedTime(nodes int, pace float64) string {
	if h.Accel.Kind == accelerator.KVM {
		return fmt.Sprintf("Less is to be expected than the %s to two proven servers and %s to their cluster of the README's emulated rack; no rack was timed under KVM.",
			scaledTime(usualTwo, 1), scaledTime(usualTwoDone, 1))
	}

	text := fmt.Sprintf(
		"A rack runs at about %.0f %% of the speed of the README's computer, with everything else that runs here: ",
		100*pace,
	)
	switch nodes {
	case 1:
		return text + fmt.Sprintf(
			"one proven server in about %s, its cluster in about %s.", scaledTime(usualOne, pace),
			scaledTime(usualOneDone, pace),
		)
	case 2:
		return text + fmt.Sprintf(
			"two proven servers in about %s, their cluster in about %s.", scaledTime(usualTwo, pace),
			scaledTime(usualTwoDone, pace),
		)
	}

	return text + fmt.Sprintf(
		"two proven servers would take about %s, their cluster %s; %d take longer.", scaledTime(usualTwo, pace),
		scaledTime(usualTwoDone, pace), nodes,
	)
}

// scaledTime is a time at some pace, as people say it.
func scaledTime(usual time.Duration, pace float64) string {
	minutes := usual.Minutes() / pace
	if minutes < 100 {
		return fmt.Sprintf("%.0f min", minutes)
	}
	return fmt.Sprintf("%.0f hours", math.Ceil(minutes/60))
}
