package page

import (
	"context"
	"errors"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"firstlight.dev/firstlight/assets/status"
	bpaapi "firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// onNodeUpdate is a NodeUpdate; its name is NAMESPACE/NAME.
var onNodeUpdate = subject{"nodeupdates", "/updates/{name}", "/updates"}

// newNodeUpdateActions begin, pause, resume and end that the nodes of a cluster are kept up to date.
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
				c, ok := status.FindCluster(s.sources.Document().Clusters, o.name)
				if !ok {
					return result{}, errors.New("the cluster is not there any more")
				}
				err := s.toNodeUpdates(o, c.Namespace, func(updates dynamic.ResourceInterface) error {
					_, err := updates.Create(ctx, newNodeUpdate(c), metav1.CreateOptions{FieldManager: fieldManager})
					return err
				})
				return result{text: "The nodes of " + o.name + " are kept up to date."}, err
			},
		},
		{
			name: "pause-node-updates", on: onNodeUpdate, needs: Owner, title: "Pause the node update",
			effect:  "No further node is taken out of service. One that is out of service is completed first.",
			offered: isNodeUpdateRunning,
			do:      pauseNodeUpdate("pauses", true),
		},
		{
			name: "resume-node-updates", on: onNodeUpdate, needs: Owner, title: "Resume the node update",
			effect: "Nodes that are not up to date are taken out of service again, as its window and its pace allow. Volumes of " +
				"emptyDir go with their pods.",
			offered: isNodeUpdatePaused,
			details: describeRestarts,
			do:      pauseNodeUpdate("continues", false),
		},
		{
			name: "end-node-updates", on: onNodeUpdate, needs: Owner, title: "End the node update",
			effect: "The NodeUpdate is deleted, its window and packages with it. A node that is out of service for it is put back " +
				"first; packages that have come stay.",
			offered: isNodeUpdate,
			typed:   typedForNodeUpdate,
			do: func(ctx context.Context, s *Server, o order) (result, error) {
				namespace, name, _ := strings.Cut(o.name, "/")
				err := s.toNodeUpdates(o, namespace, func(updates dynamic.ResourceInterface) error {
					return updates.Delete(ctx, name, metav1.DeleteOptions{})
				})
				return result{text: "The node update " + o.name + " ends."}, err
			},
		},
	}
}

// pauseNodeUpdate writes whether a NodeUpdate is paused.
func pauseNodeUpdate(does string, isPaused bool) func(context.Context, *Server, order) (result, error) {
	return func(ctx context.Context, s *Server, o order) (result, error) {
		namespace, name, _ := strings.Cut(o.name, "/")
		patch := fmt.Appendf(nil, `{"spec":{"paused":%t}}`, isPaused)
		err := s.toNodeUpdates(o, namespace, func(updates dynamic.ResourceInterface) error {
			_, err := updates.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
			return err
		})
		return result{text: "The node update " + o.name + " " + does + "."}, err
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

// toNodeUpdates does something to the NodeUpdates of a namespace as the person who confirmed it.
func (s *Server) toNodeUpdates(o order, namespace string, do func(dynamic.ResourceInterface) error) error {
	api, err := s.deeds.API()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoAPI, err)
	}
	client, err := dynamic.NewForConfig(o.by.impersonate(api))
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if err := do(client.Resource(nodeUpdates).Namespace(namespace)); err != nil {
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
		Verbs:     []string{"create", "patch", "delete"},
	}}
}

// hasNoNodeUpdate is a cluster of a Provisioning that nothing keeps up to date.
func hasNoNodeUpdate(p *picture, name string) (about string, ok bool) {
	c, ok := status.FindCluster(p.doc.Clusters, name)
	return "", ok && c.Kind == status.KindProvisioning && c.State == status.ClusterReady && len(c.Updates) == 0
}

// findNodeUpdate is the one of a name, NAMESPACE/NAME, with its cluster.
func findNodeUpdate(p *picture, name string) (c status.Cluster, u status.NodeUpdate, ok bool) {
	for _, c := range p.doc.Clusters {
		for _, u := range c.Updates {
			if u.Name == name {
				return c, u, true
			}
		}
	}
	return c, u, false
}

func isNodeUpdate(p *picture, name string) (about string, ok bool) {
	c, u, ok := findNodeUpdate(p, name)
	return "cluster " + status.ClusterRef(p.doc.Clusters, c), ok && u.State != deletingUpdate
}

func isNodeUpdateRunning(p *picture, name string) (about string, ok bool) {
	_, u, _ := findNodeUpdate(p, name)
	about, ok = isNodeUpdate(p, name)
	return about, ok && !u.Paused
}

func isNodeUpdatePaused(p *picture, name string) (about string, ok bool) {
	_, u, _ := findNodeUpdate(p, name)
	about, ok = isNodeUpdate(p, name)
	return about, ok && u.Paused
}

// deletingUpdate is the state of one that puts its nodes back into service and goes.
var deletingUpdate = strings.ToLower(bpaapi.PhaseDeleting)

// typedForNodeUpdate is the name of one that the page did not make, and cannot make again.
func typedForNodeUpdate(p *picture, name string) string {
	if c, _, _ := findNodeUpdate(p, name); name == c.Namespace+"/"+nodeUpdateName(c) {
		return ""
	}
	return name
}

// describeRestarts says what a change of a NodeUpdate does besides.
func describeRestarts(p *picture, name string) []string {
	if _, u, _ := findNodeUpdate(p, name); u.Reboot == bpaapi.RebootAlways {
		return []string{"It restarts every node once after each change of it, and this is one: all nodes restart again."}
	}
	return nil
}
