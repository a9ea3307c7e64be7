package sriovnodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
)

// Operator writes definitions of networks, and has pods leave nodes whose virtual functions must change. One of them runs
// on a cluster.
type Operator struct {
	Client  kubernetes.Interface
	Objects dynamic.Interface
	Events  record.EventRecorder
	Log     *slog.Logger

	reported map[string]string // of each object, the last sentence
}

const operatorEvery = 5 * time.Second

// Run works until ctx ends. Whatever moment that is, the next operator continues.
func (o *Operator) Run(ctx context.Context) error {
	o.reported = map[string]string{}
	for {
		for _, do := range []func(context.Context) error{o.writeNetworks, o.drain} {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				o.Log.Warn("it is tried again", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(operatorEvery):
		}
	}
}

// warn makes an Event of a sentence at an object, once.
func (o *Operator) warn(about runtime.Object, key, reason, text string) {
	if o.reported[key] == text {
		return
	}
	o.reported[key] = text
	if text != "" {
		o.Events.Event(about, corev1.EventTypeWarning, reason, text)
	}
}

// writeNetworks makes each network's definition, and deletes those whose network is gone or is elsewhere now.
func (o *Operator) writeNetworks(ctx context.Context) error {
	list, err := o.Objects.Resource(networks).Namespace(Namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read networks: %w", err)
	}
	have, err := o.Objects.Resource(definitions).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		for _, n := range list.Items {
			o.warn(&n, "network "+n.GetName(), "NotWritten", "the cluster has no NetworkAttachmentDefinitions; install multus")
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read definitions: %w", err)
	}

	var failed []error
	wanted := map[string]bool{}
	for _, item := range list.Items {
		var n Network
		var definition *unstructured.Unstructured
		err := decode(&item, &n)
		if err == nil {
			definition, err = RenderDefinition(n)
		}
		if err != nil {
			// What it had stays: a slip of the pen takes no network away.
			for _, d := range have.Items {
				if d.GetLabels()[networkLabel] == item.GetName() {
					wanted[d.GetNamespace()+"/"+d.GetName()] = true
				}
			}
			o.warn(&item, "network "+item.GetName(), "NotWritten", err.Error())
			continue
		}
		wanted[definition.GetNamespace()+"/"+definition.GetName()] = true
		err = o.writeDefinition(ctx, definition, have.Items)
		var conflict *conflictError
		switch {
		case errors.As(err, &conflict), apierrors.IsNotFound(err):
			o.warn(&item, "network "+item.GetName(), "NotWritten", err.Error())
		case err != nil:
			failed = append(failed, err)
		default:
			o.warn(&item, "network "+item.GetName(), "", "")
		}
	}

	for _, d := range have.Items {
		if d.GetLabels()[networkLabel] == "" || wanted[d.GetNamespace()+"/"+d.GetName()] {
			continue
		}
		err := o.Objects.Resource(definitions).Namespace(d.GetNamespace()).Delete(ctx, d.GetName(), metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(d.GetUID())),
		})
		if err != nil && !apierrors.IsNotFound(err) {
			failed = append(failed, fmt.Errorf("delete definition %s/%s: %w", d.GetNamespace(), d.GetName(), err))
		}
	}
	return errors.Join(failed...)
}

// conflictError says that an object of somebody else has a definition's name.
type conflictError struct{ name string }

func (e *conflictError) Error() string {
	return fmt.Sprintf("NetworkAttachmentDefinition %s is somebody else's; delete it, or give the network another name", e.name)
}

func (o *Operator) writeDefinition(ctx context.Context, d *unstructured.Unstructured, have []unstructured.Unstructured) error {
	at := slices.IndexFunc(have, func(h unstructured.Unstructured) bool {
		return h.GetNamespace() == d.GetNamespace() && h.GetName() == d.GetName()
	})
	if at >= 0 {
		if have[at].GetLabels()[networkLabel] != d.GetName() {
			return &conflictError{d.GetNamespace() + "/" + d.GetName()}
		}
		if equality.Semantic.DeepEqual(have[at].Object["spec"], d.Object["spec"]) &&
			have[at].GetAnnotations()[resourceKey] == d.GetAnnotations()[resourceKey] {
			return nil
		}
	}
	_, err := o.Objects.Resource(definitions).Namespace(d.GetNamespace()).
		Apply(ctx, d.GetName(), d, metav1.ApplyOptions{FieldManager: owner, Force: true})
	if err != nil {
		return fmt.Errorf("write definition %s/%s: %w", d.GetNamespace(), d.GetName(), err)
	}
	return nil
}

