package kpa

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

// ListComponents is how all Components stand, for the appliance's status. An API without the kind has none.
func ListComponents(ctx context.Context, c client.Client) ([]status.Component, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ComponentList"))
	if err := c.List(ctx, list); meta.IsNoMatchError(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list Components: %w", err)
	}

	all := make([]status.Component, 0, len(list.Items))
	for _, u := range list.Items {
		var k v1alpha1.Component
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &k); err != nil {
			return nil, fmt.Errorf("read %s/%s: %w", u.GetNamespace(), u.GetName(), err)
		}
		all = append(all, summarize(&k))
	}

	return all, nil
}

func summarize(k *v1alpha1.Component) status.Component {
	s := status.Component{
		Name:     k.Namespace + "/" + k.Name,
		State:    stateOf(k.Status.Phase),
		Clusters: k.Status.Ready,
		Text:     k.Status.Message,
	}
	for _, c := range k.Status.Clusters {
		s.On = append(s.On, status.ComponentOn{Cluster: c.Name, State: stateOf(c.Phase), Reason: c.Reason, Text: c.Message})
	}
	return s
}

// stateOf is a phase as the appliance's status says it.
func stateOf(phase string) string {
	if phase == "" {
		phase = "new"
	}
	return strings.ToLower(phase)
}
