package ovn4nfv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// assign gives pods that have none yet what they ask for, and returns the interfaces of all pods. A pod that cannot be
// written to is a part of failed, and breaks no other.
func (o *Operator) assign(ctx context.Context, known map[string]Network) (ports []podPort, failed, err error) {
	list, err := o.pods.List(labels.Everything())
	if err != nil {
		return nil, nil, fmt.Errorf("list pods: %w", err)
	}

	var pending []*corev1.Pod
	used := users{}
	seen := map[types.UID]bool{}
	have := func(pod *corev1.Pod, all []Interface) {
		used.add(pod.Namespace+"/"+pod.Name, all)
		for _, i := range all {
			ports = append(ports, podPort{pod.Namespace, pod.Name, string(pod.UID), i})
		}
	}
	for _, pod := range list {
		if !isAttached(pod) {
			continue
		}
		seen[pod.UID] = true
		text, isDone := pod.Annotations[InterfacesKey]
		if !isDone {
			if given, isGiven := o.given[pod.UID]; isGiven {
				have(pod, given)
			} else if pod.Spec.NodeName != "" {
				pending = append(pending, pod)
			}
			continue
		}
		delete(o.given, pod.UID)
		all, err := ParseInterfaces(text)
		if err != nil {
			o.warn(pod, err.Error())
			continue
		}
		have(pod, all)
	}
	o.forget(seen)

	slices.SortFunc(pending, func(a, b *corev1.Pod) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	for _, pod := range pending {
		requests, err := ParseRequests(pod.Annotations[NetworkKey])
		var given []Interface
		if err == nil {
			given, err = allocate(pod.Namespace+"/"+pod.Name, pod.Namespace, requests, known, used)
		}
		if err != nil {
			o.warn(pod, err.Error())
			continue
		}
		if err := o.annotate(ctx, pod, given); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if o.given == nil {
			o.given = map[types.UID][]Interface{}
		}
		o.given[pod.UID] = given
		have(pod, given)
	}
	return ports, failed, nil
}

// isAttached reports whether a pod has, or is to have, interfaces. What a pod has that ended is free.
func isAttached(pod *corev1.Pod) bool {
	_, asks := pod.Annotations[NetworkKey]
	return asks && !pod.Spec.HostNetwork && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

func (o *Operator) forget(seen map[types.UID]bool) {
	for uid := range o.given {
		if !seen[uid] {
			delete(o.given, uid)
		}
	}
}

// annotate writes what a pod gets, unless the pod changed since it was read.
func (o *Operator) annotate(ctx context.Context, pod *corev1.Pod, given []Interface) error {
	if given == nil {
		given = []Interface{}
	}
	text, err := json.Marshal(given)
	if err != nil {
		return fmt.Errorf("encode interfaces: %w", err)
	}
	return o.writeAnnotation(ctx, pod, InterfacesKey, string(text))
}

func (o *Operator) writeAnnotation(ctx context.Context, pod *corev1.Pod, key, text string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "annotations": map[string]string{key: text},
	}})
	if err != nil {
		return fmt.Errorf("encode an annotation: %w", err)
	}
	_, err = o.Client.CoreV1().Pods(pod.Namespace).
		Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write annotation %s of pod %s/%s: %w", key, pod.Namespace, pod.Name, err)
	}
	return nil
}