// drain does one step for nodes whose virtual functions must change.
func (o *Operator) drain(ctx context.Context) error {
	views, nodes, err := o.readNodes(ctx)
	if err != nil {
		return err
	}

	var failed []error
	mayStart := func(n NodeView) bool {
		_, wrong, err := o.readBlockers(ctx, n)
		failed = append(failed, err)
		if err == nil {
			o.warn(nodes[n.Name], "node "+n.Name, "NotDrained", strings.Join(wrong, "; "))
		}
		return err == nil && len(wrong) == 0
	}
	step := DecideDrain(views, mayStart)
	switch {
	case step.Start != "":
		failed = append(failed, o.start(ctx, nodes[step.Start]))
	case step.Evict != "":
		at := slices.IndexFunc(views, func(n NodeView) bool { return n.Name == step.Evict })
		failed = append(failed, o.evict(ctx, views[at], nodes[step.Evict]))
	case step.Finish != "":
		failed = append(failed, o.finish(ctx, nodes[step.Finish]))
	}
	return errors.Join(failed...)
}

func (o *Operator) readNodes(ctx context.Context) (views []NodeView, byName map[string]*corev1.Node, err error) {
	nodes, err := o.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("read nodes: %w", err)
	}
	list, err := o.Objects.Resource(states).Namespace(Namespace).List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, nil, fmt.Errorf("read the states of nodes: %w", err)
	}

	byName = map[string]*corev1.Node{}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		byName[n.Name] = n
		view := NodeView{Name: n.Name, Drain: n.Annotations[drainKey], IsClosed: n.Spec.Unschedulable}
		for _, item := range list.Items {
			var state struct {
				Status State `json:"status"`
			}
			if item.GetName() != n.Name || decode(&item, &state) != nil {
				continue
			}
			view.BlockedBy, view.Status = state.Status.BlockedBy, state.Status.SyncStatus
		}
		views = append(views, view)
	}
	return views, byName, nil
}

// readBlockers returns the pods of a node that block it, and why some of them cannot be evicted. What a node says of pods
// of others does not count.
func (o *Operator) readBlockers(ctx context.Context, n NodeView) (pods []*corev1.Pod, wrong []string, err error) {
	for _, text := range n.BlockedBy {
		namespace, name, _ := strings.Cut(text, "/")
		pod, err := o.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read pod %s: %w", text, err)
		}
		if pod.Spec.NodeName != n.Name || pod.DeletionTimestamp != nil {
			continue
		}
		if err := checkEvictable(pod); err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		pods = append(pods, pod)
	}
	return pods, wrong, nil
}

func (o *Operator) patchNode(ctx context.Context, n *corev1.Node, drain any, isClosed bool) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": n.ResourceVersion, "annotations": map[string]any{drainKey: drain}},
		"spec":     map[string]any{"unschedulable": isClosed},
	})
	if err != nil {
		return fmt.Errorf("encode the node's annotation: %w", err)
	}
	_, err = o.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: owner})
	if err != nil {
		return fmt.Errorf("cordon or uncordon node %s: %w", n.Name, err)
	}
	return nil
}

func (o *Operator) start(ctx context.Context, n *corev1.Node) error {
	before := wasOpen
	if n.Spec.Unschedulable {
		before = wasClosed
	}
	if err := o.patchNode(ctx, n, before, true); err != nil {
		return err
	}
	o.Log.Info("draining the node: its virtual functions must change", "node", n.Name)
	o.Events.Event(n, corev1.EventTypeNormal, "DrainForVirtualFunctions", "pods with virtual functions are evicted, which must change")
	return nil
}

func (o *Operator) finish(ctx context.Context, n *corev1.Node) error {
	if err := o.patchNode(ctx, n, nil, n.Annotations[drainKey] == wasClosed); err != nil {
		return err
	}
	o.Log.Info("the node takes pods again", "node", n.Name)
	return nil
}

// evict asks for the eviction of a node's pods that block it. One that a PodDisruptionBudget holds is asked for again.
func (o *Operator) evict(ctx context.Context, view NodeView, n *corev1.Node) error {
	pods, wrong, err := o.readBlockers(ctx, view)
	if err != nil {
		return err
	}
	var failed []error
	for _, pod := range pods {
		err := o.Client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{
				Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
			},
		})
		switch {
		case apierrors.IsTooManyRequests(err):
			wrong = append(wrong, fmt.Sprintf("pod %s/%s: a PodDisruptionBudget holds it", pod.Namespace, pod.Name))
		case err != nil && !apierrors.IsNotFound(err):
			failed = append(failed, fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	o.warn(n, "node "+n.Name, "NotDrained", strings.Join(wrong, "; "))
	return errors.Join(failed...)
}
