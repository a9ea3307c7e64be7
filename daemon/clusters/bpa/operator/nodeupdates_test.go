package operator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/nodeupdate"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/remote"
	"firstlight.dev/firstlight/daemon/engine/remote/sshtest"
)

// updateFixture is an installed cluster of the nodes m, w and x, whose API is the appliance's own, and whose machines are
// real enough to be logged in to.
type updateFixture struct {
	*fixture
	updates  *NodeUpdates
	machines map[string]*sshtest.Node
	silent   bool // the cluster's API does not answer
}

// newUpdateFixture has jq on every node, which is outdated, and a kernel that came to x since it started.
func newUpdateFixture(t *testing.T, r *fixture) *updateFixture {
	key, machines := r.access(), r.machines(3)
	r.installed("edge", "masters:\n- m: {cpu: 1}\nworkers:\n- w: {cpu: 2}\n- x: {cpu: 3}")
	f := &updateFixture{fixture: r, machines: map[string]*sshtest.Node{}}
	known := map[netip.Addr]string{}
	for i, name := range []string{"m", "w", "x"} {
		f.machines[name] = machines[i]
		machines[i].AuthorizeKey(key)
		machines[i].Put("has/jq", "1.6\n")
		known[netip.MustParseAddr(machines[i].Addr)] = machines[i].HostKey()
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		require.NoError(t, r.api.Create(t.Context(), o))
	}
	f.machines["x"].Put("new-kernel", "vmlinuz-7\n")
	require.NoError(t, r.clusterDir("edge").write(contract.FileKnownHosts, remote.KnownHosts(known), 0o644))
	f.startKubelets()
	f.restart()
	return f
}

// restart is another operator, which remembers nothing.
func (f *updateFixture) restart() {
	f.updates = &NodeUpdates{
		Config: f.Config, Client: f.Client, Reader: f.Reader, Recorder: recorder{f.fixture}, Now: f.Now,
		Connect: func([]byte) (Workload, error) {
			if f.silent {
				return Workload{}, errors.New("connection refused")
			}
			return Workload{Client: f.guardWorkload(), Minor: 36}, nil
		},
	}
}

// guardWorkload is the API of the cluster; a crash may come before each write.
func (f *updateFixture) guardWorkload() client.Client {
	return interceptor.NewClient(watchless{f.api}, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := f.write(); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
}

// startKubelets has the Nodes be Ready, of the boot that their machines are in, and pods that were told to go be gone.
func (f *updateFixture) startKubelets() {
	for name, m := range f.machines {
		o := f.node(name)
		o.Status.NodeInfo.BootID, o.Status.NodeInfo.KubeletVersion = m.Get("boot"), "v1.36.3"
		o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		require.NoError(f.t, f.api.Status().Update(f.t.Context(), o))
	}
	var pods corev1.PodList
	require.NoError(f.t, f.api.List(f.t.Context(), &pods, client.InNamespace("default")))
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp != nil {
			err := f.api.Delete(f.t.Context(), &pods.Items[i], client.GracePeriodSeconds(0))
			require.NoError(f.t, client.IgnoreNotFound(err))
		}
	}
}

func (f *updateFixture) node(name string) *corev1.Node {
	f.t.Helper()
	o := &corev1.Node{}
	require.NoError(f.t, f.api.Get(f.t.Context(), client.ObjectKey{Name: name}, o))
	return o
}

// pod makes one that runs on a node; owner is the kind of its controller, "" if it has none.
func (f *updateFixture) pod(name, node, owner string) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName:        node,
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: "c", Image: "i", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		},
	}
	if owner != "" {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: "o", UID: "o", Controller: ptr.To(true)}}
	}
	require.NoError(f.t, f.api.Create(f.t.Context(), p))
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	require.NoError(f.t, f.api.Status().Update(f.t.Context(), p))
}

func updateText(name, spec string) string {
	return fmt.Sprintf("apiVersion: bpa.akraino.org/v1alpha1\nkind: NodeUpdate\nmetadata: {name: %s, labels: {cluster: edge}}\nspec: {%s}\n", name, spec)
}

// look reconciles once, and returns how the NodeUpdate stands.
func (f *updateFixture) look(name string) *v1alpha1.NodeUpdate {
	f.t.Helper()
	key := types.NamespacedName{Namespace: "default", Name: name}
	_, err := f.updates.Reconcile(f.t.Context(), reconcile.Request{NamespacedName: key})
	require.True(f.t, err == nil || errors.Is(err, errKilled) || isRace(err), "%v", err)
	if errors.Is(err, errKilled) {
		f.restart()
	}
	o := &v1alpha1.NodeUpdate{}
	require.NoError(f.t, client.IgnoreNotFound(f.api.Get(f.t.Context(), client.ObjectKey(key), o)))
	return o
}

