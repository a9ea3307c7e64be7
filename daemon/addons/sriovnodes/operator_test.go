package sriovnodes

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
)

func TestOneNodeIsDrainedAtATime(t *testing.T) {
	may := func(NodeView) bool { return true }
	for name, c := range map[string]struct {
		nodes []NodeView
		may   func(NodeView) bool
		want  Step
	}{
		"nothing to do":  {nodes: []NodeView{{Name: "a", Status: SyncSucceeded}, {Name: "b"}}},
		"the first one":  {nodes: []NodeView{{Name: "b", BlockedBy: []string{"x/y"}}, {Name: "a", BlockedBy: []string{"x/z"}}}, want: Step{Start: "a"}},
		"one that holds": {nodes: []NodeView{{Name: "a", BlockedBy: []string{"x/y"}}, {Name: "b", BlockedBy: []string{"x/z"}}}, may: func(n NodeView) bool { return n.Name == "b" }, want: Step{Start: "b"}},
		"pods are left":  {nodes: []NodeView{{Name: "a", BlockedBy: []string{"x/y"}}, {Name: "b", Drain: wasOpen, BlockedBy: []string{"x/z"}}}, want: Step{Evict: "b"}},
		"it changes":     {nodes: []NodeView{{Name: "a", BlockedBy: []string{"x/y"}}, {Name: "b", Drain: wasOpen, Status: SyncInProgress}}},
		"it has changed": {nodes: []NodeView{{Name: "a", BlockedBy: []string{"x/y"}}, {Name: "b", Drain: wasOpen, Status: SyncSucceeded}}, want: Step{Finish: "b"}},
		"it has failed":  {nodes: []NodeView{{Name: "b", Drain: wasClosed, Status: SyncFailed}}, want: Step{Finish: "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.may == nil {
				c.may = may
			}
			assert.Equal(t, c.want, DecideDrain(c.nodes, c.may))
		})
	}
}

func TestPodsThatCannotBeEvicted(t *testing.T) {
	pod := func(controller string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "y"}}
		if controller != "" {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: controller, Name: "z", Controller: ptr.To(true)}}
		}
		return p
	}
	require.NoError(t, checkEvictable(pod("ReplicaSet")))
	assert.EqualError(t, checkEvictable(pod("")), "pod x/y has no controller that would make it again; delete it yourself")
	assert.ErrorContains(t, checkEvictable(pod("DaemonSet")), "pod x/y is of DaemonSet z, which ignores that a node is cordoned")
	static := pod("Node")
	static.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	assert.ErrorContains(t, checkEvictable(static), "pod x/y is a file of the node's kubelet")
	done := pod("")
	done.Status.Phase = corev1.PodSucceeded
	require.NoError(t, checkEvictable(done))
}

// cluster is an operator on a fake API with a node, a pod on it, and objects.
type cluster struct {
	*Operator
	t      *testing.T
	client *fake.Clientset
	events *record.FakeRecorder
}

func newCluster(t *testing.T, objects ...runtime.Object) *cluster {
	client := fake.NewClientset(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "n"}},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "web", UID: types.UID("u"), OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "r", Controller: ptr.To(true)},
			}},
			Spec: corev1.PodSpec{NodeName: "one"},
		},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "elsewhere"}, Spec: corev1.PodSpec{NodeName: "two"}},
	)
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		policies: "SriovNetworkNodePolicyList", networks: "SriovNetworkList", states: "SriovNetworkNodeStateList",
		definitions: "NetworkAttachmentDefinitionList",
	}, objects...)
	// The fake of dynamic clients knows no server-side apply.
	dynamic.PrependReactor("patch", definitions.Resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		patch := a.(clienttesting.PatchAction)
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(patch.GetPatch()); err != nil {
			return true, nil, err
		}
		err := dynamic.Tracker().Create(definitions, o, a.GetNamespace())
		if apierrors.IsAlreadyExists(err) {
			err = dynamic.Tracker().Update(definitions, o, a.GetNamespace())
		}
		return true, o, err
	})

	events := record.NewFakeRecorder(20)
	o := &Operator{
		Client: client, Objects: dynamic, Events: events, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		reported: map[string]string{},
	}
	return &cluster{o, t, client, events}
}

func object(kind, namespace, name, field string, value map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": kind, "metadata": map[string]any{"namespace": namespace, "name": name}, field: value,
	}}
}

func (c *cluster) setState(s map[string]any) {
	o := object("SriovNetworkNodeState", Namespace, "one", "status", s)
	_, err := c.Objects.Resource(states).Namespace(Namespace).Update(c.t.Context(), o, metav1.UpdateOptions{})
	require.NoError(c.t, err)
}

func (c *cluster) node() *corev1.Node {
	n, err := c.client.CoreV1().Nodes().Get(c.t.Context(), "one", metav1.GetOptions{})
	require.NoError(c.t, err)
	return n
}

