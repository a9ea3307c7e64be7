package metal3provider

import (
	"time"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// Defaults of a strategy, those of the definition.
const (
	remedyRetries = 1
	remedyTimeout = 600 * time.Second
)

// patient is all that the next step of a remediation depends on.
type patient struct {
	status   v1beta2.Metal3RemediationStatus
	strategy v1beta2.RemediationStrategy
	now      time.Time

	wanted    bool // the host is to be on
	powered   bool // the host is on
	held      bool // the remediation keeps it off
	reachable bool // the cluster's API answered and has the Node
	ready     bool // the Node is
	tainted   bool // the Node is out of service
	busy      bool // pods of the Node are still being deleted, or volumes attached
}

// remedy is the next step of a remediation.
type remedy string

const (
	remedyNone    remedy = ""        // wait
	remedyRefuse  remedy = "refuse"  // somebody has switched the host off
	remedyBegin   remedy = "begin"   // a try begins
	remedyHold    remedy = "hold"    // switch the host off
	remedyTaint   remedy = "taint"   // have the cluster move what runs on the Node
	remedyLetGo   remedy = "let go"  // the host may be on again
	remedySwitch  remedy = "switch"  // switch it on
	remedyUntaint remedy = "untaint" // the Node is in service again
	remedyRetry   remedy = "retry"   // the try took too long; one more
	remedyGiveUp  remedy = "give up" // have the machine replaced
)

// nextRemedy decides the next step. It is pure.
func nextRemedy(p patient) remedy {
	switch p.status.Phase {
	case "":
		if !p.wanted {
			return remedyRefuse
		}
		return remedyBegin
	case v1beta2.PhaseRunning:
		return p.powerOff()
	case v1beta2.PhaseWaiting:
		return p.powerOn()
	}
	return remedyNone
}

func (p patient) powerOff() remedy {
	switch {
	case p.isLate():
		return p.retryOrGiveUp()
	case !p.held:
		return remedyHold
	case p.powered:
		return remedyNone
	case p.reachable && !p.tainted:
		return remedyTaint
	case p.reachable && p.busy:
		return remedyNone
	}
	return remedyLetGo // also if the API of the cluster is away: the host may be what serves it
}

func (p patient) powerOn() remedy {
	switch {
	case p.held:
		return remedySwitch
	case p.powered && p.reachable && p.ready && p.tainted:
		return remedyUntaint
	case p.isLate():
		return p.retryOrGiveUp()
	}
	return remedyNone
}

func (p patient) isLate() bool {
	limit := remedyTimeout
	if p.strategy.TimeoutSeconds > 0 {
		limit = time.Duration(p.strategy.TimeoutSeconds) * time.Second
	}
	return p.status.LastRemediated != nil && p.now.Sub(p.status.LastRemediated.Time) >= limit
}

func (p patient) retryOrGiveUp() remedy {
	if p.status.RetryCount < max(p.strategy.RetryLimit, remedyRetries) {
		return remedyRetry
	}
	return remedyGiveUp
}
