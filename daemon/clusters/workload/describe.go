package workload

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/version"

	"firstlight.dev/firstlight/assets/excerpt"
)

// How much is kept of a message and of a name, in bytes, and of the roles of a node. The longest name of an object has
// 253 bytes.
const (
	maxText  = 300
	maxName  = 253
	maxRoles = 8
)

// roleLabel is before the role of a node in the name of its label.
const roleLabel = "node-role.kubernetes.io/"

// Node is one node of the cluster.
type Node struct {
	Name    string
	Roles   []string
	Address string // the first internal one
	Version string // of its kubelet
	State   string // Ready, NotReady or Unknown; with SchedulingDisabled if it is cordoned
	Reason  string // why it is not well
	IsWell  bool
}

// Pod is one pod of the cluster.
type Pod struct {
	Namespace, Name string
	Node            string
	State           string // as kubectl get pods says it
	Ready           string // containers that are ready, of all: 1/2
	Restarts        int32
	Since           time.Time // it was created
	Reason          string    // why it is not well
	IsWell          bool
}

// Event is something that happened on the cluster.
type Event struct {
	Time    time.Time // the last time
	Type    string    // Normal or Warning
	Reason  string
	Object  string // KIND NAMESPACE/NAME
	Message string
	Count   int32 // times that it happened; at least 1
}

func (c *Contents) addNode(n *corev1.Node) {
	d := describeNode(n)
	c.NodeCount++
	if !d.IsWell {
		c.SickNodes++
	}
	c.Nodes = append(c.Nodes, d)
}

func (c *Contents) addPod(p *corev1.Pod, now time.Time) {
	hideLogs(p)
	d := describePod(p, now)
	c.PodCount++
	if !d.IsWell {
		c.SickPods++
	}
	c.Pods = append(c.Pods, d)
}

func (c *Contents) addEvent(e *corev1.Event) { c.Events = append(c.Events, describeEvent(e)) }

