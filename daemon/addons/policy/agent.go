package policy

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"firstlight.dev/firstlight/daemon/engine/nodehealth"
)

const (
	settle = 100 * time.Millisecond // changes that come together become one transaction
	resync = 30 * time.Second       // somebody may have flushed the table
)

// Agent keeps the table of one node as the cluster's NetworkPolicies want it.
type Agent struct {
	Node   string // this node's name
	Health string // where it answers 200 if the table is as wanted: ADDRESS:PORT of loopback
	Client kubernetes.Interface
	Table  *Table
	Events record.EventRecorder
	Log    *slog.Logger

	health   *nodehealth.Health
	reported map[types.UID]string // problems of policies that there is an Event for
}

// lists are what the API server said last.
type lists struct {
	pods, namespaces, policies, node cache.SharedIndexInformer
}

// Run follows the cluster until ctx ends. Until everything was listed once, the table stays as it was. At the end it
// stays, too, unless the add-on is being removed from the cluster.
func (a *Agent) Run(ctx context.Context) error {
	a.health, a.reported = nodehealth.New("table of policies", a.Log), map[types.UID]string{}
	failed, err := a.health.Serve(ctx, a.Health)
	if err != nil {
		return err
	}

	changed := make(chan struct{}, 1)
	all, err := a.follow(ctx, changed)
	if err != nil {
		return err
	}
	if !cache.WaitForCacheSync(ctx.Done(), all.pods.HasSynced, all.namespaces.HasSynced, all.policies.HasSynced, all.node.HasSynced) {
		return a.end()
	}

	a.apply(ctx, all)
	tick := time.NewTicker(resync)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return a.end()
		case err := <-failed:
			if ctx.Err() == nil {
				return fmt.Errorf("serve health: %w", err)
			}
		case <-tick.C:
			if err := a.Table.CheckUnchanged(ctx); err != nil && ctx.Err() == nil {
				a.Log.Warn("table is written again", "reason", err)
			}
			a.apply(ctx, all)
		case <-changed:
			time.Sleep(settle)
			a.apply(ctx, all)
		}
	}
}

// follow watches what the rules follow from, and signals each change that they may depend on.
func (a *Agent) follow(ctx context.Context, changed chan<- struct{}) (lists, error) {
	cluster := informers.NewSharedInformerFactoryWithOptions(a.Client, 0, informers.WithTransform(trim))
	own := informers.NewSharedInformerFactoryWithOptions(a.Client, 0, informers.WithTransform(trim),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", a.Node).String()
		}))
	all := lists{
		pods:       cluster.Core().V1().Pods().Informer(),
		namespaces: cluster.Core().V1().Namespaces().Informer(),
		policies:   cluster.Networking().V1().NetworkPolicies().Informer(),
		node:       own.Core().V1().Nodes().Informer(),
	}

	signal := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	for _, i := range []cache.SharedIndexInformer{all.pods, all.namespaces, all.policies, all.node} {
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { signal() },
			DeleteFunc: func(any) { signal() },
			UpdateFunc: func(before, now any) {
				if !isSame(before, now) {
					signal()
				}
			},
		}); err != nil {
			return lists{}, fmt.Errorf("follow the cluster: %w", err)
		}
	}

	cluster.Start(ctx.Done())
	own.Start(ctx.Done())
	return all, nil
}

// trim leaves of an object what rules follow from: a node keeps the pods of the whole cluster in memory.
func trim(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Pod:
		small := &corev1.Pod{ObjectMeta: trimMeta(o.ObjectMeta)}
		small.Spec.NodeName, small.Spec.HostNetwork = o.Spec.NodeName, o.Spec.HostNetwork
		small.Spec.Containers, small.Spec.InitContainers = trimContainers(o.Spec.Containers), trimContainers(o.Spec.InitContainers)
		small.Status.Phase, small.Status.PodIP, small.Status.PodIPs = o.Status.Phase, o.Status.PodIP, o.Status.PodIPs
		return small, nil
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: trimMeta(o.ObjectMeta)}, nil
	case *corev1.Node:
		small := &corev1.Node{ObjectMeta: trimMeta(o.ObjectMeta)}
		small.Labels = nil
		small.Spec.PodCIDR, small.Spec.PodCIDRs = o.Spec.PodCIDR, o.Spec.PodCIDRs
		return small, nil
	case *networkingv1.NetworkPolicy:
		return &networkingv1.NetworkPolicy{ObjectMeta: trimMeta(o.ObjectMeta), Spec: o.Spec}, nil
	}
	return o, nil // the last state of what is gone
}

func trimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:         m.Namespace,
		Name:              m.Name,
		UID:               m.UID,
		ResourceVersion:   m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp,
		DeletionTimestamp: m.DeletionTimestamp,
		Labels:            m.Labels,
	}
}

func trimContainers(all []corev1.Container) (small []corev1.Container) {
	for _, c := range all {
		small = append(small, corev1.Container{Name: c.Name, Ports: c.Ports, RestartPolicy: c.RestartPolicy})
	}
	return small
}

// isSame reports whether two trimmed states of an object make the same rules.
func isSame(before, now any) bool {
	b, n := before.(runtime.Object).DeepCopyObject(), now.(runtime.Object).DeepCopyObject()
	for _, o := range []runtime.Object{b, n} {
		if m, err := meta.Accessor(o); err == nil {
			m.SetResourceVersion("")
		}
	}
	return equality.Semantic.DeepEqual(b, n)
}

// apply makes the table that of the cluster's state.
func (a *Agent) apply(ctx context.Context, all lists) {
	s := State{Node: a.Node}
	cache.ListAll(all.pods.GetStore(), labels.Everything(), func(o any) { s.Pods = append(s.Pods, o.(*corev1.Pod)) })
	cache.ListAll(all.namespaces.GetStore(), labels.Everything(), func(o any) {
		s.Namespaces = append(s.Namespaces, o.(*corev1.Namespace))
	})
	cache.ListAll(all.policies.GetStore(), labels.Everything(), func(o any) {
		s.Policies = append(s.Policies, o.(*networkingv1.NetworkPolicy))
	})
	cache.ListAll(all.node.GetStore(), labels.Everything(), func(o any) { s.Ranges = ranges(o.(*corev1.Node)) })

	began := time.Now()
	plan := NewPlan(s)
	a.addEvents(plan.Problems)
	changed, err := a.Table.Set(ctx, plan)
	if changed {
		a.Log.Info("table is written", "pods", plan.String(), "took", time.Since(began).Round(time.Millisecond))
	}
	if ctx.Err() == nil {
		a.health.Set(err)
	}
}

// ranges are the addresses that the pods of a node get.
func ranges(n *corev1.Node) (all []netip.Prefix) {
	texts := n.Spec.PodCIDRs
	if len(texts) == 0 && n.Spec.PodCIDR != "" {
		texts = []string{n.Spec.PodCIDR}
	}
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, p.Masked())
		}
	}
	return all
}

// addEvents says at a policy, once, what of it cannot be enforced.
func (a *Agent) addEvents(problems []Problem) {
	for _, p := range problems {
		id := p.Policy.UID
		if a.reported[id] == p.Policy.ResourceVersion+p.Sentence {
			continue
		}
		a.reported[id] = p.Policy.ResourceVersion + p.Sentence
		a.Log.Warn("policy is not enforced as a whole", "policy", p.Policy.Namespace+"/"+p.Policy.Name, "problem", p.Sentence)
		a.Events.Event(p.Policy, corev1.EventTypeWarning, "NotEnforced", p.Sentence+"; this part allows nothing")
	}
}
