package metal3provider

import (
	"context"
	"fmt"
	"strings"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/choice"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// associate is the host of a machine; nil if there is none yet, which its condition says. The annotation of the
// machine comes first and the claim on the host second, each only if nobody wrote in between: whenever it is interrupted,
// a machine names one host at most, and a host is claimed once.
func (r *Machines) associate(ctx context.Context, m *machine, s surroundings) (*host, error) {
	name := hostName(m)
	if name == "" {
		out, err := r.choose(ctx, m, s)
		if err != nil || out.Host == "" {
			return nil, err
		}
		name = out.Host
	}

	h, err := r.readHost(ctx, m.Namespace, name)
	if err != nil {
		return nil, err
	}

	switch {
	case h == nil && r.hasInstalled(m):
		r.set(m, verdict{
			Type:    v1beta2.ConditionHostProvisioned,
			Reason:  v1beta2.ReasonHostGone,
			Message: fmt.Sprintf("there is no host %s any more; apply it again, or delete the Machine", name),
		})
		return nil, nil
	case h == nil:
		return nil, r.letGo(ctx, m, fmt.Sprintf("host %s is gone", name))
	case choice.IsConsumedBy(h, m.Namespace, m.Name) && r.isBroken(h, m):
		return nil, r.unclaimBroken(ctx, m, s, h)
	case choice.IsConsumedBy(h, m.Namespace, m.Name):
		r.confirm(m)
		return h, nil
	case h.Spec.ConsumerRef != nil && r.hasInstalled(m) && h.Spec.ConsumerRef.Kind != "Cluster":
		r.set(m, verdict{
			Type:   v1beta2.ConditionAssociate,
			Reason: v1beta2.ReasonAssociateFailed,
			Message: fmt.Sprintf(
				"host %s, which this machine was installed on, belongs to %s %s now; delete the Machine", name,
				h.Spec.ConsumerRef.Kind, h.Spec.ConsumerRef.Name,
			),
		})
		return nil, nil
	}

	return r.claimHost(ctx, m, s, h)
}

// claimHost claims a host that the machine's annotation names, if it still may have it.
func (r *Machines) claimHost(ctx context.Context, m *machine, s surroundings, h *host) (*host, error) {
	request, err := r.request(ctx, m, s)
	if err != nil {
		return nil, err
	}

	lost := h.Spec.ConsumerRef == nil && r.hasInstalled(m) && h.Labels[clusterv1.ClusterNameLabel] == clusterName(m, s.machine)
	request.Taken = nil
	out := choice.Choose([]metal3api.BareMetalHost{*h}, request)
	if out.Host == "" && !lost {
		return nil, r.letGo(ctx, m, choice.Describe(out.Rejected))
	}

	h, err = r.writeHost(ctx, h, func(h *host) { claim(h, m, clusterName(m, s.machine)) })
	if err != nil {
		return nil, err
	}

	v := verdict{Type: v1beta2.ConditionAssociate, Holds: true, Reason: v1beta2.ReasonAssociated}
	if out.Reused {
		v.Reason = v1beta2.ReasonAssociatedByReuse
	}
	r.set(m, v)
	r.unreserve(key(m))
	r.Log.Info("host claimed", "host", h.Name, "machine", m.Namespace+"/"+m.Name)

	return h, nil
}

// choose picks a host and puts its name on the machine. One choice is made at a time, and what was chosen is remembered
// until it can be seen on the host: reading hosts from a cache is good enough, then.
func (r *Machines) choose(ctx context.Context, m *machine, s surroundings) (choice.Outcome, error) {
	request, err := r.request(ctx, m, s)
	if err != nil {
		return choice.Outcome{}, err
	}

	var hosts metal3api.BareMetalHostList
	if err := r.Client.List(ctx, &hosts, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return choice.Outcome{}, fmt.Errorf("list hosts: %w", err)
	}

	out := r.reserve(hosts.Items, request, key(m))
	if out.Host == "" {
		message := choice.Describe(out.Rejected)
		if out.Awaited != "" {
			message = fmt.Sprintf("it waits for host %s, which is kept for it and is not available yet", out.Awaited)
		}
		r.set(m, verdict{Type: v1beta2.ConditionAssociate, Reason: v1beta2.ReasonAssociateFailed, Message: message})
		return out, nil
	}

	err = r.write(ctx, m, func(m *machine) {
		if m.Annotations == nil {
			m.Annotations = map[string]string{}
		}
		m.Annotations[v1beta2.AnnotationHost] = m.Namespace + "/" + out.Host
	})
	if err != nil {
		r.unreserve(key(m))
	}

	return out, err
}

// request is what a machine asks of a host, with the hosts that other machines name.
func (r *Machines) request(ctx context.Context, m *machine, s surroundings) (choice.Request, error) {
	q := choice.Request{
		Namespace:     m.Namespace,
		Name:          m.Name,
		Cluster:       clusterName(m, s.machine),
		UID:           string(m.UID),
		Selector:      s.selector,
		FailureDomain: m.Spec.FailureDomain,
		Reuse:         reuseLabel(s.machine),
		Taken:         map[string]bool{},
	}
	if s.machine.Spec.FailureDomain != "" {
		q.FailureDomain = s.machine.Spec.FailureDomain
	}

	var machines v1beta2.Metal3MachineList
	if err := r.Client.List(ctx, &machines, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return choice.Request{}, fmt.Errorf("list Metal3Machines: %w", err)
	}
	for i := range machines.Items {
		if other := &machines.Items[i]; other.Name != m.Name {
			q.Taken[hostName(other)] = true
		}
	}

	return q, nil
}

// reserve chooses among hosts that no other choice is about to take.
func (r *Machines) reserve(hosts []metal3api.BareMetalHost, q choice.Request, by types.NamespacedName) choice.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	for h, other := range r.reserved {
		if h.Namespace == q.Namespace && other != by {
			q.Taken[h.Name] = true
		}
	}

	out := choice.Choose(hosts, q)
	if out.Host != "" {
		if r.reserved == nil {
			r.reserved = map[types.NamespacedName]types.NamespacedName{}
		}
		r.reserved[types.NamespacedName{Namespace: q.Namespace, Name: out.Host}] = by
	}

	return out
}

