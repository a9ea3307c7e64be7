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

// Components are all that an API server has.
type Components struct {
	isServed bool // the API server has the kind
	all      []v1alpha1.Component
}

// ReadComponents lists them. An API without the kind has none.
func ReadComponents(ctx context.Context, c client.Reader) (Components, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ComponentList"))
	if err := c.List(ctx, list); meta.IsNoMatchError(err) {
		return Components{}, nil
	} else if err != nil {
		return Components{}, fmt.Errorf("list Components: %w", err)
	}

	a := Components{isServed: true, all: make([]v1alpha1.Component, len(list.Items))}
	for i, u := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &a.all[i]); err != nil {
			return Components{}, fmt.Errorf("read %s/%s: %w", u.GetNamespace(), u.GetName(), err)
		}
	}

	return a, nil
}

// Status is how they stand, for the appliance's status; nil without the kind.
func (a Components) Status() []status.Component {
	if !a.isServed {
		return nil
	}

	all := make([]status.Component, 0, len(a.all))
	for i := range a.all {
		all = append(all, summarize(&a.all[i]))
	}
	return all
}

func summarize(k *v1alpha1.Component) status.Component {
	s := status.Component{
		Name:     k.Namespace + "/" + k.Name,
		State:    stateOf(k.Status.Phase),
		Clusters: k.Status.Ready,
		Text:     k.Status.Message,
	}
	for _, c := range k.Status.Clusters {
		s.On = append(s.On, status.ComponentOn{
			Cluster:  c.Name,
			State:    stateOf(c.Phase),
			Reason:   c.Reason,
			Text:     c.Message,
			Revision: c.Revision,
			Objects:  c.Objects,
		})
	}
	for _, d := range k.Spec.DependsOn {
		s.After = append(s.After, d.Name)
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
