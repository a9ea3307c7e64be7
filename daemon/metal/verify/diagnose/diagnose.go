// Package diagnose says of every node, in one sentence for people, what it is doing, since when,
// what it waits for and what to do about it. What is known comes from six witnesses (the
// site, the pre-flight, BareMetalHost, Ironic, the wire, the installed system); a list of
// situations in order turns it into one answer: the first that fits. docs/why.md shows the
// list.
package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
	"firstlight.dev/firstlight/daemon/metal/verify/fact"
	"firstlight.dev/firstlight/daemon/metal/verify/shell"
	"firstlight.dev/firstlight/pxe/boottrace"
)

// View is all that is known of one node.
type View struct {
	Now       time.Time
	Name      string
	Node      *site.Node // nil: the site does not name it
	FromSite  bool       // the site once named it
	Applied   bool       // Node was made from a BareMetalHost that someone applied
	Appliance string     // what the appliance still waits for before it knows and hands over nodes; "": nothing

	Silent time.Time // the API has not answered for Host since then, so that it is of that time; zero: it does

	Preflight      []status.Check // before it was switched on; none: not asked
	Passed         bool           // all of them hold
	PreflightSince time.Time      // Passed, or the failure, has been so since
	BMC            bmc.Verdict
	Certificate    bmctrust.Change // what stands between its BMC and the password; zero: nothing
	HandingSince   time.Time       // the appliance has been so far that it hands nodes over since then; zero: it is not

	Erasure   *metal3.Erasure // the last time that disks of it were to be erased; nil: never
	Blocked   metal3.Block    // why registration blocks it; zero: it does not
	Host      *fact.Host      // nil: there is none
	LastError string          // of the host on its way to what it is to become: the operator clears an error at each new try
	Ironic    *fact.Ironic

	Unmatched []string         // of a machine that the site does not name: nodes whose MACs nobody knows yet, any of which it may be
	BootTrace *boottrace.Trace // where its boot NIC last was; nil: never heard of
	OtherNIC  string           // another NIC of it that was heard on the provisioning network instead
	Foreign   string           // what the DHCP server says of a foreign one; "": there is none
	Log       string           // the last error in the log of its ramdisk
	Refusal   Refusal          // of its agent, if none was let through since
	Claim     Refusal          // of another machine that called in its name

	Answer   shell.Verdict  // of the installed system
	Checks   []status.Check // of the installed system
	Verified bool
}

// Refusal is why something that spoke for a node was not let through to Ironic.
type Refusal struct {
	Sentence string // "": nothing was refused
	Time     time.Time
}

// Diagnosis is the answer.
type Diagnosis struct {
	Rule     string
	Sentence string    // without the node's name: "loads its ramdisk, 12 of 80 MB"; of what fails it stays the same while it does
	Next     string    // what a person can do; "" if nothing is needed
	Since    time.Time // zero if nobody knows
	Percent  int       // of the way to proven
	Fails    bool      // it needs a person, or will not become better by itself
}

// rule is one row of the list.
type rule struct {
	name     string
	meaning  string // what is seen, for docs/why.md
	matches  func(View) bool
	sentence func(View) string
	next     func(View) string // nil: nothing is needed
	since    func(View) time.Time
	percent  int            // of the way to verified
	progress func(View) int // what is added to percent; nil: nothing
	fails    bool
}

// Explain finds the first situation that fits. The last one fits everything.
func Explain(v View) Diagnosis {
	for _, s := range rules {
		if !s.matches(v) {
			continue
		}

		r := Diagnosis{Rule: s.name, Sentence: oneLine(s.sentence(v)), Percent: s.percent, Fails: s.fails}
		if s.next != nil {
			r.Next = oneLine(s.next(v))
			if v.Applied && r.Next != "" {
				r.Next += appliedNote
			}
		}

		if s.since != nil {
			r.Since = s.since(v)
		}

		if s.progress != nil {
			r.Percent += s.progress(v)
		}

		if isRetry(v) && !r.Fails {
			r.Sentence = oneLine(r.Sentence + "; it is tried again, before that it failed: " + firstSentence(v.LastError))
		}

		// Noise of another machine makes no node fail, and hides nothing that does.
		if isBooting(v) && !r.Fails && v.Claim.Time.After(startedAt(v)) {
			r.Sentence = oneLine(r.Sentence + "; " + v.Claim.Sentence)
		}

		return r
	}
	return Diagnosis{Rule: "unknown", Sentence: "nothing is known of it"}
}

// appliedNote ends every advice about a host that someone applied: advice names the fields of site.yaml.
const appliedNote = " (of this host its BareMetalHost and its Secrets say that, not site.yaml)"

// transferProgress returns how many of a step's own per cent are done.
func transferProgress(share int64) func(View) int {
	return func(v View) int {
		m := furthestMark(v)
		if m.Total <= 0 {
			return 0
		}
		return int(share * min(m.Bytes, m.Total) / m.Total)
	}
}

// fixedNext puts a fixed sentence into next.
func fixedNext(text string) func(View) string { return func(View) string { return text } }

func fixedSentence(text string) func(View) string { return func(View) string { return text } }

