package operator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

func (r *fixture) create(o client.Object) {
	r.t.Helper()
	if o.GetNamespace() == "" {
		o.SetNamespace("default")
	}
	require.NoError(r.t, r.api.Create(r.t.Context(), o))
}

// host makes a proven host in service: its number is in its name, MACs and addresses, it has
// n CPUs and n GiB. change is applied to what the API is given.
func (r *fixture) host(n int, change ...func(*host)) {
	r.t.Helper()
	b := &host{
		ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: fmt.Sprintf("h%d", n), Labels: map[string]string{label.Verified: "true"}},
		Spec:       metal3api.BareMetalHostSpec{BootMACAddress: mac(n, 0), Online: true},
	}
	b.Status.Provisioning.State = metal3api.StateProvisioned
	b.Status.OperationalStatus = metal3api.OperationalStatusOK
	b.Status.HardwareDetails = &metal3api.HardwareDetails{
		CPU: metal3api.CPU{Count: n, Arch: "x86_64"}, RAMMebibytes: n << 10, Hostname: b.Name,
		NIC: []metal3api.NIC{{Name: "eno1", MAC: strings.ToUpper(mac(n, 0)), IP: addr(n)}, {Name: "eno2", MAC: mac(n, 1), IP: fmt.Sprintf("10.1.0.%d", n)}},
	}
	for _, f := range change {
		f(b)
	}
	status := b.Status
	require.NoError(r.t, r.api.Create(r.t.Context(), b))
	b.Status = status
	require.NoError(r.t, r.api.Status().Update(r.t.Context(), b))
}

func mac(n, nic int) string { return fmt.Sprintf("52:54:00:00:%02x:%02x", n, nic) }
func addr(n int) string     { return fmt.Sprintf("10.0.0.%d", n) }

// apply makes or edits a resource from text, as a person would.
func (r *fixture) apply(text string) {
	r.t.Helper()
	require.NoError(r.t, r.tryApply(text))
}

func (r *fixture) tryApply(text string) error {
	u := &unstructured.Unstructured{}
	require.NoError(r.t, yaml.Unmarshal([]byte(text), &u.Object))
	if u.GetNamespace() == "" {
		u.SetNamespace("default")
	}
	have := &unstructured.Unstructured{}
	have.SetGroupVersionKind(u.GroupVersionKind())
	err := r.api.Get(r.t.Context(), client.ObjectKeyFromObject(u), have)
	if apierrors.IsNotFound(err) {
		return r.api.Create(r.t.Context(), u)
	}
	require.NoError(r.t, err)
	have.Object["spec"] = u.Object["spec"]
	have.SetLabels(u.GetLabels())
	if r.real == nil {
		have.SetGeneration(have.GetGeneration() + 1)
	}
	return r.api.Update(r.t.Context(), have)
}

// provisioning is the text of one, in the namespace default, named as its cluster.
func provisioning(name, spec string) string {
	return fmt.Sprintf("apiVersion: bpa.akraino.org/v1alpha1\nkind: Provisioning\nmetadata:\n  name: %s\n  labels: {cluster: %s}\nspec:\n  %s\n", name, name, strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  "))
}

func (r *fixture) get(name string) *v1alpha1.Provisioning {
	r.t.Helper()
	p := &v1alpha1.Provisioning{}
	require.NoError(r.t, r.api.Get(r.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, p))
	return p
}

func (r *fixture) bmh(n int) *host {
	r.t.Helper()
	b := &host{}
	require.NoError(r.t, r.api.Get(r.t.Context(), client.ObjectKey{Namespace: "metal3", Name: fmt.Sprintf("h%d", n)}, b))
	return b
}

// changeHost edits a host and its status.
func (r *fixture) changeHost(n int, change func(*host)) {
	r.t.Helper()
	b := r.bmh(n)
	change(b)
	status := b.Status
	require.NoError(r.t, r.api.Update(r.t.Context(), b))
	b.Status = status
	require.NoError(r.t, r.api.Status().Update(r.t.Context(), b))
}

// holder is who has claimed a host, and as which node.
func (r *fixture) holder(n int) string {
	c := claimOf(r.bmh(n).Spec.ConsumerRef)
	return strings.TrimSpace(c.Owner + " " + c.Node)
}

// step reconciles once.
func (r *fixture) step(name string) (reconcile.Result, error) {
	return r.Reconcile(r.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}})
}

