package metal3

import (
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
)

// TestAHostAppliedAgainIsNotInspected while a record on DATA says that it is in service, or cannot be read: an
// inspection would reset it.
func TestAHostAppliedAgainIsNotInspected(t *testing.T) {
	have := applied(true, nil)
	live := *have.DeepCopy()
	live.UID = "before"
	live.Status.Provisioning.State = metal3api.StateProvisioned
	for name, c := range map[string]struct {
		rec    HostBackup
		step   Step
		reason Reason
	}{
		"unknown":              {HostBackup{}, StepRegister, ""},
		"its own record":       {HostBackup{Host: *have}, StepRegister, ""},
		"in service":           {HostBackup{Host: live}, StepForget, ""},
		"its record is torn":   {HostBackup{Unreadable: "hosts/x.json: it is torn"}, StepHold, ReasonTorn},
		"removed by its owner": {HostBackup{Host: live, Removed: true}, StepRegister, ""},
	} {
		n, err := NewAppliedObjects(&site.Site{Name: "rack-7"}, AppliedHost{Host: have}, keysOnly())
		require.NoError(t, err, name)
		d := decide(n, have, c.rec, nil)
		assert.Equal(t, c.step, d.Step, "%s: %s", name, d.Sentence)
		assert.Equal(t, c.reason, d.Reason, name)
	}
	gone := have.DeepCopy()
	gone.DeletionTimestamp = &have.CreationTimestamp
	n, err := NewAppliedObjects(&site.Site{Name: "rack-7"}, AppliedHost{Host: gone}, keysOnly())
	require.NoError(t, err)
	assert.Equal(t, StepRelease, decide(n, gone, HostBackup{Unreadable: "torn"}, nil).Step, "its owner deletes it")
}
