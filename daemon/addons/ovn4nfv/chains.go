package ovn4nfv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"firstlight.dev/firstlight/assets/label"
)

// routeChains gives the pods of chains their routes, and takes them from pods that are of none any more.
func (o *Operator) routeChains(
	ctx context.Context, ports []podPort, outcomes map[*unstructured.Unstructured]outcome,
) error {
	list, err := o.listers[chainings].List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list chains: %w", err)
	}
	pods, err := o.pods.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	interfaces := map[types.UID][]Interface{}
	for _, p := range ports {
		interfaces[types.UID(p.UID)] = append(interfaces[types.UID(p.UID)], p.Interface)
	}

	wanted := map[types.UID][]PodRoute{}
	for _, object := range list {
		one, ok := object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		routes, is := planChain(one, pods, interfaces, wanted)
		outcomes[one] = is
		maps.Copy(wanted, routes)
	}
	var failed []error
	for _, pod := range pods {
		before, isRouted := pod.Annotations[label.Routes]
		routes := wanted[pod.UID]
		if !isRouted && routes == nil {
			continue
		}
		text, err := json.Marshal(routes)
		if err != nil {
			return fmt.Errorf("encode routes: %w", err)
		}
		if routes == nil {
			text = []byte("[]") // the agent takes away what was
		}
		if before != string(text) {
			failed = append(failed, o.writeAnnotation(ctx, pod, label.Routes, string(text)))
		}
	}
	return errors.Join(failed...)
}

// planChain decides on one chain. A pod is of one chain.
func planChain(
	object *unstructured.Unstructured, pods []*corev1.Pod, interfaces map[types.UID][]Interface, taken map[types.UID][]PodRoute,
) (map[types.UID][]PodRoute, outcome) {
	var spec ChainSpec
	err := decode(object, &spec)
	var c Chain
	if err == nil {
		c, err = ReadChain(spec)
	}
	if err == nil && c.Namespace != object.GetNamespace() {
		err = fmt.Errorf("spec.routingSpec.namespace %s is another than the chain's own; create the chain there", c.Namespace)
	}
	if err != nil {
		return nil, outcome{stateFailed, err.Error()}
	}

	functions, err := c.findFunctions(pods, interfaces)
	var routes map[types.UID][]PodRoute
	if err == nil {
		routes, err = c.planRoutes(functions)
	}
	for _, f := range functions {
		if _, isTaken := taken[f.uid]; isTaken && err == nil {
			err = fmt.Errorf("pod %s is of another chain", f.name)
		}
	}
	if err != nil {
		return nil, outcome{statePending, err.Error()}
	}
	return routes, outcome{stateCreated, ""}
}