// bound puts what people need first, and leaves out what they are not shown.
func (c *Contents) bound() {
	slices.SortFunc(c.Nodes, func(a, b Node) int {
		return cmp.Or(compareWell(a.IsWell, b.IsWell), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(c.Pods, func(a, b Pod) int {
		return cmp.Or(compareWell(a.IsWell, b.IsWell), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	c.Nodes = slices.Clone(c.Nodes[:min(len(c.Nodes), keptNodes)])
	c.Pods = slices.Clone(c.Pods[:min(len(c.Pods), keptPods)])
	c.Events = newestEvents(c.Events)
}

// newestEvents are those that people are shown.
func newestEvents(all []Event) []Event {
	slices.SortStableFunc(all, func(a, b Event) int { return b.Time.Compare(a.Time) })
	return slices.Clone(all[:min(len(all), keptEvents)])
}

// compareWell puts what is not well first.
func compareWell(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func describeNode(n *corev1.Node) Node {
	d := Node{Name: clipName(n.Name), Version: excerpt.Start(n.Status.NodeInfo.KubeletVersion, 60), State: "Unknown"}
	for key := range n.Labels {
		if role, ok := strings.CutPrefix(key, roleLabel); ok {
			d.Roles = append(d.Roles, clipName(role))
		}
	}
	slices.Sort(d.Roles)
	d.Roles = slices.Clone(d.Roles[:min(len(d.Roles), maxRoles)])

	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && d.Address == "" {
			d.Address = clipName(a.Address)
		}
	}

	for _, c := range n.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue:
			d.State, d.IsWell = "Ready", true
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse:
			d.State, d.Reason = "NotReady", clip(c.Message)
		case c.Type == corev1.NodeReady:
			d.Reason = clip(c.Message)
		}
	}

	if n.Spec.Unschedulable {
		d.State += ",SchedulingDisabled"
	}
	return d
}

// describePod says how a pod is as kubectl does, for the states that people know.
func describePod(p *corev1.Pod, now time.Time) Pod {
	d := Pod{
		Namespace: clipName(p.Namespace),
		Name:      clipName(p.Name),
		Node:      clipName(p.Spec.NodeName),
		State:     clipName(cmp.Or(p.Status.Reason, string(p.Status.Phase))),
		Since:     p.CreationTimestamp.Time,
		Reason:    clip(p.Status.Message),
	}
	ready := countReady(p, &d)
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if reason, message := problemOf(c); reason != "" {
			d.State, d.Reason = clipName(reason), clip(message)
			break
		}
	}

	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && d.Reason == "" {
			d.Reason = clip(c.Message)
		}
	}

	hasRun := p.Status.Phase == corev1.PodSucceeded
	switch {
	case p.DeletionTimestamp != nil:
		d.State = "Terminating"
		d.IsWell = now.Before(p.DeletionTimestamp.Time) // it may take that long
	case hasRun && d.State == string(corev1.PodSucceeded):
		d.State, d.IsWell = "Completed", true
	case p.Status.Phase == corev1.PodRunning:
		d.IsWell = d.State == string(corev1.PodRunning) && ready == len(p.Spec.Containers)
	default:
		d.IsWell = hasRun
	}
	if d.IsWell {
		d.Reason = ""
	}
	return d
}

// countReady counts the containers of a pod that are ready, and notes them with the restarts of all.
func countReady(p *corev1.Pod, d *Pod) (ready int) {
	for _, c := range p.Status.ContainerStatuses {
		d.Restarts += c.RestartCount
		if c.Ready {
			ready++
		}
	}
	d.Ready = fmt.Sprintf("%d/%d", ready, len(p.Spec.Containers))
	return ready
}

// problemOf is why a container does not run; "" if it does, begins, or has ended well.
func problemOf(c corev1.ContainerStatus) (reason, message string) {
	switch w, t := c.State.Waiting, c.State.Terminated; {
	case w != nil && !slices.Contains([]string{"", "PodInitializing"}, w.Reason):
		return w.Reason, w.Message
	case t != nil && t.ExitCode != 0:
		return cmp.Or(t.Reason, "Error"), t.Message
	}
	return "", ""
}

// hideLogs removes what containers said when they ended where that is the end of their log: who may see a pod may not see
// its logs.
func hideLogs(p *corev1.Pod) {
	statuses := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if c.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
			continue
		}
		for _, s := range statuses {
			for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
				// One that never ran has no log: the kubelet says why.
				if s.Name == c.Name && t != nil && !slices.Contains([]string{"StartError", "ContainerCannotRun"}, t.Reason) {
					t.Message = ""
				}
			}
		}
	}
}

func describeEvent(e *corev1.Event) Event {
	d := Event{
		Type:    clipName(e.Type),
		Reason:  clipName(e.Reason),
		Object:  strings.TrimSpace(clipName(e.InvolvedObject.Kind) + " " + clipName(e.InvolvedObject.Name)),
		Message: clip(e.Message),
		Count:   max(e.Count, 1),
	}
	if e.InvolvedObject.Namespace != "" {
		o := e.InvolvedObject
		d.Object = clipName(o.Kind) + " " + clipName(o.Namespace) + "/" + clipName(o.Name)
	}

	times := []time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time, e.CreationTimestamp.Time}
	if e.Series != nil {
		d.Count = max(e.Series.Count, d.Count)
		times = slices.Insert(times, 0, e.Series.LastObservedTime.Time)
	}
	for _, t := range times {
		if !t.IsZero() {
			d.Time = t
			break
		}
	}
	return d
}

func clip(text string) string { return excerpt.Start(excerpt.Line(text), maxText) }

func clipName(text string) string { return excerpt.Start(text, maxName) }

// parseVersion is what an API server says of its version; "" if it is not understood.
func parseVersion(body []byte) string {
	var v version.Info
	if json.Unmarshal(body, &v) != nil {
		return ""
	}
	return v.GitVersion
}
