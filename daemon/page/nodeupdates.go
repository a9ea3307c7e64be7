package page

import (
	"context"
	"errors"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"firstlight.dev/firstlight/assets/status"
	bpaapi "firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// newNodeUpdateActions begin and end that the nodes of a cluster are kept up to date.
func newNodeUpdateActions() []action {
	return []action{
		{
			name: "begin-node-updates", on: onCluster, needs: Owner, title: "Begin node updates",
			effect: "A NodeUpdate without a window begins now: one node after the other is drained, gets newer packages of the " +
				"appliance's repository, and restarts if it must. Volumes of emptyDir go with their pods. It lasts until it " +
				"is ended; kubectl changes its window.",
			isFinal: true,
			offered: hasNoNodeUpdate,
			do: func(ctx context.Context, s *Server, o order) (result, error) {
				err := s.toNodeUpdates(o, func(c status.Cluster, updates dynamic.ResourceInterface) error {
					_, err := updates.Create(ctx, newNodeUpdate(c), metav1.CreateOptions{FieldManager: fieldManager})
					return err
				})
				return result{text: "The nodes of " + o.name + " are kept up to date."}, err
			},
		},
		{
			name: "end-node-updates", on: onCluster, needs: Owner, title: "End node updates",
			effect: "The NodeUpdate that was begun here is deleted. A node that is out of service for it is put back first; " +
				"packages that have come stay.",
			offered: hasNodeUpdateOfPage,
			do: func(ctx context.Context, s *Server, o order) (result, error) {
				err := s.toNodeUpdates(o, func(c status.Cluster, updates dynamic.ResourceInterface) error {
					return updates.Delete(ctx, nodeUpdateName(c), metav1.DeleteOptions{})
				})
				return result{text: "The node update of " + o.name + " ends."}, err
			},
		},
	}
}

// nodeUpdateName is the one that the page makes of a cluster.
func nodeUpdateName(c status.Cluster) string { return "page-" + c.Name }

func newNodeUpdate(c status.Cluster) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	o.SetGroupVersionKind(bpaapi.GroupVersion.WithKind("NodeUpdate"))
	o.SetName(nodeUpdateName(c))
	o.SetLabels(map[string]string{bpaapi.LabelCluster: c.Name})
	return o
}

// toNodeUpdates does something to the NodeUpdates of a cluster as the person who confirmed it.
func (s *Server) toNodeUpdates(
	o order, do func(status.Cluster, dynamic.ResourceInterface) error,
) error {
	c, ok := status.FindCluster(s.sources.Document().Clusters, o.name)
	if !ok {
		return errors.New("the cluster is not there any more")
	}
	api, err := s.deeds.API()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoAPI, err)
	}
	client, err := dynamic.NewForConfig(o.by.impersonate(api))
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if err := do(c, client.Resource(nodeUpdates).Namespace(c.Namespace)); err != nil {
		return describeAPIError(err)
	}
	return nil
}

var nodeUpdates = bpaapi.GroupVersion.WithResource("nodeupdates")

// nodeUpdateRules are what a role may do to NodeUpdates.
func nodeUpdateRules(r Role) []rbacv1.PolicyRule {
	if !r.covers(Owner) {
		return nil
	}
	return []rbacv1.PolicyRule{{
		APIGroups: []string{nodeUpdates.Group},
		Resources: []string{nodeUpdates.Resource},
		Verbs:     []string{"create", "delete"},
	}}
}

// hasNoNodeUpdate is a cluster of a Provisioning that nothing keeps up to date.
func hasNoNodeUpdate(p *picture, name string) (about string, ok bool) {
	c, ok := status.FindCluster(p.doc.Clusters, name)
	return "", ok && c.Kind == status.KindProvisioning && c.State == status.ClusterReady && len(c.Updates) == 0
}

// hasNodeUpdateOfPage is a cluster that is kept up to date by what was begun here.
func hasNodeUpdateOfPage(p *picture, name string) (about string, ok bool) {
	c, ok := status.FindCluster(p.doc.Clusters, name)
	return "", ok && slices.ContainsFunc(c.Updates, func(u status.NodeUpdate) bool {
		return u.Name == c.Namespace+"/"+nodeUpdateName(c)
	})
}