// settle reconciles until the operator would wait, and returns what is there then.
func (r *fixture) settle(name string) *v1alpha1.Provisioning {
	r.t.Helper()
	for range 30 {
		result, err := r.step(name)
		if isRace(err) {
			continue
		}
		require.NoError(r.t, err)
		if result.RequeueAfter == 0 || result.RequeueAfter >= time.Second {
			break
		}
	}
	p := &v1alpha1.Provisioning{}
	err := r.api.Get(r.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, p)
	require.NoError(r.t, client.IgnoreNotFound(err))
	return p
}

func ready(p *v1alpha1.Provisioning) metav1.Condition {
	if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func (r *fixture) job(cluster string) *batchv1.Job {
	r.t.Helper()
	j := &batchv1.Job{}
	require.NoError(r.t, r.api.Get(r.t.Context(), client.ObjectKey{Namespace: "bpa", Name: kud.JobName(cluster)}, j))
	return j
}

// runs the installer would do, as its Job says.
func (r *fixture) run(cluster string) kud.Run {
	r.t.Helper()
	run, ours := kud.RunOf(r.job(cluster))
	require.True(r.t, ours)
	return run
}

// end ends a cluster's Job as the Job controller does: with a pod that exited with a code.
// The installer leaves a kubeconfig if that is 0.
func (r *fixture) end(cluster string, code int32, said string) {
	r.t.Helper()
	j := r.job(cluster)
	now := metav1.NewTime(r.now)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "bpa", GenerateName: j.Name + "-", Labels: map[string]string{batchv1.JobNameLabel: j.Name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "kud", Image: "x"}}, RestartPolicy: corev1.RestartPolicyNever},
	}
	if r.real == nil {
		pod.Name = fmt.Sprintf("%s-%s", j.Name, j.UID)
	}
	r.create(pod)
	pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{Name: "kud", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: said},
	}}}}
	require.NoError(r.t, r.api.Status().Update(r.t.Context(), pod))
	condition := func(kind batchv1.JobConditionType) batchv1.JobCondition {
		return batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now, LastProbeTime: now, Reason: "Test", Message: "ended"}
	}
	j.Status.StartTime = &now
	if code == 0 {
		j.Status.Conditions = []batchv1.JobCondition{condition(batchv1.JobSuccessCriteriaMet), condition(batchv1.JobComplete)}
		j.Status.Succeeded, j.Status.CompletionTime = 1, &now
		require.NoError(r.t, r.clusterDir(cluster).write(contract.FileKubeconfig, []byte(cmp.Or(r.left, "kubeconfig of "+cluster)), 0o600))
	} else {
		j.Status.Conditions = []batchv1.JobCondition{condition(batchv1.JobFailureTarget), condition(batchv1.JobFailed)}
		j.Status.Failed = 1
	}
	require.NoError(r.t, r.api.Status().Update(r.t.Context(), j))
}

// installed makes a Provisioning and takes it to Ready.
func (r *fixture) installed(name, spec string) *v1alpha1.Provisioning {
	r.t.Helper()
	r.apply(provisioning(name, spec))
	p := r.settle(name)
	require.Equal(r.t, v1alpha1.PhaseInstalling, p.Status.Phase, p.Status.Message)
	r.end(name, 0, "")
	p = r.settle(name)
	require.Equal(r.t, v1alpha1.PhaseReady, p.Status.Phase, p.Status.Message)
	return p
}

func (r *fixture) configMap(cluster string) map[string]string {
	c := &corev1.ConfigMap{}
	require.NoError(r.t, client.IgnoreNotFound(r.api.Get(r.t.Context(), client.ObjectKey{Namespace: "default", Name: configMapName(cluster)}, c)))
	return c.Data
}

func (r *fixture) file(cluster, name string) string {
	text, err := r.clusterDir(cluster).read(name)
	require.NoError(r.t, err)
	return string(text)
}

// said looks for a text in the Events.
func (r *fixture) said(text string) {
	r.t.Helper()
	assert.True(r.t, slices.ContainsFunc(r.events, func(e string) bool { return strings.Contains(e, text) }), "no Event says %q:\n%s", text, strings.Join(r.events, "\n"))
}
