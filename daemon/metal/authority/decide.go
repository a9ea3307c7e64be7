package authority

import (
	"time"

	"firstlight.dev/firstlight/daemon/appliance/ca"
)

// Facts are what a decision is made from.
type Facts struct {
	Stage   ca.Stage
	Age     time.Duration // since when it is that
	Settle  time.Duration // as of Rotation
	Waiting int           // how many are waited for
}

// Step is what a rotation does next.
type Step string

// Steps.
const (
	StepNothing   Step = ""
	StepIntroduce Step = "introduce" // the next authority is there, and all are told to trust both
	StepSwitch    Step = "switch"    // it signs
	StepForget    Step = "forget"    // the former one is trusted no more
)

// Decide says what a rotation does next. Whatever a step changes is in ramdisks and in what installs nodes, too, so none
// is done while anyone is waited for; and what was begun before a step has had time to end before the next one.
func Decide(f Facts) Step {
	if f.Waiting > 0 {
		return StepNothing
	}

	switch {
	case f.Stage == ca.Asked:
		return StepIntroduce
	case f.Age < f.Settle:
		return StepNothing
	case f.Stage == ca.Introduced:
		return StepSwitch
	case f.Stage == ca.Switched:
		return StepForget
	}
	return StepNothing
}
