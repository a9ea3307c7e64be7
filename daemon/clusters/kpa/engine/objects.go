package engine

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

var negotiator = clientgoscheme.Codecs.WithoutConversion()

// ReadObjects reads YAML documents. Two of one name are a mistake: each would undo the other.
func ReadObjects(text []byte) ([]*unstructured.Unstructured, error) {
	objects, err := decode(text)
	if err != nil {
		return nil, newFault(v1alpha1.PhaseRefused, plan.ReasonSourceRefused, "the source is no list of objects: %v", err)
	}

	seen := map[string]bool{}
	for _, o := range objects {
		if o.GetName() == "" {
			return nil, newFault(
				v1alpha1.PhaseRefused, plan.ReasonSourceRefused,
				"a %s of the source has no metadata.name; generateName cannot be compared with what is there", o.GetKind(),
			)
		}
		key := o.GroupVersionKind().GroupKind().String() + " " + describe(o)
		if seen[key] {
			return nil, newFault(
				v1alpha1.PhaseRefused, plan.ReasonSourceRefused, "the source has %s twice; take one out", describe(o),
			)
		}
		seen[key] = true
		unstructured.RemoveNestedField(o.Object, "status")
	}
	if len(objects) == 0 {
		return nil, newFault(v1alpha1.PhaseRefused, plan.ReasonSourceRefused, "the source has no objects")
	}

	return objects, nil
}

// describe is an object as a person names it.
func describe(o client.Object) string {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}

// setNamespaces gives each object of a namespaced kind that names no namespace one, and takes it from the others.
func (t *Target) setNamespaces(objects []*unstructured.Unstructured, namespace string) error {
	scopes := scopesOf(objects)
	for _, o := range objects {
		namespaced, known := scopes[o.GroupVersionKind().GroupKind()]
		if !known {
			m, err := t.mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
			switch {
			case meta.IsNoMatchError(err):
				return newFault(
					v1alpha1.PhaseFailed, plan.ReasonApplyFailed,
					"%s: the cluster has no kind %s of %s; install what defines it first, and name that in dependsOn",
					describe(o), o.GetKind(), o.GetAPIVersion(),
				)
			case err != nil:
				return err
			}
			namespaced = m.Scope.Name() == meta.RESTScopeNameNamespace
		}

		switch {
		case !namespaced:
			o.SetNamespace("")
		case o.GetNamespace() == "":
			o.SetNamespace(namespace)
		}
	}

	return nil
}

// scopesOf says of the kinds that a bundle defines whether they are namespaced.
func scopesOf(objects []*unstructured.Unstructured) map[schema.GroupKind]bool {
	scopes := map[schema.GroupKind]bool{}
	for _, o := range objects {
		if !isKind(o) {
			continue
		}
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		scope, _, _ := unstructured.NestedString(o.Object, "spec", "scope")
		scopes[schema.GroupKind{Group: group, Kind: kind}] = scope == "Namespaced"
	}

	return scopes
}

// ensureNamespace creates a namespace if it is missing. It belongs to no Component, and stays.
func (t *Target) ensureNamespace(ctx context.Context, name string) error {
	err := t.client.Get(ctx, client.ObjectKey{Name: name}, metadataOf(corev1.SchemeGroupVersion.WithKind("Namespace")))
	if !apierrors.IsNotFound(err) {
		return err
	}

	err = t.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// checkOwners refuses to write what another Component has: both would change it back and forth for ever.
func (t *Target) checkOwners(ctx context.Context, id ID, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		have := metadataOf(o.GroupVersionKind())
		err := t.client.Get(ctx, client.ObjectKeyFromObject(o), have)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return err
		}
		if other := ownerOf(have); other != (ID{}) && other != id {
			return newFault(
				v1alpha1.PhaseRefused, plan.ReasonConflict,
				"%s belongs to Component %s/%s; take it out of one of the two", describe(o), other.Namespace, other.Name,
			)
		}
	}

	return nil
}

func metadataOf(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(kind)
	return o
}

// labelsOf mark what a Component has.
func labelsOf(id ID) map[string]string {
	return map[string]string{labelNamespace: id.Namespace, labelName: id.Name}
}

var (
	labelNamespace = v1alpha1.GroupVersion.Group + "/namespace"
	labelName      = v1alpha1.GroupVersion.Group + "/name"
)

func setOwner(o *unstructured.Unstructured, id ID) {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, labelsOf(id))
	o.SetLabels(labels)
}

// ownerOf is the Component that an object belongs to; zero if none.
func ownerOf(o client.Object) ID {
	return ID{o.GetLabels()[labelNamespace], o.GetLabels()[labelName]}
}

// HasNode reports whether one node of the target has all these labels.
func (t *Target) HasNode(ctx context.Context, labels map[string]string) (bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := t.client.List(ctx, list, client.MatchingLabels(labels), client.Limit(1)); err != nil {
		return false, fmt.Errorf("list nodes: %w", err)
	}
	return len(list.Items) > 0, nil
}

// join lists a few names and counts the others.
func join(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