// until looks until a NodeUpdate is in a phase; kubelets do their work in between.
func (f *updateFixture) until(name, phase string) *v1alpha1.NodeUpdate {
	f.t.Helper()
	var o *v1alpha1.NodeUpdate
	for range 60 {
		if o = f.look(name); o.Status.Phase == phase {
			return o
		}
		f.startKubelets()
		if o.Status.Next != nil {
			f.now = o.Status.Next.Time
		}
	}
	require.Fail(f.t, "never "+phase, "%s %s", o.Status.Phase, o.Status.Message)
	return nil
}

// work is what was done on the machines, counted.
func (f *updateFixture) work() string {
	var all []string
	for _, name := range []string{"m", "w", "x"} {
		m, o := f.machines[name], f.node(name)
		all = append(all, fmt.Sprintf("%s: jq %s, %d installed, %d restarts, closed %t, marked %t", name, m.Get("has/jq"), m.InstallCount(),
			strings.Count(m.Get("log"), "reboot"), o.Spec.Unschedulable, o.Annotations[v1alpha1.AnnotationUpdating] != ""))
	}
	return strings.Join(all, "\n")
}

const workDone = `m: jq 1.7, 1 installed, 0 restarts, closed false, marked false
w: jq 1.7, 1 installed, 0 restarts, closed true, marked false
x: jq 1.7, 1 installed, 1 restarts, closed false, marked false`

// testNodeUpdate: a control plane, a worker that somebody cordoned, and one with a new kernel get what is newer, in this
// order, and nothing twice.
func testNodeUpdate(t *testing.T, r *fixture) {
	f := newUpdateFixture(t, r)
	require.NoError(t, patchNode(t.Context(), r.api, "w", func(o *corev1.Node) { o.Spec.Unschedulable = true }))
	f.pod("web", "x", "ReplicaSet")
	r.apply(updateText("november", ""))
	o := f.until("november", v1alpha1.PhaseReady)
	assert.Equal(t, workDone, f.work())
	assert.Equal(t, "3/3", o.Status.NodesReady)
	assert.Equal(t, "all 3 nodes are up to date", o.Status.Message)
	for _, n := range o.Status.Nodes {
		assert.Equal(t, v1alpha1.NodeUpToDate, n.Phase)
		assert.Equal(t, []v1alpha1.PackageChange{{Name: "jq", Before: "1.6", After: "1.7"}}, n.Packages)
		assert.NotNil(t, n.Updated, n.Name)
		assert.Equal(t, "v1.36.3", n.Version, n.Name)
	}
	assert.True(t, o.Status.Nodes[0].ControlPlane)
	ready := o.Status.Conditions[0]
	assert.Equal(t, metav1.ConditionTrue, ready.Status)
	assert.Equal(t, nodeupdate.ReasonUpToDate, ready.Reason)
	err := r.api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "web"}, &corev1.Pod{})
	assert.True(t, apierrors.IsNotFound(err), "its pod was not evicted")
	for _, event := range []string{
		"Normal Outdated node w: gets jq 1.7", "Normal Outdated node x: gets jq 1.7, then restarts",
		"Normal Draining node m: taking it out of service", "Normal Installing node x: installing jq 1.7",
		"Normal Rebooting node x: restarting", "Normal UpToDate node x", "Normal UpToDate all 3 nodes are up to date",
	} {
		r.said(event)
	}

	// For a while nobody is asked; after it what is newer by then comes.
	f.machines["w"].Put("repo/jq", "1.8\n1.7\n")
	o = f.look("november")
	assert.Equal(t, v1alpha1.PhaseReady, o.Status.Phase)
	r.now = r.now.Add(factsTime)
	o = f.look("november")
	assert.Equal(t, v1alpha1.PhaseUpdating, o.Status.Phase)
	o = f.until("november", v1alpha1.PhaseReady)
	assert.Equal(t, []v1alpha1.PackageChange{{Name: "jq", Before: "1.7", After: "1.8"}}, o.Status.Nodes[1].Packages)

	// A restart that is asked for takes place once.
	r.apply(updateText("november", "packages: [{jq: {version: '1.7'}}], reboot: Always"))
	f.until("november", v1alpha1.PhaseUpdating)
	f.until("november", v1alpha1.PhaseReady)
	r.now = r.now.Add(factsTime)
	f.look("november")
	f.look("november")
	assert.Equal(t, strings.NewReplacer("0 restarts", "1 restarts", "1 restarts", "2 restarts", "w: jq 1.7, 1", "w: jq 1.7, 3").Replace(workDone), f.work())
}

