package machines

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/addons/machines/launcher"
	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
)

// cluster is one whose API ends after so many writes, as if the controller were killed there. Its garbage collector and
// its kubelet do what they are told to.
type cluster struct {
	client.WithWatch
	t      *testing.T
	now    time.Time
	born   int      // objects that got a UID
	left   int      // writes of the controller that are still done; negative: all
	writes []string // what the controller wrote
	refuse error    // what a creation of pods ends with
}

var key = client.ObjectKey{Namespace: "default", Name: "web"}

var errKilled = errors.New("killed")

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme, err := Scheme()
	require.NoError(t, err)
	c := &cluster{t: t, now: noon, left: -1}
	c.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1.VirtualMachine{}, &v1.VirtualMachineInstance{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, to client.WithWatch, o client.Object, options ...client.CreateOption) error {
				if _, isPod := o.(*corev1.Pod); isPod && c.refuse != nil {
					return c.refuse
				}
				return c.write("create", o, func() error {
					c.born++
					o.SetUID(types.UID(fmt.Sprintf("uid-%d", c.born)))
					return to.Create(ctx, o, options...)
				})
			},
			Delete: func(ctx context.Context, to client.WithWatch, o client.Object, options ...client.DeleteOption) error {
				return c.write("delete", o, func() error { return to.Delete(ctx, o, options...) })
			},
			SubResourcePatch: func(
				ctx context.Context, to client.Client, name string, o client.Object, p client.Patch,
				options ...client.SubResourcePatchOption,
			) error {
				return c.write(name, o, func() error { return to.SubResource(name).Patch(ctx, o, p, options...) })
			},
		}).Build()
	return c
}

func (c *cluster) write(verb string, o client.Object, do func() error) error {
	if c.left == 0 {
		return errKilled
	}
	c.left--
	kind := fmt.Sprintf("%T", o)
	c.writes = append(c.writes, verb+" "+kind[strings.LastIndex(kind, ".")+1:])
	return do()
}

// reconcile lets new controllers do a round each, and the garbage collector one.
func (c *cluster) reconcile() error {
	log := slog.New(slog.DiscardHandler)
	request := reconcile.Request{NamespacedName: key}
	m := &Machines{Client: c, Recorder: events.NewFakeRecorder(100), Now: func() time.Time { return c.now }, Log: log}
	_, err := m.Reconcile(c.t.Context(), request)
	i := &Instances{Client: c, Reader: c, Recorder: events.NewFakeRecorder(100), Image: "machines:v0", Log: log}
	_, err2 := i.Reconcile(c.t.Context(), request)
	c.collectGarbage()
	return errors.Join(err, err2)
}

// settle reconciles until nothing is written any more.
func (c *cluster) settle() {
	c.t.Helper()
	c.left = -1
	for range 20 {
		c.writes = nil
		require.NoError(c.t, c.reconcile())
		if len(c.writes) == 0 {
			return
		}
	}
	require.Fail(c.t, "it does not settle", "%v", c.writes)
}

// collectGarbage deletes pods whose instance is gone.
func (c *cluster) collectGarbage() {
	for _, p := range c.pods() {
		i := c.instance()
		if i == nil || !metav1.IsControlledBy(&p, i) {
			left, writes := c.left, c.writes
			c.left = -1
			require.NoError(c.t, c.Delete(c.t.Context(), &p))
			c.left, c.writes = left, writes
		}
	}
}

func (c *cluster) pods() []corev1.Pod {
	var pods corev1.PodList
	require.NoError(c.t, c.List(c.t.Context(), &pods))
	return pods.Items
}

// instance is that of the name; nil if there is none.
func (c *cluster) instance() *v1.VirtualMachineInstance {
	i := &v1.VirtualMachineInstance{}
	err := c.Get(c.t.Context(), key, i)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(c.t, err)
	return i
}

func (c *cluster) machine() *v1.VirtualMachine {
	m := &v1.VirtualMachine{}
	require.NoError(c.t, c.Get(c.t.Context(), key, m))
	return m
}

// become says what became of the one pod.
func (c *cluster) become(phase corev1.PodPhase, message string) {
	c.t.Helper()
	pods := c.pods()
	require.Len(c.t, pods, 1)
	p := &pods[0]
	p.Spec.NodeName = "node-1"
	require.NoError(c.t, c.Update(c.t.Context(), p))
	p.Status.Phase = phase
	p.Status.PodIP = "10.244.0.7"
	ready := corev1.ConditionFalse
	if phase == corev1.PodRunning {
		ready = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	if message != "" {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}},
		}}
	}
	require.NoError(c.t, c.SubResource("status").Update(c.t.Context(), p))
}

func readMachine(t *testing.T, strategy v1.RunStrategy, spec string) *v1.VirtualMachine {
	m := newMachine(strategy)
	m.Spec.Template = v1.Template{
		Metadata: v1.TemplateMetadata{Labels: map[string]string{"app": "web"}}, Spec: readSpec(t, spec),
	}
	return m
}

