package ovn4nfv

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// readNetworks understands the networks that there are. Of a wrong one nothing changes: its switch is in kept.
func (o *Operator) readNetworks() (
	known map[string]Network, kept map[string]bool, outcomes map[*unstructured.Unstructured]outcome, err error,
) {
	known, kept, outcomes = map[string]Network{}, map[string]bool{}, map[*unstructured.Unstructured]outcome{}
	var all []*unstructured.Unstructured
	for _, kind := range []schema.GroupVersionResource{networks, providers} {
		list, err := o.listers[kind].List(labels.Everything())
		if err != nil {
			return nil, nil, nil, fmt.Errorf("list %s: %w", kind.Resource, err)
		}
		for _, object := range list {
			if one, ok := object.(*unstructured.Unstructured); ok {
				all = append(all, one)
			}
		}
	}

	// Of two that cannot both be, the older one is.
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int {
		x, y := a.GetCreationTimestamp(), b.GetCreationTimestamp()
		if c := x.Compare(y.Time); c != 0 {
			return c
		}
		return strings.Compare(a.GetKind(), b.GetKind())
	})
	for _, object := range all {
		key := object.GetNamespace() + "/" + object.GetName()
		if other, isTaken := known[key]; isTaken {
			outcomes[object] = outcome{stateFailed, fmt.Sprintf("a %s has the name %s already; give this one another",
				kindOf(other), key)}
			continue
		}
		n, ignored, err := readObject(object)
		if err != nil {
			kept[n.switchName()] = true
			outcomes[object] = outcome{stateFailed, err.Error()}
			continue
		}
		known[key] = n
		outcomes[object] = outcome{stateCreated, ignored}
	}
	return known, kept, outcomes, nil
}

func kindOf(n Network) string {
	if n.Provider != nil {
		return "ProviderNetwork"
	}
	return "Network"
}

// readObject understands an object, and says which of its fields have no effect.
func readObject(object *unstructured.Unstructured) (n Network, ignored string, err error) {
	var spec ProviderSpec
	n = Network{Namespace: object.GetNamespace(), Name: object.GetName()}
	if err := decode(object, &spec); err != nil {
		return n, "", err
	}
	if object.GetKind() == "ProviderNetwork" {
		n, err = ReadProvider(n.Namespace, n.Name, spec)
	} else {
		n, err = ReadNetwork(n.Namespace, n.Name, spec.NetworkSpec)
	}
	if spec.DNS != nil || len(spec.Routes) > 0 {
		ignored = "spec.dns and spec.routes have no effect"
	}
	return n, ignored, err
}