// testNodeUpdateKilledAtEveryWrite: the operator is killed before its first write, then before its second, and so on, to
// its own API and to the cluster's. Each time all ends as if it had never been killed.
func testNodeUpdateKilledAtEveryWrite(t *testing.T, r *fixture) {
	f := newUpdateFixture(t, r)
	total, stride := 0, 1
	if r.real == nil {
		stride = 5 // the fake is for seconds
	}
	for at := 0; at <= total; at += stride {
		name := fmt.Sprintf("killed-%d", at)
		for _, m := range f.machines {
			m.Put("has/jq", "1.6\n")
			m.Put("log", "")
		}
		f.machines["x"].Put("new-kernel", "vmlinuz-7\n")
		f.startKubelets()
		f.restart()
		writes := 0
		r.fatal = func() error {
			if writes++; writes == at {
				return fmt.Errorf("before write %d: %w", at, errKilled)
			}
			return nil
		}
		r.apply(updateText(name, ""))
		o := f.until(name, v1alpha1.PhaseReady)
		assert.Equal(t, strings.Replace(workDone, "closed true", "closed false", 1), f.work(), "killed before write %d", at)
		assert.Equal(t, []v1alpha1.PackageChange{{Name: "jq", Before: "1.6", After: "1.7"}}, o.Status.Nodes[0].Packages)
		if at == 0 {
			total = writes
			require.Greater(t, total, 15, "there was little to be killed at")
		}

		r.fatal = nil
		require.NoError(t, r.api.Delete(t.Context(), o))
		f.look(name)
	}
	t.Logf("killed at %d of %d writes", total/stride, total)
}

// testNodeUpdateFailures: each stops everything, says what to do, and is continued when that was done.
func testNodeUpdateFailures(t *testing.T, r *fixture) {
	f := newUpdateFixture(t, r)
	failed := func(says string) *v1alpha1.NodeUpdate {
		t.Helper()
		var o *v1alpha1.NodeUpdate
		for range 60 {
			o = f.look("november")
			if o.Status.Phase == v1alpha1.PhaseFailed && strings.Contains(o.Status.Message, says) {
				return o
			}
			f.startKubelets()
			if o.Status.Next != nil {
				r.now = o.Status.Next.Time
			}
		}
		require.Fail(t, "never said: "+says, o.Status.Message)
		return nil
	}
	r.apply(updateText("november", ""))
	f.pod("bare", "m", "")
	failed("node m: pod default/bare has no controller that would make it again; delete it, or give it one; no other node is begun with; 0 of 3 nodes are up to date")
	assert.False(t, f.node("m").Spec.Unschedulable, "it is out of service though it cannot be drained")
	r.said("Warning PodsNotMovable node m: pod default/bare")
	require.NoError(t, r.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bare"}}, client.GracePeriodSeconds(0)))

	f.machines["m"].Put("broken", "")
	o := failed("node m: jq: not installed: Unable to correct problems, you have held broken packages.; see /var/log/apt on it")
	assert.Equal(t, v1alpha1.NodeUpdateFailed, o.Status.Nodes[0].Phase)
	assert.Equal(t, v1alpha1.NodeOutdated, o.Status.Nodes[1].Phase)
	assert.NotNil(t, o.Status.Next)
	require.NoError(t, os.Remove(filepath.Join(f.machines["m"].Dir, "broken")))
	f.machines["m"].Put("half/jq", "1.7\n") // and then its power was cut

	if r.real != nil { // the fake evicts whatever a budget says
		f.pod("web", "w", "ReplicaSet")
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		}}
		require.NoError(t, r.api.Create(t.Context(), budget))
		budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1}
		require.NoError(t, r.api.Status().Update(t.Context(), budget))
		for range 20 {
			f.look("november")
			f.startKubelets()
			if n := f.node("w"); n.Spec.Unschedulable {
				break
			}
			r.now = r.now.Add(kud.RetryDelay(20))
		}
		f.look("november")
		assert.Contains(t, f.look("november").Status.Message, "node w: draining: 1 pods are still there: pod default/web: The disruption budget web needs 1 healthy pods and has 1 currently")
		r.now = r.now.Add(time.Hour)
		failed("node w: 1 pods are still there after 10m0s: pod default/web: The disruption budget web needs 1")
		require.NoError(t, r.api.Delete(t.Context(), budget))
	}

	f.machines["x"].Put("stuck", "")
	for range 30 {
		f.look("november")
		f.startKubelets()
		r.now = r.now.Add(time.Minute)
	}
	failed("node x: was told to restart at ")
	require.NoError(t, os.Remove(filepath.Join(f.machines["x"].Dir, "stuck")))
	o = f.until("november", v1alpha1.PhaseReady)
	assert.Zero(t, o.Status.Attempt)
	assert.Equal(t, []v1alpha1.PackageChange{{Name: "jq", Before: "1.6", After: "1.7"}}, o.Status.Nodes[0].Packages, "what it was before is forgotten")
	assert.Equal(t, 2, f.machines["m"].InstallCount(), "once while it was broken")
}