// A machine's life: it runs, its guest crashes, it is restarted after a pause, stopped and started.
func TestAMachineIsStartedRestartedAndStopped(t *testing.T) {
	c := newCluster(t, readMachine(t, v1.Always, "domain: {memory: {guest: 64Mi}}"))
	c.settle()
	i := c.instance()
	require.NotNil(t, i)
	assert.Equal(t, map[string]string{"app": "web", "vm.kubevirt.io/name": "web"}, i.Labels)
	assert.Equal(t, v1.Scheduling, i.Status.Phase)
	assert.Equal(t, "Starting", c.machine().Status.PrintableStatus)
	first := c.pods()[0]
	assert.Equal(t, "web", first.Labels["app"], "a Service finds it")

	c.become(corev1.PodRunning, "")
	c.settle()
	assert.Equal(t, v1.Running, c.instance().Status.Phase)
	assert.Equal(t, "node-1", c.instance().Status.NodeName)
	assert.True(t, c.machine().Status.Ready)
	assert.Equal(t, "Running", c.machine().Status.PrintableStatus)

	c.become(corev1.PodFailed, "QEMU ended (exit status 1): no")
	c.settle()
	assert.Nil(t, c.instance())
	assert.Empty(t, c.pods())
	m := c.machine()
	assert.Equal(t, "CrashLoopBackOff", m.Status.PrintableStatus)
	assert.Equal(t, "QEMU ended (exit status 1): no; the next instance is started at 2026-11-20T12:00:10Z",
		meta.FindStatusCondition(m.Status.Conditions, "Ready").Message)

	c.now = noon.Add(10 * time.Second)
	c.settle()
	require.Len(t, c.pods(), 1)
	assert.NotEqual(t, first.Name, c.pods()[0].Name)
	c.become(corev1.PodRunning, "")
	c.settle()
	assert.Nil(t, c.machine().Status.StartFailure, "it runs")

	m = c.machine()
	m.Spec.RunStrategy = v1.Halted
	require.NoError(t, c.Update(t.Context(), m))
	c.settle()
	assert.Nil(t, c.instance())
	assert.Equal(t, "Stopped", c.machine().Status.PrintableStatus)
	assert.False(t, c.machine().Status.Ready)

	m = c.machine()
	m.Spec.RunStrategy = v1.RerunOnFailure
	require.NoError(t, c.Update(t.Context(), m))
	c.settle()
	c.become(corev1.PodSucceeded, "")
	c.settle()
	assert.Equal(t, v1.Succeeded, c.instance().Status.Phase, "its guest powered it down")
	assert.Equal(t, "Stopped", c.machine().Status.PrintableStatus)
}

// The controller is killed after each of its writes, in each step of a machine's life. There is never a second pod, and
// the end is the same.
func TestKilledAnywhereTheEndIsTheSame(t *testing.T) {
	for kill := 0; ; kill++ {
		c := newCluster(t, readMachine(t, v1.Always, "domain: {memory: {guest: 64Mi}}"))
		killed := false
		step := func(after int) int {
			c.left = after
			for range 10 {
				if err := c.reconcile(); err != nil {
					require.ErrorIs(t, err, errKilled)
					killed = true
					break
				}
				assert.LessOrEqual(t, len(c.pods()), 1)
			}
			left := c.left
			c.settle()
			assert.LessOrEqual(t, len(c.pods()), 1)
			return max(left, 0)
		}

		left := step(kill)
		if !killed {
			c.become(corev1.PodRunning, "")
			left = step(left)
		} else {
			c.become(corev1.PodRunning, "")
			c.settle()
		}
		c.become(corev1.PodFailed, "no")
		if !killed {
			step(left)
		} else {
			c.settle()
		}

		assert.Equal(t, 1, c.machine().Status.StartFailure.ConsecutiveFailCount, "kill %d: it failed once", kill)
		c.now = noon.Add(time.Minute)
		c.settle()
		c.become(corev1.PodRunning, "")
		c.settle()
		assert.Equal(t, "Running", c.machine().Status.PrintableStatus, "kill %d", kill)
		assert.Equal(t, v1.Running, c.instance().Status.Phase)
		require.Len(t, c.pods(), 1)
		if !killed {
			require.Greater(t, kill, 6, "it wrote less than it must")
			return
		}
	}
}

func readyOf(i *v1.VirtualMachineInstance) string {
	c := meta.FindStatusCondition(i.Status.Conditions, v1.ConditionReady)
	return c.Reason + ": " + c.Message
}

