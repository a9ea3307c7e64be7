package metal3provider

import (
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/choice"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

func TestNextRemedy(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	running := func(p patient) patient {
		p.status.Phase, p.status.LastRemediated, p.wanted = v1beta2.PhaseRunning, &metav1.Time{Time: began}, true
		if p.now.IsZero() {
			p.now = began
		}
		return p
	}
	waiting := func(p patient) patient { p = running(p); p.status.Phase = v1beta2.PhaseWaiting; return p }
	late := began.Add(remedyTimeout)
	once := v1beta2.Metal3RemediationStatus{RetryCount: 1}
	for _, c := range []struct {
		name string
		p    patient
		want remedy
	}{
		{"a host that somebody switched off", patient{}, remedyRefuse},
		{"the first look", patient{wanted: true}, remedyBegin},
		{"it is on", running(patient{powered: true}), remedyHold},
		{"it is being switched off", running(patient{powered: true, held: true}), remedyNone},
		{"it is off", running(patient{held: true, reachable: true}), remedyTaint},
		{"pods are being deleted", running(patient{held: true, reachable: true, tainted: true, busy: true}), remedyNone},
		{"pods are gone", running(patient{held: true, reachable: true, tainted: true}), remedyLetGo},
		{"the API of the cluster is away", running(patient{held: true}), remedyLetGo},
		{"it may be on", waiting(patient{held: true}), remedySwitch},
		{"it starts", waiting(patient{powered: true, reachable: true, tainted: true}), remedyNone},
		{"it is back", waiting(patient{powered: true, reachable: true, tainted: true, ready: true}), remedyUntaint},
		{"it took too long", waiting(patient{powered: true, now: late}), remedyRetry},
		{"it does not go off", running(patient{powered: true, held: true, now: late}), remedyRetry},
		{"it took too long again", waiting(patient{powered: true, now: late, status: once}), remedyGiveUp},
		{"more tries are allowed", waiting(patient{now: late, status: once, strategy: v1beta2.RemediationStrategy{RetryLimit: 2}}), remedyRetry},
		{"more time is allowed", waiting(patient{now: late, strategy: v1beta2.RemediationStrategy{TimeoutSeconds: 601}}), remedyNone},
		{"it was given up", patient{status: v1beta2.Metal3RemediationStatus{Phase: v1beta2.PhaseDeleting}, now: late}, remedyNone},
	} {
		assert.Equal(t, c.want, nextRemedy(c.p), c.name)
	}
}

// remediate is a MachineHealthCheck that found a machine unhealthy.
func (r *fixture) remediate(name string) *remediation {
	r.t.Helper()
	owner := &clusterv1.Machine{}
	r.get(name, owner)
	changeStatus(r, name, owner, func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "node-" + name })
	m := &remediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, clusterv1.GroupVersion.WithKind("Machine"))},
	}}
	m.Spec.Strategy = &v1beta2.RemediationStrategy{Type: "Reboot", RetryLimit: 1, TimeoutSeconds: 600}
	require.NoError(r.t, r.api.Create(r.t.Context(), m))
	return m
}

// power switches hosts as the operator of hosts does, and kubelets say what that makes of their Nodes.
func (r *fixture) power(ready bool) func() {
	return func() {
		for _, h := range r.hosts() {
			_, off := h.Annotations[rebootPrefix+string(r.remediation("cp0").UID)]
			changeStatus(r, h.Name, &host{}, func(h *host) { h.Status.PoweredOn = !off })
			n := r.node("node-cp0")
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
			if ready && !off {
				n.Status.Conditions[0].Status = corev1.ConditionTrue
			}
			require.NoError(r.t, r.nodes.Status().Update(r.t.Context(), n))
		}
	}
}

func (r *fixture) remediation(name string) *remediation {
	m := &remediation{}
	r.get(name, m)
	return m
}

func (r *fixture) node(name string) *corev1.Node {
	n := &corev1.Node{}
	require.NoError(r.t, r.nodes.Get(r.t.Context(), types.NamespacedName{Name: name}, n))
	return n
}

// testRemediation: a host is switched off, its Node emptied, and both come back; the provider is killed at random.
func testRemediation(t *testing.T, r *fixture) {
	r.addHost("host-1")
	r.install("edge", "cp0")
	r.remediate("cp0")
	power := r.power(true)
	power()
	r.killRandomly(2, 1)

	sawOff, sawOut := false, false
	r.until("the host was off and is back", func() bool {
		h, n := r.host("host-1"), r.node("node-cp0")
		sawOff = sawOff || !h.Status.PoweredOn
		sawOut = sawOut || isOutOfService(n)
		if isOutOfService(n) {
			assert.True(t, sawOff, "the Node is emptied while its host is on")
		}
		return sawOut && h.Status.PoweredOn && !isOutOfService(n)
	}, power)
	m := r.remediation("cp0")
	assert.Equal(t, v1beta2.PhaseWaiting, m.Status.Phase)
	assert.Zero(t, m.Status.RetryCount)
	assert.NotNil(t, r.host("host-1").Spec.Image)

	require.NoError(t, r.api.Delete(t.Context(), m))
	r.until("it is gone", func() bool { return r.isGone("cp0", &remediation{}) })
	assert.NotContains(t, r.host("host-1").Annotations, rebootKey(m))
}

// testRemediationGivesUp: if the Node does not come back in time, twice, the Machine's owner is told to replace it, and
// the host is not chosen again.
func testRemediationGivesUp(t *testing.T, r *fixture) {
	r.addHost("host-1")
	r.install("edge", "cp0")
	r.remediate("cp0")
	power := r.power(false)
	power()
	for range 2 {
		r.until("the host is on again", func() bool {
			m := r.remediation("cp0")
			_, held := r.host("host-1").Annotations[rebootKey(m)]
			return m.Status.Phase == v1beta2.PhaseWaiting && !held && r.host("host-1").Status.PoweredOn
		}, power)
		changeStatus(r, "cp0", &remediation{}, func(m *remediation) {
			m.Status.LastRemediated = &metav1.Time{Time: time.Now().Add(-time.Hour)}
		})
		r.round()
	}
	r.until("it is given up", func() bool { return r.remediation("cp0").Status.Phase == v1beta2.PhaseDeleting }, power)
	assert.EqualValues(t, 1, r.remediation("cp0").Status.RetryCount)
	assert.Contains(t, r.host("host-1").Annotations, choice.AnnotationUnhealthy)
	owner := &clusterv1.Machine{}
	r.get("cp0", owner)
	c := meta.FindStatusCondition(owner.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
	require.NotNil(t, c)
	assert.Equal(t, metav1.ConditionFalse, c.Status)

	// Cluster API replaces the Machine: its host is released, and stays free.
	require.NoError(t, r.api.Delete(t.Context(), r.remediation("cp0")))
	r.deleteMachine("cp0")
	r.until("the machine is gone", func() bool { return r.isGone("cp0", &machine{}) }, r.operate)
	r.operate()
	r.addMachine("edge", "cp1")
	r.bootstrap("cp1")
	for range 5 {
		r.round()
	}
	assert.Empty(t, hostName(r.machine("cp1")))
	assert.Equal(t, metal3api.StateAvailable, r.host("host-1").Status.Provisioning.State)
}
