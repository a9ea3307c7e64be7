package daemon

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/kpa"
	"firstlight.dev/firstlight/daemon/engine/apply"
)

// serveComponents gives the operator of components its rights, asks for what Provisionings want besides
// Kubernetes, and returns how all components stand. Before their kind exists there are none.
func (c *clusters) serveComponents(
	ctx context.Context, api client.Client, provisionings []v1alpha1.Provisioning,
) ([]status.Component, error) {
	components, err := kpa.ReadComponents(ctx, apply.NewCachedReader(api))
	if err != nil {
		return nil, err
	}

	if err := components.GrantNamespaces(ctx, api); err != nil {
		c.log.Warn("the operator of components has not its rights everywhere", "error", err)
	}

	if err := components.RequestAddOns(ctx, api, addOns(provisionings)); err != nil {
		c.log.Warn("not every add-on of a Provisioning is a Component yet", "error", err)
	}

	return components.Status(), nil
}

// Components are how they stood when last asked.
func (c *clusters) Components() []status.Component {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.components)
}

// addOns are the names in KUDPlugins. Another installer gets them as they are, and is asked for none of them here.
func addOns(all []v1alpha1.Provisioning) []kpa.AddOns {
	var out []kpa.AddOns
	for i := range all {
		p := &all[i]
		if p.Spec.InstallerImage != "" || !p.DeletionTimestamp.IsZero() {
			continue
		}
		out = append(out, kpa.AddOns{
			Namespace: p.Namespace,
			Owner: metav1.OwnerReference{
				APIVersion: v1alpha1.GroupVersion.String(),
				Kind:       "Provisioning",
				Name:       p.Name,
				UID:        p.UID,
			},
			Cluster: v1alpha1.ClusterOf(p),
			Names:   p.Spec.KUDPlugins,
		})
	}
	return out
}
