package operator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/contract/kubeconfig"
	"firstlight.dev/firstlight/daemon/clusters/kpa/engine"
	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

// ServiceAccount is with whose rights Components of a namespace are installed on the appliance itself.
const ServiceAccount = "kpa"

const (
	pingTimeout  = 5 * time.Second
	pingLasts    = 30 * time.Second // how long an answer, or its absence, is believed
	targetLasts  = 10 * time.Minute // how long the connection to a cluster that no one asks for is kept
	labelCluster = "cluster"        // of a Provisioning: the cluster's name; without it its own
	labelOwner   = "owner"          // of a Provisioning in siteNamespace: whose uploads its nodes get
)

// siteNamespace has the site's clusters, of any owner; whoever writes there administers the rack.
const siteNamespace = metav1.NamespaceDefault

// targets keeps connections: what a cluster's API serves is asked once, and a cluster that does not answer is asked by
// one Component for all.
type targets struct {
	mu  sync.Mutex
	all map[string]*connection
}

type connection struct {
	mu     sync.Mutex
	digest string // of the kubeconfig
	target *engine.Target
	asked  time.Time
	silent error
	used   time.Time
}

// get is the connection of a key, with those dropped that were not used for long.
func (t *targets) get(key string, now time.Time) *connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, c := range t.all {
		if now.Sub(c.used) > targetLasts {
			delete(t.all, k)
		}
	}

	if t.all == nil {
		t.all = map[string]*connection{}
	}
	c := t.all[key]
	if c == nil {
		c = &connection{}
		t.all[key] = c
	}
	c.used = now
	return c
}

// connect is the target with a configuration, once it has answered.
func (c *connection) connect(
	ctx context.Context, digest string, parse func() (*rest.Config, error), now time.Time,
) (*engine.Target, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.target == nil || c.digest != digest {
		config, err := parse()
		if err != nil {
			return nil, err
		}
		if c.target, err = engine.Connect(config); err != nil {
			return nil, err
		}
		c.digest, c.asked = digest, time.Time{}
	}

	if now.Sub(c.asked) > pingLasts {
		ctx, cancel := context.WithTimeout(ctx, pingTimeout)
		defer cancel()
		c.silent, c.asked = c.target.AskVersion(ctx), now
	}
	return c.target, c.silent
}

// connect is the target of a Component's cluster. gone says that there is no such cluster, or not yet.
func (r *Components) connect(
	ctx context.Context, namespace, cluster string,
) (target *engine.Target, gone bool, err error) {
	now := r.Now()
	if cluster == v1alpha1.ApplianceTarget {
		c := r.targets.get(namespace+"/", now)
		target, err := c.connect(ctx, "", func() (*rest.Config, error) { return r.impersonate(namespace), nil }, now)
		return target, false, err
	}

	var s corev1.Secret
	key := client.ObjectKey{Namespace: namespace, Name: cluster + "-kubeconfig"}
	err = r.Reader.Get(ctx, key, &s)
	switch {
	case apierrors.IsNotFound(err):
		return nil, true, &engine.Fault{Verdict: plan.Verdict{
			Phase: v1alpha1.PhaseWaiting, Reason: plan.ReasonNoKubeconfig,
			Message: fmt.Sprintf("cluster %s is not installed yet: there is no Secret %s", cluster, key.Name),
		}}
	case err != nil:
		return nil, false, fmt.Errorf("read Secret %s: %w", key.Name, err)
	}

	text := s.Data["value"]
	c := r.targets.get(namespace+"/"+cluster, now)
	parse := func() (*rest.Config, error) {
		config, err := engine.ParseKubeconfig(text)
		if err == nil && !r.Config.Own {
			config.Dial = kubeconfig.DialOthers
		}
		return config, err
	}
	target, err = c.connect(ctx, engine.Digest(text), parse, now)
	return target, false, err
}

// impersonate logs in to the appliance as the ServiceAccount of a namespace: a Component may no more than that. The API
// server adds its groups.
func (r *Components) impersonate(namespace string) *rest.Config {
	c := rest.CopyConfig(r.API)
	c.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":" + ServiceAccount}
	return c
}

// listTargets names the clusters that a Component asks for, sorted.
func (r *Components) listTargets(ctx context.Context, c *v1alpha1.Component) ([]string, error) {
	switch {
	case c.Spec.Appliance:
		return []string{v1alpha1.ApplianceTarget}, nil
	case c.Spec.ClusterSelector == nil:
		all := slices.Clone(c.Spec.Clusters)
		slices.Sort(all)
		return slices.Compact(all), nil
	}

	selector, err := metav1.LabelSelectorAsSelector(c.Spec.ClusterSelector)
	if err != nil {
		return nil, &engine.Fault{Verdict: plan.Verdict{
			Phase: v1alpha1.PhaseRefused, Reason: plan.ReasonSourceRefused,
			Message: fmt.Sprintf("spec.clusterSelector: %v", err),
		}}
	}

	var names []string
	for _, kind := range []schema.GroupVersionKind{provisionings, capiClusters} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := r.Reader.List(ctx, list, client.InNamespace(c.Namespace), client.MatchingLabelsSelector{Selector: selector})
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue // the appliance has no Cluster API
		}
		if err != nil {
			return nil, fmt.Errorf("list clusters: %w", err)
		}
		for _, o := range list.Items {
			names = append(names, clusterName(kind, o))
		}
	}

	slices.Sort(names)
	return slices.Compact(names), nil
}

func clusterName(kind schema.GroupVersionKind, o metav1.PartialObjectMetadata) string {
	if name := o.Labels[labelCluster]; name != "" && kind == provisionings {
		return name
	}
	return o.Name
}

// findOwner is whose uploads the nodes of a cluster get (docs/decisions/0022).
func (r *Components) findOwner(ctx context.Context, namespace, cluster string) (string, error) {
	if namespace != siteNamespace || cluster == v1alpha1.ApplianceTarget {
		return namespace, nil
	}

	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(provisionings.GroupVersion().WithKind(provisionings.Kind + "List"))
	if err := r.Reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return "", fmt.Errorf("list clusters: %w", err)
	}
	for _, o := range list.Items {
		if name := o.Labels[labelOwner]; clusterName(provisionings, o) == cluster && name != "" {
			return name, nil
		}
	}
	return namespace, nil
}