// unreserve forgets what a machine was about to claim.
func (p *Provider) unreserve(by types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for h, other := range p.reserved {
		if other == by {
			delete(p.reserved, h)
		}
	}
}

// letGo takes a host's name off a machine, which chooses again.
func (r *Machines) letGo(ctx context.Context, m *machine, why string) error {
	r.unreserve(key(m))
	r.set(m, verdict{Type: v1beta2.ConditionAssociate, Reason: v1beta2.ReasonAssociateFailed, Message: why})
	return r.write(ctx, m, func(m *machine) { delete(m.Annotations, v1beta2.AnnotationHost) })
}

// isBroken reports whether a host that was chosen cannot be installed after all, before anything was written to it.
func (r *Machines) isBroken(h *host, m *machine) bool {
	if h.Spec.Image != nil || h.Spec.CustomDeploy != nil || r.hasInstalled(m) {
		return false
	}
	no := choice.CheckCondition(h)
	if no == nil {
		return h.DeletionTimestamp != nil
	}
	switch no.Reason {
	case choice.ReasonExternal, choice.ReasonUnhealthy, choice.ReasonDetached, choice.ReasonError:
		return true
	}
	return false
}

// unclaimBroken gives such a host back, and lets the machine choose again.
func (r *Machines) unclaimBroken(ctx context.Context, m *machine, s surroundings, h *host) error {
	why := fmt.Sprintf("host %s broke before it was installed; another one is chosen", h.Name)
	if no := choice.CheckCondition(h); no != nil {
		why = fmt.Sprintf("host %s %s; another one is chosen", h.Name, no.Sentence)
	}
	cluster := clusterName(m, s.machine)
	if _, err := r.writeHost(ctx, h, func(h *host) { unclaim(h, cluster) }); err != nil {
		return err
	}
	return r.letGo(ctx, m, why)
}

// hasInstalled reports whether the machine's system is, or was once, on its host.
func (r *Machines) hasInstalled(m *machine) bool {
	return m.Spec.ProviderID != "" || ptr.Deref(m.Status.Initialization.Provisioned, false)
}

// hostName is the host that a machine names; "" if it names none. Hosts are in the machine's own namespace.
func hostName(m *machine) string {
	_, name, _ := strings.Cut(m.Annotations[v1beta2.AnnotationHost], "/")
	return name
}

func key(o client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
