package workload

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestHowAPodIs(t *testing.T) {
	waiting := func(reason, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message},
		}}
	}
	ended := func(code int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: "no such file"},
		}}
	}
	running := corev1.ContainerStatus{Ready: true, RestartCount: 3}
	for _, c := range []struct {
		name   string
		change func(*corev1.Pod)
		want   Pod
	}{
		{"runs", func(p *corev1.Pod) {
			p.Status.Phase, p.Status.ContainerStatuses = "Running", []corev1.ContainerStatus{running}
		}, Pod{State: "Running", Ready: "1/1", Restarts: 3, IsWell: true}},
		{"runs and is not ready", func(p *corev1.Pod) {
			p.Status.Phase, p.Status.ContainerStatuses = "Running", []corev1.ContainerStatus{{}}
		}, Pod{State: "Running", Ready: "0/1"}},
		{"ends again and again", func(p *corev1.Pod) {
			p.Status.Phase = "Running"
			p.Status.ContainerStatuses = []corev1.ContainerStatus{waiting("CrashLoopBackOff", "back-off 5m0s")}
		}, Pod{State: "CrashLoopBackOff", Ready: "0/1", Reason: "back-off 5m0s"}},
		{"has no image", func(p *corev1.Pod) {
			p.Status.Phase = "Pending"
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{waiting("ImagePullBackOff", "not found")}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{waiting("PodInitializing", "")}
		}, Pod{State: "ImagePullBackOff", Ready: "0/1", Reason: "not found"}},
		{"fits no node", func(p *corev1.Pod) {
			p.Status.Phase = "Pending"
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes\nare available",
			}}
		}, Pod{State: "Pending", Ready: "0/1", Reason: "0/3 nodes are available"}},
		{"has done its work", func(p *corev1.Pod) {
			p.Status.Phase, p.Status.ContainerStatuses = "Succeeded", []corev1.ContainerStatus{ended(0)}
		}, Pod{State: "Completed", Ready: "0/1", IsWell: true}},
		{"failed", func(p *corev1.Pod) {
			p.Status.Phase, p.Status.ContainerStatuses = "Failed", []corev1.ContainerStatus{ended(1)}
		}, Pod{State: "Error", Ready: "0/1", Reason: "no such file"}},
		{"was evicted", func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.Message = "Failed", "Evicted", "The node was low on memory."
		}, Pod{State: "Evicted", Ready: "0/1", Reason: "The node was low on memory."}},
		{"ends", func(p *corev1.Pod) {
			p.Status.Phase, p.DeletionTimestamp = "Running", &metav1.Time{Time: now.Add(time.Second)}
		}, Pod{State: "Terminating", Ready: "0/1", IsWell: true}},
		{"does not end", func(p *corev1.Pod) {
			p.Status.Phase, p.DeletionTimestamp = "Running", &metav1.Time{Time: now.Add(-time.Second)}
		}, Pod{State: "Terminating", Ready: "0/1"}},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
		p.Spec = corev1.PodSpec{NodeName: "edge-1", Containers: []corev1.Container{{}}}
		c.change(p)
		c.want.Namespace, c.want.Name, c.want.Node = "default", "web", "edge-1"
		assert.Equal(t, c.want, describePod(p, now), c.name)
	}
}

func TestHowANodeIs(t *testing.T) {
	node := func(ready corev1.ConditionStatus, message string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1", Labels: map[string]string{
			roleLabel + "control-plane": "", roleLabel + "a": "", "else": "",
		}}}
		n.Status.NodeInfo.KubeletVersion = "v1.34.2"
		n.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: "edge-1"}, {Type: corev1.NodeInternalIP, Address: "172.22.1.5"},
		}
		n.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Message: "enough"},
			{Type: corev1.NodeReady, Status: ready, Message: message},
		}
		return n
	}
	want := Node{Name: "edge-1", Roles: []string{"a", "control-plane"}, Address: "172.22.1.5", Version: "v1.34.2"}
	for _, c := range []struct {
		node   *corev1.Node
		state  string
		reason string
		isWell bool
	}{
		{node(corev1.ConditionTrue, "kubelet is posting ready status"), "Ready", "", true},
		{node(corev1.ConditionFalse, "container runtime is down"), "NotReady", "container runtime is down", false},
		{node(corev1.ConditionUnknown, "Kubelet stopped posting"), "Unknown", "Kubelet stopped posting", false},
	} {
		want.State, want.Reason, want.IsWell = c.state, c.reason, c.isWell
		assert.Equal(t, want, describeNode(c.node))
	}
	cordoned := node(corev1.ConditionTrue, "")
	cordoned.Spec.Unschedulable = true
	assert.Equal(t, "Ready,SchedulingDisabled", describeNode(cordoned).State)
	assert.Equal(t, Node{Name: "new", State: "Unknown"}, describeNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}}))
}

