package nodeupdate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"firstlight.dev/firstlight/daemon/clusters/bpa/software"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// Action is what becomes of one node now.
type Action struct {
	Node    string
	Step    Step
	IsAway  bool   // it is out of service, or about to be
	Phase   string // of v1alpha1: NodeOutdated, …
	Message string
	Failure *Failure // Message is its sentence
}

func (a *Action) fail(f *Failure) {
	a.Phase, a.Failure, a.Message = v1alpha1.NodeUpdateFailed, f, f.Sentence
}

func (a *Action) say(phase string, step Step, format string, args ...any) {
	a.Phase, a.Step, a.Message = phase, step, fmt.Sprintf(format, args...)
}

// continueNode is the next step of a node that is out of service. It is the same however often it is asked, and whoever
// was interrupted since.
func (o Order) continueNode(n Node, now time.Time) Action {
	a := Action{Node: n.Name, IsAway: true}
	waited := now.Sub(n.Mark.Since)
	if n.Facts == nil {
		a.awaitAnswer(n, waited)
		return a
	}
	if n.Facts.Preview.Error != "" {
		a.fail(explainPackages(n))
		return a
	}

	changes, reboots := n.Facts.Preview.Changes, o.mustReboot(n)
	if f := o.checkChanges(changes); f != nil {
		a.fail(f)
		return a
	}
	if (len(changes) > 0 || reboots) && !a.drain(n, waited) {
		return a
	}

	switch {
	case len(changes) > 0:
		a.say(v1alpha1.NodeInstallingPackages, StepInstall, "installing %s", describeChanges(changes))
	case reboots && n.Mark.BootID != "" && waited > rebootTime:
		a.Step = StepReboot
		a.fail(failf(ReasonNotRebooted, "was told to restart at %s and still runs; "+checkConsole, n.Mark.clock()))
	case reboots:
		a.say(v1alpha1.NodeRebooting, StepReboot, "restarting")
	default:
		a.checkHealth(n, waited)
	}
	return a
}

const checkConsole = "check its console, or switch it off and on"

// clock is when the last step began.
func (m Mark) clock() string { return m.Since.UTC().Format("15:04:05") }

// awaitAnswer is for a node that does not answer: it restarts, or somebody must see to it.
func (a *Action) awaitAnswer(n Node, waited time.Duration) {
	switch isRestarting := n.Mark.BootID != ""; {
	case isRestarting && waited < rebootTime:
		a.say(v1alpha1.NodeRebooting, StepWait, "restarting")
	case isRestarting:
		const text = "did not come back since it was restarted at %s: %s; " + checkConsole
		a.fail(failf(ReasonNotRebooted, text, n.Mark.clock(), n.Error))
	default:
		a.fail(failf(ReasonNodeSilent, "does not answer: %s; switch it on, then the update continues", n.Error))
	}
}

// drain reports whether a node is cordoned and drained, and says what is done about it if not. One that restarts was:
// what came there since does not matter any more.
func (a *Action) drain(n Node, waited time.Duration) bool {
	left := len(n.Pods.Movable)
	switch {
	case !n.IsClosed:
		a.say(v1alpha1.NodeDraining, StepClose, "taking it out of service again: somebody uncordoned it")
	case n.Mark.BootID != "":
		return true
	case len(n.Pods.Unmovable) > 0:
		a.fail(failf(ReasonNotMovable, "%s", strings.Join(n.Pods.Unmovable, "; ")))
	case left > 0 && waited > drainTime:
		a.Step = StepEvict
		a.fail(failf(ReasonDrainBlocked, "%d pods are still there after %s: %s", left, drainTime, firstRefusal(n)))
	case left > 0:
		a.say(v1alpha1.NodeDraining, StepEvict, "draining: %d pods are still there: %s", left, firstRefusal(n))
	default:
		return true
	}
	return false
}

// checkHealth puts a node back into service that has all that it needs, once it is healthy.
func (a *Action) checkHealth(n Node, waited time.Duration) {
	var why string
	switch {
	case !n.IsReady:
		why = "its kubelet is not Ready"
	case n.BootID != n.Facts.BootID:
		why = "its kubelet has not started since the restart"
	case len(n.Pods.Unready) > 0:
		why = "not ready on it: " + strings.Join(n.Pods.Unready, ", ")
	default:
		a.say(v1alpha1.NodeChecking, StepOpen, "putting it back into service")
		return
	}

	if waited > healthTime {
		const text = "is updated and not healthy: %s; see kubectl describe node %s and journalctl -u kubelet on it"
		a.fail(failf(ReasonNodeNotReady, text, why, n.Name))
		return
	}
	a.say(v1alpha1.NodeChecking, StepWait, "waiting until it is healthy: %s", why)
}

// explainPackages is why it is not known what changes on a node.
func explainPackages(n Node) *Failure {
	const text = "%s; correct the NodeUpdate, or the node's repositories"
	return failf(ReasonPackagesUnknown, text, n.Facts.Preview.Error)
}

// mustReboot reports whether a node has to restart and has not since it was taken out of service.
func (o Order) mustReboot(n Node) bool {
	if m := n.Mark; m != nil && m.BootID != "" && m.BootID != n.Facts.BootID {
		return false
	}
	switch o.Reboot {
	case v1alpha1.RebootNever:
		return false
	case v1alpha1.RebootAlways:
		return n.Mark != nil || n.UpdatedBy != o.Token
	}
	return n.Facts.NeedsReboot
}

// isOutdated reports whether a node in service has something to be done.
func (o Order) isOutdated(n Node) bool {
	return n.Facts != nil && (len(n.Facts.Preview.Changes) > 0 || o.mustReboot(n))
}

// checkChanges refuses a kubelet of a later minor release than the API server's, whose version is unknown if Minor is
// zero.
func (o Order) checkChanges(changes []software.Change) *Failure {
	for _, c := range changes {
		parts := strings.SplitN(c.To, ".", 3)
		if c.Name != "kubelet" || len(parts) < 3 || o.Minor == 0 {
			continue
		}
		if minor, err := strconv.Atoi(parts[1]); err == nil && minor > o.Minor {
			const text = "kubelet %s is newer than the cluster's API server, v1.%d; " +
				"upgrade the control plane by kubeadm first, or take it out of packages"
			return failf(ReasonTooNew, text, c.To, o.Minor)
		}
	}
	return nil
}

// firstRefusal is the first pod that is still there, or why it was not evicted.
func firstRefusal(n Node) string {
	if n.Refusal != "" {
		return n.Refusal
	}
	return n.Pods.Movable[0]
}

// describeChanges names the first packages.
func describeChanges(changes []software.Change) string {
	const most = 3
	var names []string
	for _, c := range changes[:min(len(changes), most)] {
		names = append(names, c.Name+" "+c.To)
	}
	if more := len(changes) - most; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// describeOutdated is what is to be done on a node in service.
func (o Order) describeOutdated(n Node) string {
	var all []string
	if changes := n.Facts.Preview.Changes; len(changes) > 0 {
		all = append(all, "gets "+describeChanges(changes))
	}
	if o.mustReboot(n) {
		all = append(all, "restarts")
	}
	return strings.Join(slices.Compact(all), ", then ")
}
