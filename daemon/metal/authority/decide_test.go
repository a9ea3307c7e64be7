package authority

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/daemon/appliance/ca"
)

func TestDecide(t *testing.T) {
	const settle = 20 * time.Minute
	for _, c := range []struct {
		name    string
		stage   ca.Stage
		age     time.Duration
		waiting int
		want    Step
	}{
		{"nobody has asked", "", time.Hour, 0, StepNothing},
		{"nobody has asked, and nodes are being installed", "", time.Hour, 2, StepNothing},
		{"asked just now", ca.Asked, 0, 0, StepIntroduce},
		{"asked while a node is being installed", ca.Asked, 0, 1, StepNothing},
		{"asked an hour ago, and it still is", ca.Asked, time.Hour, 1, StepNothing},
		{"introduced just now", ca.Introduced, 0, 0, StepNothing},
		{"introduced, and ramdisks of before may run", ca.Introduced, settle - time.Second, 0, StepNothing},
		{"introduced, and all trust both", ca.Introduced, settle, 0, StepSwitch},
		{"introduced, and a node does not answer", ca.Introduced, 30 * 24 * time.Hour, 1, StepNothing},
		{"switched just now", ca.Switched, 0, 0, StepNothing},
		{"switched, and certificates of before are in memory", ca.Switched, settle - time.Second, 0, StepNothing},
		{"switched, and no node trusts the former", ca.Switched, settle, 0, StepForget},
		{"switched, and a node does not answer", ca.Switched, 30 * 24 * time.Hour, 1, StepNothing},
		{"the clock was set back", ca.Introduced, -time.Hour, 0, StepNothing},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, Decide(Facts{Stage: c.stage, Age: c.age, Settle: settle, Waiting: c.waiting}))
		})
	}
}