func TestANodeIsDrainedForItsVirtualFunctions(t *testing.T) {
	c := newCluster(t, object("SriovNetworkNodeState", Namespace, "one", "status", map[string]any{
		"syncStatus": SyncInProgress, "blockedBy": []any{"blue/web", "blue/elsewhere", "blue/gone"},
	}))
	held := true
	c.client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		e := a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		assert.Equal(t, types.UID("u"), *e.DeleteOptions.Preconditions.UID)
		if held {
			return true, nil, apierrors.NewTooManyRequests("a budget", 1)
		}
		return true, nil, c.client.Tracker().Delete(a.GetResource(), a.GetNamespace(), e.Name)
	})

	require.NoError(t, c.drain(t.Context()))
	assert.True(t, c.node().Spec.Unschedulable)
	assert.Equal(t, wasOpen, c.node().Annotations[drainKey])
	assert.Contains(t, <-c.events.Events, "DrainForVirtualFunctions")

	// Another operator continues; a budget holds the pod for a while.
	c.reported = map[string]string{}
	require.NoError(t, c.drain(t.Context()))
	assert.Contains(t, <-c.events.Events, "pod blue/web: a PodDisruptionBudget holds it")
	held = false
	require.NoError(t, c.drain(t.Context()))
	_, err := c.client.CoreV1().Pods("blue").Get(t.Context(), "web", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err))
	_, err = c.client.CoreV1().Pods("blue").Get(t.Context(), "elsewhere", metav1.GetOptions{})
	require.NoError(t, err, "a pod of another node")

	c.setState(map[string]any{"syncStatus": SyncInProgress})
	require.NoError(t, c.drain(t.Context()))
	assert.True(t, c.node().Spec.Unschedulable, "its agent has not changed it yet")
	c.setState(map[string]any{"syncStatus": SyncSucceeded})
	require.NoError(t, c.drain(t.Context()))
	assert.False(t, c.node().Spec.Unschedulable)
	assert.NotContains(t, c.node().Annotations, drainKey)
}

func TestACordonOfSomebodyElseStays(t *testing.T) {
	c := newCluster(t, object("SriovNetworkNodeState", Namespace, "one", "status", map[string]any{
		"syncStatus": SyncInProgress, "blockedBy": []any{"blue/web"},
	}))
	n := c.node()
	n.Spec.Unschedulable = true
	_, err := c.client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, c.drain(t.Context()))
	assert.Equal(t, wasClosed, c.node().Annotations[drainKey])
	c.setState(map[string]any{"syncStatus": SyncSucceeded})
	require.NoError(t, c.drain(t.Context()))
	assert.True(t, c.node().Spec.Unschedulable)
	assert.NotContains(t, c.node().Annotations, drainKey)
}

func TestDefinitionsFollowNetworks(t *testing.T) {
	theirs := object("NetworkAttachmentDefinition", "blue", "theirs", "spec", map[string]any{"config": "{}"})
	theirs.SetAPIVersion("k8s.cni.cncf.io/v1")
	c := newCluster(t,
		object("SriovNetwork", Namespace, "rack", "spec", map[string]any{"resourceName": "nic", "networkNamespace": "blue", "vlan": int64(7)}),
		object("SriovNetwork", Namespace, "theirs", "spec", map[string]any{"resourceName": "nic", "networkNamespace": "blue"}),
		object("SriovNetwork", Namespace, "wrong", "spec", map[string]any{"resourceName": "nic", "ipam": "x"}),
		object("SriovNetwork", "blue", "elsewhere", "spec", map[string]any{"resourceName": "nic"}),
	)
	_, err := c.Objects.Resource(definitions).Namespace("blue").Create(t.Context(), theirs, metav1.CreateOptions{})
	require.NoError(t, err)
	names := func() (all []string) {
		list, err := c.Objects.Resource(definitions).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, d := range list.Items {
			all = append(all, d.GetNamespace()+"/"+d.GetName())
		}
		return all
	}
	for range 2 {
		require.NoError(t, c.writeNetworks(t.Context()))
	}
	assert.ElementsMatch(t, []string{"blue/rack", "blue/theirs"}, names())
	require.Len(t, c.events.Events, 2, "each fault is said once")
	said := <-c.events.Events + "\n" + <-c.events.Events
	assert.Contains(t, said, "NetworkAttachmentDefinition blue/theirs is somebody else's; delete it, or give the network another name")
	assert.Contains(t, said, "ipam is no JSON object: ")

	// It moves, and what it was does not stay.
	rack := object("SriovNetwork", Namespace, "rack", "spec", map[string]any{"resourceName": "nic", "networkNamespace": "red"})
	_, err = c.Objects.Resource(networks).Namespace(Namespace).Update(t.Context(), rack, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, c.writeNetworks(t.Context()))
	assert.ElementsMatch(t, []string{"red/rack", "blue/theirs"}, names())

	// With a mistake in it, it stays as it was; without the network, it goes.
	rack.Object["spec"] = map[string]any{"resourceName": ""}
	_, err = c.Objects.Resource(networks).Namespace(Namespace).Update(t.Context(), rack, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, c.writeNetworks(t.Context()))
	assert.ElementsMatch(t, []string{"red/rack", "blue/theirs"}, names())
	require.NoError(t, c.Objects.Resource(networks).Namespace(Namespace).Delete(t.Context(), "rack", metav1.DeleteOptions{}))
	require.NoError(t, c.writeNetworks(t.Context()))
	assert.Equal(t, []string{"blue/theirs"}, names())
}
