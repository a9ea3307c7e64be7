package apply

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

// pageSize is how many objects one request asks for.
const pageSize = 200

// Applied is an object of a set, as the API has it.
type Applied struct {
	Owner  string // field manager of the set
	Object *unstructured.Unstructured
}

// ListApplied returns all objects in the API that were applied from sets, by kind, namespace and name: what is made in
// code cannot be looked at otherwise. What only the server says is left out, and so are the values of Secrets.
// A kind that cannot be listed is an error once the others are there.
func ListApplied(ctx context.Context, kinds discovery.DiscoveryInterface, api dynamic.Interface) ([]Applied, error) {
	groups, err := discovery.ServerPreferredResources(kinds)
	if len(groups) == 0 && err != nil {
		return nil, fmt.Errorf("ask the API for its kinds: %w", err)
	}

	var all []Applied
	var failed []string
	for _, group := range groups {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range group.APIResources {
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "patch") {
				continue
			}
			found, err := listKind(ctx, api.Resource(version.WithResource(r.Name)))
			if err != nil {
				failed = append(failed, r.Name+": "+err.Error())
			}
			all = append(all, found...)
		}
	}

	slices.SortStableFunc(all, func(a, b Applied) int {
		return cmp.Or(
			strings.Compare(a.Object.GetKind(), b.Object.GetKind()),
			strings.Compare(a.Object.GetNamespace(), b.Object.GetNamespace()),
			strings.Compare(a.Object.GetName(), b.Object.GetName()),
		)
	})
	if len(failed) > 0 {
		return all, fmt.Errorf("list objects: %s", strings.Join(failed, "; "))
	}
	return all, nil
}

// listKind is what was applied of one kind, page by page.
func listKind(ctx context.Context, objects dynamic.ResourceInterface) (all []Applied, err error) {
	var next string
	for {
		list, err := objects.List(ctx, metav1.ListOptions{Limit: pageSize, Continue: next})
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			return all, nil
		}
		if err != nil {
			return all, err
		}

		for i := range list.Items {
			o := &list.Items[i]
			if o.GetAnnotations()[Annotation] == "" {
				continue
			}
			all = append(all, Applied{Owner: ownerOf(o), Object: asApplied(o)})
		}

		if next = list.GetContinue(); next == "" {
			return all, nil
		}
	}
}

// ownerOf is the field manager whose fields include the annotation of sets.
func ownerOf(o *unstructured.Unstructured) string {
	for _, m := range o.GetManagedFields() {
		if m.FieldsV1 != nil && strings.Contains(string(m.FieldsV1.Raw), `"f:`+Annotation+`"`) {
			return m.Manager
		}
	}
	return ""
}

// asApplied is an object without what only the server says, and without a Secret's values.
func asApplied(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	for _, key := range []string{"managedFields", "creationTimestamp", "resourceVersion", "uid", "generation", "selfLink"} {
		unstructured.RemoveNestedField(o.Object, "metadata", key)
	}
	unstructured.RemoveNestedField(o.Object, "metadata", "annotations", Annotation)
	unstructured.RemoveNestedField(o.Object, "status")
	if o.GetKind() != "Secret" {
		return o
	}

	for _, key := range []string{"data", "stringData"} {
		values, _, _ := unstructured.NestedMap(o.Object, key)
		for name := range values {
			values[name] = "" // valid base64, and nothing
		}
		if len(values) > 0 {
			o.Object[key] = values
		}
	}
	return o
}
