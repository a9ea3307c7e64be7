package engine

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// firstKinds and lastKinds are applied in this order before and after all others. A webhook is last: until what serves
// it runs, it would refuse the rest.
var (
	firstKinds = []string{
		"CustomResourceDefinition",
		"Namespace",
		"ResourceQuota",
		"LimitRange",
		"PriorityClass",
		"StorageClass",
		"ServiceAccount",
		"ClusterRole",
		"ClusterRoleBinding",
		"Role",
		"RoleBinding",
		"ConfigMap",
		"Secret",
		"PersistentVolume",
		"PersistentVolumeClaim",
		"Service",
	}
	lastKinds = []string{
		"APIService",
		"ValidatingAdmissionPolicy",
		"ValidatingAdmissionPolicyBinding",
		"ValidatingWebhookConfiguration",
		"MutatingWebhookConfiguration",
	}
)

// rank orders kinds for application; deletion goes the other way.
func rank(o *unstructured.Unstructured) int {
	if i := slices.Index(firstKinds, o.GetKind()); i >= 0 {
		return i
	}
	if i := slices.Index(lastKinds, o.GetKind()); i >= 0 {
		return len(firstKinds) + 1 + i
	}
	return len(firstKinds)
}

// sortForApply orders objects by their kinds, and within one kind by their names.
func sortForApply(objects []*unstructured.Unstructured) {
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(describe(a), describe(b))
	})
}

func isKind(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind().Group == "apiextensions.k8s.io" && o.GetKind() == "CustomResourceDefinition"
}

func isNamespace(o *unstructured.Unstructured) bool {
	return o.GetAPIVersion() == "v1" && o.GetKind() == "Namespace"
}

// splitStages divides what is applied, each in its order: the rest can only be asked for when kinds and namespaces are
// there.
func splitStages(objects []*unstructured.Unstructured) (first, rest []*unstructured.Unstructured) {
	sortForApply(objects)
	for _, o := range objects {
		if isKind(o) || isNamespace(o) {
			first = append(first, o)
		} else {
			rest = append(rest, o)
		}
	}
	return first, rest
}