// oneLine keeps to one line what came from elsewhere.
func oneLine(s string) string {
	s = excerpt.Line(s)
	if len(s) > 400 {
		s = s[:strings.LastIndex(s[:400], " ")+1] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

// firstProblem is the check that stands in the way: a failed one before one that waits.
func firstProblem(checks []status.Check) (c status.Check, failed bool) {
	for _, state := range []status.CheckState{status.CheckFailed, status.CheckWaiting} {
		for _, c := range checks {
			if c.State == state {
				return c, state == status.CheckFailed
			}
		}
	}
	return status.Check{}, false
}

// What the host is.

func hostState(v View, states ...string) bool {
	return v.Host != nil && slices.Contains(states, v.Host.State)
}

// hostError is the error that stands, or the last one while the operator tries again.
func hostError(v View) string {
	switch {
	case v.Host == nil:
		return ""
	case v.Host.Error == "" && (v.Host.Errors > 0 || v.Host.State == "deprovisioning"): // it is cleaned up after, to be tried again
		if isInterrupted(v.LastError) { // and was no failure of the machine's
			return ""
		}
		return v.LastError
	}
	return v.Host.Error
}

// isRetry tells whether what the host is at failed before, and no error of this try is known.
func isRetry(v View) bool {
	return isBooting(v) && hostError(v) == "" && v.LastError != "" && !isInterrupted(v.LastError)
}

// mentions tells whether the error, or what Ironic or the ramdisk say about it, has one of the words.
func mentions(v View, words ...string) bool {
	text := hostError(v)
	if text == "" {
		return false
	}

	if v.Ironic != nil {
		text += "\n" + v.Ironic.LastError
	}

	text = strings.ToLower(text + "\n" + v.Log)
	for _, w := range words {
		if strings.Contains(text, strings.ToLower(w)) {
			return true
		}
	}

	return false
}

// isBooting tells whether the host is at something for which it must boot the ramdisk.
func isBooting(v View) bool {
	return hostState(v, "inspecting", "preparing", "provisioning", "deprovisioning")
}

// startedAt is when what the host is at began, as far as anybody knows.
func startedAt(v View) time.Time {
	switch {
	case v.Host == nil:
		return time.Time{}
	case v.Host.State == "inspecting" && v.Ironic != nil && v.Ironic.Inspecting.After(v.Host.Since):
		return v.Ironic.Inspecting
	case v.Host.Since.IsZero() && v.Ironic != nil:
		return v.Ironic.Since
	}
	return v.Host.Since
}

// agentAlive tells whether the agent in the ramdisk called lately.
func agentAlive(v View) bool {
	return v.Ironic != nil && !v.Ironic.Heartbeat.IsZero() && v.Now.Sub(v.Ironic.Heartbeat) < 4*time.Minute
}

// currentBoot is the record of the boot that belongs to what the host is at; nil if the machine was
// not heard of since then. Ironic may be quicker with the power than the operator with its
// history: a minute is forgiven.
func currentBoot(v View) *boottrace.Trace {
	if v.BootTrace == nil || v.BootTrace.Last.Time.Before(startedAt(v).Add(-time.Minute)) {
		return nil
	}
	return v.BootTrace
}

// stepSystem stands for what the ramdisk does by itself: it asks for its address once more.
const stepSystem boottrace.Step = "system"

// way is the order of the steps of a boot.
var way = []boottrace.Step{boottrace.StepDiscover, boottrace.StepOffer, boottrace.StepLease, boottrace.StepTFTP, boottrace.StepBootFile,
	boottrace.StepScript, boottrace.StepKernel, boottrace.StepDisc, boottrace.StepRamdisk, stepSystem, boottrace.StepImage}

// furthestMark is the step furthest on the way that the boot came to. Firmware, iPXE and ramdisk each
// ask for an address anew, so the last step heard of is not it. A lease without any word on
// boot files was asked for by an operating system: the ramdisk.
func furthestMark(v View) boottrace.Mark {
	r := currentBoot(v)
	if r == nil {
		return boottrace.Mark{}
	}

	var best boottrace.Mark
	for _, m := range r.Marks {
		if m.Step == boottrace.StepLease && m.Detail == "" {
			m.Step = stepSystem
		}
		if m.IsRefused() {
			continue
		}
		if best.Step == "" || slices.Index(way, m.Step) > slices.Index(way, best.Step) {
			best = m
		}
	}

	return best
}

// stuckAt tells whether the boot came as far as one of steps and no further, and nothing was
// heard for at least that long.
func stuckAt(v View, least time.Duration, steps ...boottrace.Step) bool {
	return isBooting(v) && slices.Contains(steps, furthestMark(v).Step) && v.Now.Sub(v.BootTrace.Last.Time) >= least
}

func lastSeen(v View) time.Time { return v.BootTrace.Last.Time }

func hostSince(v View) time.Time { return startedAt(v) }

func preflightSince(v View) time.Time { return v.PreflightSince }

func deployedAt(v View) time.Time { return v.Host.Deployed }

func formatMegabytes(m boottrace.Mark) string {
	if m.Total <= 0 {
		return fmt.Sprintf("%d MB", m.Bytes/1e6)
	}
	return fmt.Sprintf("%d of %d MB", m.Bytes/1e6, m.Total/1e6)
}

// firstSentence is an error cut to what people can read: the first sentence or so.
func firstSentence(s string) string {
	s = excerpt.Line(s)
	if i := strings.Index(s, "Traceback"); i > 0 {
		s = s[:i]
	}
	return s
}
