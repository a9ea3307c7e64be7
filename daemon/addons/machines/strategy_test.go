package machines

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func newMachine(strategy v1.RunStrategy) *v1.VirtualMachine {
	return &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "vm"},
		Spec:       v1.MachineSpec{RunStrategy: strategy},
	}
}

func instanceOf(m *v1.VirtualMachine, phase v1.Phase) *v1.VirtualMachineInstance {
	i := newInstance(m)
	i.UID, i.Status.Phase = "vmi", phase
	return i
}

// What becomes of an instance, by strategy: absent, running, ended by its guest, failed and failed before.
func TestDecide(t *testing.T) {
	for strategy, want := range map[v1.RunStrategy][5]Verdict{
		v1.Always:         {Create, Leave, Delete, Record, Delete},
		v1.RerunOnFailure: {Create, Leave, Leave, Record, Delete},
		v1.Halted:         {Leave, Delete, Delete, Delete, Delete},
		v1.Manual:         {Leave, Leave, Leave, Leave, Leave},
	} {
		m := newMachine(strategy)
		recorded := newMachine(strategy)
		recorded.Status.StartFailure = &v1.StartFailure{LastFailedVMIUID: "vmi", RetryAfterTimestamp: &metav1.Time{Time: noon.Add(7 * time.Second)}}
		for n, c := range []struct {
			m *v1.VirtualMachine
			i *v1.VirtualMachineInstance
		}{
			{m, nil},
			{m, instanceOf(m, v1.Running)},
			{m, instanceOf(m, v1.Succeeded)},
			{m, instanceOf(m, v1.Failed)},
			{recorded, instanceOf(m, v1.Failed)},
		} {
			do, wait := Decide(c.m, c.i, noon)
			assert.Equal(t, want[n], do, "%s, case %d", strategy, n)
			assert.Zero(t, wait)
		}

		// After a failure the next one waits.
		do, wait := Decide(recorded, nil, noon)
		assert.Equal(t, Leave, do)
		if isRestarting(strategy) {
			assert.Equal(t, 7*time.Second, wait)
			do, _ = Decide(recorded, nil, noon.Add(7*time.Second))
			assert.Equal(t, Create, do)
		}

		for _, phase := range []v1.Phase{"", v1.Pending, v1.Scheduling, v1.Scheduled, v1.Running, v1.Succeeded, v1.Failed} {
			foreign := instanceOf(m, phase)
			foreign.OwnerReferences = nil
			do, _ := Decide(m, foreign, noon)
			assert.Equal(t, Refuse, do)

			ending := instanceOf(m, phase)
			ending.DeletionTimestamp = &metav1.Time{Time: noon}
			do, _ = Decide(m, ending, noon)
			assert.Equal(t, Leave, do)

			gone := newMachine(strategy)
			gone.DeletionTimestamp = &metav1.Time{Time: noon}
			do, _ = Decide(gone, instanceOf(m, phase), noon)
			assert.Equal(t, Leave, do)
		}
	}
}

func TestPausesGrow(t *testing.T) {
	m := newMachine(v1.Always)
	i := instanceOf(m, v1.Failed)
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300, 300} {
		m.Status.StartFailure = nextFailure(m, i, noon)
		assert.Equal(t, want*time.Second, m.Status.StartFailure.RetryAfterTimestamp.Sub(noon))
	}
	assert.Equal(t, 8, m.Status.StartFailure.ConsecutiveFailCount)
	m.Status.StartFailure.ConsecutiveFailCount = 1 << 40
	assert.Equal(t, 5*time.Minute, nextFailure(m, i, noon).RetryAfterTimestamp.Sub(noon))
}

func TestDescribeMachine(t *testing.T) {
	ready := func(i *v1.VirtualMachineInstance, reason, message string) *v1.VirtualMachineInstance {
		i.Status.Conditions = []metav1.Condition{newCondition(v1.ConditionReady, reason == v1.ReasonReady, reason, message, 1)}
		return i
	}
	always, halted := newMachine(v1.Always), newMachine(v1.Halted)
	for _, c := range []struct {
		m       *v1.VirtualMachine
		i       *v1.VirtualMachineInstance
		wrong   *problem
		status  string
		reason  string
		isReady bool
	}{
		{m: halted, status: "Stopped", reason: "VMINotExists"},
		{m: always, status: "Starting", reason: "VMINotExists"},
		{m: always, i: instanceOf(always, ""), status: "Starting", reason: "GuestNotRunning"},
		{m: always, i: ready(instanceOf(always, v1.Scheduling), v1.ReasonUnschedulable, "m"), status: "ErrorUnschedulable", reason: "Unschedulable"},
		{m: always, i: ready(instanceOf(always, v1.Pending), v1.ReasonClaim, "m"), status: "ErrorPvcNotFound", reason: "ClaimUnusable"},
		{m: always, i: ready(instanceOf(always, v1.Running), v1.ReasonReady, "m"), status: "Running", reason: "Ready", isReady: true},
		{m: halted, i: ready(instanceOf(halted, v1.Running), v1.ReasonReady, "m"), status: "Stopping", reason: "Ready", isReady: true},
		{m: always, i: ready(instanceOf(always, v1.Failed), v1.ReasonFailed, "m"), status: "CrashLoopBackOff", reason: "CrashLoopBackOff"},
		{m: halted, i: ready(instanceOf(halted, v1.Succeeded), v1.ReasonEnded, "m"), status: "Stopped", reason: "PodEnded"},
		{m: always, wrong: &problem{"Refused", "m"}, status: "Error", reason: "Refused"},
	} {
		m := c.m.DeepCopy()
		DescribeMachine(m, c.i, c.wrong, noon)
		assert.Equal(t, c.status, m.Status.PrintableStatus, "%+v", c)
		assert.Equal(t, c.isReady, m.Status.Ready)
		assert.Equal(t, c.i != nil, m.Status.Created)
		assert.Equal(t, c.reason, m.Status.Conditions[len(m.Status.Conditions)-1].Reason)
	}

	// What failed is told until the next one is there.
	m := always.DeepCopy()
	failed := ready(instanceOf(m, v1.Failed), v1.ReasonFailed, "disk0 is broken")
	m.Status.StartFailure = nextFailure(m, failed, noon)
	DescribeMachine(m, failed, nil, noon)
	DescribeMachine(m, nil, nil, noon.Add(time.Second))
	assert.Equal(t, "disk0 is broken; the next instance is started at 2026-11-20T12:00:10Z", m.Status.Conditions[0].Message)
	assert.Equal(t, "CrashLoopBackOff", m.Status.PrintableStatus)
	DescribeMachine(m, nil, nil, noon.Add(time.Minute))
	assert.Equal(t, "its instance is being created", m.Status.Conditions[0].Message)

	gone := always.DeepCopy()
	gone.DeletionTimestamp = ptr.To(metav1.NewTime(noon))
	DescribeMachine(gone, nil, nil, noon)
	assert.Equal(t, "Terminating", gone.Status.PrintableStatus)
}