func TestWhatHappenedLastComesFirst(t *testing.T) {
	at := func(minute int) metav1.Time { return metav1.Time{Time: now.Add(time.Duration(minute) * time.Minute)} }
	events := []corev1.Event{
		{Reason: "first", LastTimestamp: at(1), Count: 4},
		{Reason: "third", EventTime: metav1.MicroTime(at(1)), Series: &corev1.EventSeries{Count: 9, LastObservedTime: metav1.MicroTime(at(3))}},
		{Reason: "second", EventTime: metav1.MicroTime(at(2)), Message: strings.Repeat("x", 1000)},
	}
	events[0].InvolvedObject = corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web"}
	events[1].InvolvedObject = corev1.ObjectReference{Kind: "Node", Name: "edge-1"}
	var c Contents
	for _, e := range events {
		c.addEvent(&e)
	}
	c.bound()
	assert.Equal(t, []Event{
		{Reason: "third", Object: "Node edge-1", Count: 9, Time: at(3).Time},
		{Reason: "second", Message: strings.Repeat("x", maxText) + "…", Count: 1, Time: at(2).Time},
		{Reason: "first", Object: "Pod default/web", Count: 4, Time: at(1).Time},
	}, c.Events)
}

// TestWhatIsKeptIsBounded: what is not well stays, and all are counted.
func TestWhatIsKeptIsBounded(t *testing.T) {
	var c Contents
	for i := range maxNodes {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i)}}
		if i != maxNodes-1 {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}
		c.addNode(&n)
	}
	for i := range maxPods {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%04d", i)}}
		p.Status.Phase = "Succeeded"
		if i == maxPods-1 {
			p.Status.Phase = "Pending"
		}
		c.addPod(&p, now)
		c.addEvent(&corev1.Event{})
	}

	c.bound()
	assert.Equal(t, []int{keptNodes, keptPods, keptEvents}, []int{len(c.Nodes), len(c.Pods), len(c.Events)})
	assert.Equal(t, []int{maxNodes, 1, maxPods, 1}, []int{c.NodeCount, c.SickNodes, c.PodCount, c.SickPods})
	assert.Equal(t, []string{"node-0999", "pod-0999"}, []string{c.Nodes[0].Name, c.Pods[0].Name})
}

// TestNoWordIsLong: whoever has the cluster names things as long as the answer may be, and pages show all of them.
func TestNoWordIsLong(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: long, Labels: map[string]string{}}}
	for i := range 1000 {
		n.Labels[fmt.Sprint(roleLabel, i, long)] = ""
	}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: long}}
	n.Status.NodeInfo.KubeletVersion = long
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: long, Name: long}}
	p.Spec.NodeName, p.Status.Phase, p.Status.Reason, p.Status.Message = long, corev1.PodPhase(long), long, long
	waits := p.DeepCopy()
	waits.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: long, Message: long},
	}}}
	e := &corev1.Event{Type: long, Reason: long, Message: long}
	e.InvolvedObject = corev1.ObjectReference{Kind: long, Namespace: long, Name: long}

	for _, d := range []any{describeNode(n), describePod(p, now), describePod(waits, now), describeEvent(e)} {
		assert.Less(t, len(fmt.Sprint(d)), 3000, "%T", d)
	}
	assert.Len(t, describeNode(n).Roles, maxRoles)
}