// What an instance waits for is said in its status, and it goes on when that is there.
func TestAnInstanceSaysWhatItWaitsFor(t *testing.T) {
	i := readInstance(t, `
domain: {memory: {guest: 64Mi}, devices: {disks: [{name: a, disk: {}}]}}
volumes: [{name: a, persistentVolumeClaim: {claimName: c}}]`)
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "virt-launcher-web-old",
		Labels: map[string]string{v1.LabelApp: v1.AppLauncher, v1.LabelMachine: "web"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: "web", UID: "old", Controller: ptr.To(true),
		}},
	}}
	c := newCluster(t, i, old)
	once := func() string {
		t.Helper()
		r := &Instances{Client: c, Reader: c, Recorder: events.NewFakeRecorder(100), Image: "x", Log: slog.New(slog.DiscardHandler)}
		_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
		require.NoError(t, err)
		return readyOf(c.instance())
	}
	assert.Equal(t, "PredecessorEnds: pod virt-launcher-web-old of an earlier machine of this name has not ended", once())
	old.Status.Phase = corev1.PodSucceeded
	require.NoError(t, c.SubResource("status").Update(t.Context(), old))

	assert.Equal(t, "ClaimUnusable: PersistentVolumeClaim c does not exist; create it", once())
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeMode: ptr.To(corev1.PersistentVolumeBlock)},
	}
	require.NoError(t, c.Create(t.Context(), claim))
	assert.Equal(t, "ClaimUnusable: PersistentVolumeClaim c is a block device; use one with volumeMode: Filesystem", once())
	claim.Spec.VolumeMode = nil
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Gi")}
	require.NoError(t, c.Update(t.Context(), claim))

	c.refuse = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New("exceeded quota"))
	assert.Equal(t, `Refused: its pod is refused: pods "x" is forbidden: exceeded quota`, once())
	assert.Equal(t, v1.Pending, c.instance().Status.Phase)
	c.refuse = nil
	assert.Equal(t, "GuestNotRunning: its pod waits for a node", once())
	pod := &corev1.Pod{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: PodName(i)}, pod))
	assert.Contains(t, pod.Annotations[label.Instance], fmt.Sprintf(`"claims":{"a":%d}`, 3<<30))

	require.NoError(t, c.Delete(t.Context(), pod))
	assert.Equal(t, "PodGone: its pod was removed by somebody", once())
	assert.Equal(t, v1.Failed, c.instance().Status.Phase)
	assert.Equal(t, "PodGone: its pod was removed by somebody", once(), "the end stays")
}

// What is wrong with a machine is said before it runs, and one that is stopped can still be.
func TestAMachineThatCannotBeSaysWhy(t *testing.T) {
	m := readMachine(t, v1.Halted, "domain: {}")
	foreign := readInstance(t, "domain: {memory: {guest: 64Mi}}")
	c := newCluster(t, m, foreign)
	c.settle()
	failure := func() string {
		return meta.FindStatusCondition(c.machine().Status.Conditions, v1.ConditionFailure).Message
	}
	assert.Equal(t, "VirtualMachineInstance web exists and was not made by this machine; delete it or rename the machine", failure())
	require.NoError(t, c.Delete(t.Context(), c.instance()))
	c.settle()
	assert.Equal(t, "spec.template.spec: domain.memory.guest: a guest has at least 16Mi; set it", failure())
	assert.Equal(t, "Error", c.machine().Status.PrintableStatus)

	m = c.machine()
	m.Spec.RunStrategy = v1.Always
	require.NoError(t, c.Update(t.Context(), m))
	c.settle()
	assert.Nil(t, c.instance())
	m = c.machine()
	m.Spec.Template.Spec.Domain.Memory = &v1.Memory{Guest: ptr.To(resource.MustParse("64Mi"))}
	require.NoError(t, c.Update(t.Context(), m))
	c.settle()
	assert.NotNil(t, c.instance())
	assert.Nil(t, meta.FindStatusCondition(c.machine().Status.Conditions, v1.ConditionFailure))

	unknown := readMachine(t, v1.Always, "{domain: {memory: {guest: 64Mi}}, evictionStrategy: LiveMigrate}")
	unknown.Spec.Unknown = []string{`unknown field "instancetype"`}
	unknown.Spec.Running = ptr.To(true)
	assert.Equal(t, `spec: unknown field "instancetype": it is not in the subset of KubeVirt's API that this cluster has; take it out; `+
		`spec: running and runStrategy exclude each other; take one out; `+
		`spec.template.spec: unknown field "evictionStrategy": it is not in the subset of KubeVirt's API that this cluster has; take it out`,
		checkMachine(unknown).message)
}

// A machine is accelerated where a node of its choice offers that.
func TestKVMIsAskedForWhereItIs(t *testing.T) {
	node := func(name, disk, kvm string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": disk}}}
		if kvm != "" {
			n.Status.Allocatable = corev1.ResourceList{KVMResource: resource.MustParse(kvm)}
		}
		return n
	}
	c := newCluster(t, node("a", "fast", ""), node("b", "slow", "110"), node("c", "fast", "0"))
	r := &Instances{Reader: c}
	for spec, want := range map[string]launcher.Accelerator{
		"domain: {}": launcher.KVM,
		"{domain: {}, nodeSelector: {disk: fast}}": launcher.TCG,
		"{domain: {}, nodeSelector: {disk: slow}}": launcher.KVM,
	} {
		have, err := r.chooseAccelerator(t.Context(), readInstance(t, spec))
		require.NoError(t, err)
		assert.Equal(t, want, have, spec)
	}
}
