package operator

import (
	"errors"
	"slices"
	"time"

	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// step is what is done next for a Provisioning.
type step string

const (
	stepHold    step = "hold"    // nothing can be done: refused, or waiting for hosts
	stepClaim   step = "claim"   // write the claims on the hosts
	stepClear   step = "clear"   // remove a Job that has ended, and its pods, before the next
	stepStart   step = "start"   // write the inventory, create the Job
	stepWatch   step = "watch"   // the Job runs
	stepRecord  step = "record"  // the Job ended well: write what it did
	stepPause   step = "pause"   // the Job failed: wait before the next attempt
	stepRefused step = "refused" // the Job said that trying again is of no use
	stepSettled step = "settled" // all is as asked: keep it handed out
)

// decision is that step with what it needs.
type decision struct {
	step     step
	run      *kud.Run        // that is started, or will be
	claim    []kud.Node      // whose hosts are not claimed yet
	release  []string        // hosts that are claimed and not used
	problems []match.Problem // that came up beside those of resolve
	until    time.Time       // of a pause
}

// reasons of an installed cluster that is refused a change, of runs, and of log-ins.
const (
	Claiming         = "Claiming"
	Installing       = "Installing"
	NotBegun         = "NotBegun"
	NotAsAsked       = "NotAsAsked"
	InstallFailed    = "InstallFailed"
	InstallerRefused = "InstallerRefused"
	NoKubeconfig     = "NoKubeconfig"
	NoSSHKey         = "NoSSHKey"
	NoCredentials    = "NoCredentials"
	LoginFailed      = "LoginFailed"
	NotVerified      = "NotVerified"
	CheckFailed      = "CheckFailed"
)

// Reasons lists every reason that a Provisioning may show.
func Reasons() []string {
	return append(match.Reasons(), InvalidName, ClusterRenamed, ClusterNameTaken, PluginsMissing, PluginsNotKnown, InvalidSubnet, AddressTwice, NoInstaller, InstallerNotAllowed, LabelRefused, MastersRefused, "NoAddress", "NoActiveLease",
		kud.ControlPlaneFixed, kud.SubnetFixed, Claiming, Installing, NotBegun, NotAsAsked, InstallFailed, InstallerRefused, NoKubeconfig, NoSSHKey, NoCredentials, LoginFailed, NotVerified, CheckFailed)
}

// decide chooses the next step. It is pure, and asks only what there is: a step that was cut
// off is found undone, one that was done is not done again.
func decide(w *clusterState, a resolution, want *kud.Want) decision {
	d := decision{release: w.unusedClaims(a)}
	if w.orphan {
		d.step = stepClear
		return d
	}
	if w.job != nil {
		switch o := w.outcome; {
		case !o.Ended && (o.Started || w.run.Generation == w.cr.Generation || want == nil):
			d.step = stepWatch
			return d
		case !o.Ended: // its container cannot start, and something was edited meanwhile
			d.step = stepClear
			return d
		case w.jobFailed() && w.run.Generation == w.cr.Generation && o.Refused:
			d.step = stepRefused
			return d
		case w.jobFailed() && w.run.Generation == w.cr.Generation && w.now.Before(o.At.Add(kud.RetryDelay(w.run.Attempt))):
			d.step, d.until = stepPause, o.At.Add(kud.RetryDelay(w.run.Attempt))
			return d
		case !w.jobFailed() && !w.isRecorded():
			d.step = stepRecord
			return d
		}
	}

	if want == nil {
		d.step = stepHold
		return d
	}

	next, err := kud.Next(w.record, *want)
	var fixed *kud.ImmutableError
	if errors.As(err, &fixed) {
		d.step, d.problems = stepHold, []match.Problem{{Reason: fixed.Reason, Sentence: fixed.Sentence}}
		return d
	}

	if next != nil {
		next.Generation, next.Attempt = w.cr.Generation, w.nextAttempt()
		d.run = next
	}

	d.claim = w.unclaimedNodes(a.members)
	switch {
	case len(d.claim) > 0:
		d.step = stepClaim
	case next == nil:
		d.step = stepSettled
	case w.job != nil:
		d.step = stepClear
	default:
		d.step = stepStart
	}

	return d
}

// jobFailed tells whether the Job has failed. One that ended well without a kubeconfig has: it
// did not keep to the contract.
func (w *clusterState) jobFailed() bool {
	return w.job != nil && w.outcome.Ended && (!w.outcome.Succeeded || len(w.config) == 0 && !w.isRecorded())
}

// nextAttempt is the number of the next run: one more than the last that failed for the same
// edit, whether its Job is still there or not.
func (w *clusterState) nextAttempt() int32 {
	if w.jobFailed() && w.run.Generation == w.cr.Generation {
		return w.run.Attempt + 1
	}
	if j := w.cr.Status.Job; w.job == nil && j != nil && j.Generation == w.cr.Generation && j.State == v1alpha1.JobFailed {
		return j.Attempt + 1
	}
	return 1
}

// unclaimedNodes are the members whose host does not say so yet.
func (w *clusterState) unclaimedNodes(members []kud.Node) []kud.Node {
	var all []kud.Node
	for _, m := range members {
		if b := w.host(m); b != nil && claimOf(b.Spec.ConsumerRef) != (match.Claim{Owner: w.owner, Node: m.Label}) {
			all = append(all, m)
		}
	}
	return all
}

// unusedClaims are the hosts that this Provisioning has claimed and does not need: not in the
// cluster, not in a run whose end is not recorded, not in what is asked for. What cannot be
// matched as a whole holds nothing, so that two of them cannot wait for each other.
func (w *clusterState) unusedClaims(a resolution) []string {
	keep := map[string]bool{}
	if w.record != nil {
		for _, m := range slices.Concat(w.record.Members, w.record.Unready) {
			keep[m.Host] = true
		}
	}

	if w.job != nil && !w.isRecorded() {
		for _, m := range w.run.Members {
			keep[m.Host] = true
		}
	}

	if len(a.spec)+len(a.hosts) == 0 {
		for _, m := range a.members {
			keep[m.Host] = true
		}
	}

	var all []string
	for name, b := range w.bmh {
		if claimOf(b.Spec.ConsumerRef).Owner == w.owner && !keep[name] {
			all = append(all, name)
		}
	}

	slices.Sort(all)
	return all
}
