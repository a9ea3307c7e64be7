package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/image/lab/virtualrack"
)

// NewEndDetector tells when a rack has come to its end: at once when all is well or nothing goes on, after some
// patience when something else has failed, or nothing has changed.
func NewEndDetector(now func() time.Time, patience time.Duration) func(virtualrack.Status) bool {
	var failed, changed time.Time
	var last virtualrack.Status
	return func(s virtualrack.Status) bool {
		if changed.IsZero() || isProgressing(last, s, now()) {
			changed = now()
		}

		last = s
		if !s.Over || !s.Failed || s.Dead {
			failed = time.Time{}
			return s.Over || now().Sub(changed) >= patience
		}

		if failed.IsZero() {
			failed = now()
		}

		return now().Sub(failed) >= patience
	}
}

// isProgressing tells whether anything of a rack has changed that is more than its age.
func isProgressing(before, after virtualrack.Status, now time.Time) bool {
	seen := func(s virtualrack.Status) (all []any) {
		all = append(all, s.Over, s.Failed, s.Text)
		for _, m := range s.Machines {
			all = append(all, m.Percent, m.Last)
		}

		for _, c := range s.Clusters {
			all = append(all, c.Percent, c.Why)
		}

		return all
	}
	return !slices.Equal(seen(before), seen(after)) || virtualrack.RenderChanges(before, after, now) != ""
}

// DescribeStuck says what a rack waits for that does not get on, and what to do.
func DescribeStuck(s virtualrack.Status, long time.Duration) string {
	var all []string
	for _, m := range s.Machines {
		switch {
		case m.Paused:
			all = append(all, m.Name+" is paused")
		case m.Share > 0:
			all = append(all, fmt.Sprintf("%s is in %s and throttled", m.Name, m.Phase))
		case m.Phase != virtualrack.PhaseVerified && m.Phase != virtualrack.PhaseReady:
			all = append(all, m.Name+" is in "+m.Phase)
		}
	}

	for _, cluster := range s.Clusters {
		all = append(all, "cluster "+cluster.Name+" is "+cluster.Phase)
	}

	return fmt.Sprintf(`the rack does not get on: nothing has changed for %.0f min (%s). It is on still: "firstlight lab why" says what each machine waits for. If this computer is too slow or busy, end what else runs and look on with "firstlight lab up --wait", or begin again with one node: "firstlight lab down --remove", "firstlight lab up --nodes 1 --wait"`,
		long.Minutes(), strings.Join(all, ", "))
}
