package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// inventoryNamespace is where a target keeps what it was given. It is on the target, so that a new appliance, or one
// that lost its database, finds it.
const inventoryNamespace = "kpa-system"

// entry is one object.
type entry struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

func entryOf(o *unstructured.Unstructured) entry {
	return entry{o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName()}
}

func (e entry) object() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(e.APIVersion)
	u.SetKind(e.Kind)
	u.SetNamespace(e.Namespace)
	u.SetName(e.Name)
	return u
}

// key is the object whatever the version of its kind.
func (e entry) key() string {
	return e.object().GroupVersionKind().GroupKind().String() + " " + e.Namespace + "/" + e.Name
}

// inventory is what a Component has on a target, or may have: it is written before the objects are.
type inventory []entry

func newInventory(objects []*unstructured.Unstructured) inventory {
	all := make(inventory, 0, len(objects))
	for _, o := range objects {
		all = append(all, entryOf(o))
	}
	return all.sortEntries()
}

func (i inventory) sortEntries() inventory {
	slices.SortFunc(i, func(a, b entry) int { return strings.Compare(a.key(), b.key()) })
	return i
}

// union has the entries of both; of two with one key that of other.
func (i inventory) union(other inventory) inventory {
	return append(i.without(other), other...).sortEntries()
}

// without has the entries that other lacks.
func (i inventory) without(other inventory) inventory {
	keys := map[string]bool{}
	for _, e := range other {
		keys[e.key()] = true
	}
	var all inventory
	for _, e := range i {
		if !keys[e.key()] {
			all = append(all, e)
		}
	}
	return all
}

func (i inventory) describe() string {
	var names []string
	for _, e := range i {
		names = append(names, describe(e.object()))
	}
	return join(names)
}

// stages divides what is removed: custom resources go while what serves them still runs, kinds and namespaces last.
func (i inventory) stages() []inventory {
	var groups []string
	for _, e := range i {
		if isKind(e.object()) {
			_, group, _ := strings.Cut(e.Name, ".")
			groups = append(groups, group)
		}
	}

	stages := make([]inventory, 3)
	for _, e := range i {
		stage := 1
		switch o := e.object(); {
		case isKind(o), isNamespace(o):
			stage = 2
		case slices.Contains(groups, o.GroupVersionKind().Group):
			stage = 0
		}
		stages[stage] = append(stages[stage], e)
	}

	return stages
}

// remove deletes what still belongs to the Component, and returns what is not gone yet. Namespaces that a cluster is
// born with stay.
func (t *Target) remove(ctx context.Context, id ID, all inventory) (inventory, error) {
	var objects []*unstructured.Unstructured
	for _, e := range all {
		if e.Kind != "Namespace" || !slices.Contains(bornWith, e.Name) {
			objects = append(objects, e.object())
		}
	}

	sortForApply(objects)
	slices.Reverse(objects)
	var left []*unstructured.Unstructured
	for _, o := range objects {
		gone, err := t.removeOne(ctx, id, o)
		if err != nil {
			return nil, fmt.Errorf("remove %s: %w", describe(o), err)
		}
		if !gone {
			left = append(left, o)
		}
	}

	return newInventory(left), nil
}

var bornWith = []string{
	metav1.NamespaceDefault,
	metav1.NamespaceSystem,
	metav1.NamespacePublic,
	corev1.NamespaceNodeLease,
	inventoryNamespace,
}

// What Helm's annotation of an object says that stays when all else is removed (helm.sh/helm/v4, pkg/kube).
const (
	annotationPolicy = "helm.sh/resource-policy"
	policyKeep       = "keep"
)

// disown takes the Component's labels from an object that stays, so that another one may have it.
func (t *Target) disown(ctx context.Context, o *metav1.PartialObjectMetadata) error {
	text := fmt.Sprintf(`{"metadata":{"labels":{%q:null,%q:null}}}`, labelNamespace, labelName)
	return client.IgnoreNotFound(t.client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(text))))
}

// removeOne deletes an object if it is still the Component's, and reports whether it is gone, or another's. What is deleted
// is what was read: one that someone created again in between has another UID.
func (t *Target) removeOne(ctx context.Context, id ID, o *unstructured.Unstructured) (bool, error) {
	have := metadataOf(o.GroupVersionKind())
	err := t.client.Get(ctx, client.ObjectKeyFromObject(o), have)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return true, nil // or its kind is gone, and all of it
	case err != nil:
		return false, err
	case ownerOf(have) != id:
		return true, nil // another's stays
	case have.GetAnnotations()[annotationPolicy] == policyKeep:
		return true, t.disown(ctx, have)
	case !have.GetDeletionTimestamp().IsZero():
		return false, nil
	}

	uid := have.GetUID()
	err = t.client.Delete(
		ctx, have, client.PropagationPolicy(metav1.DeletePropagationBackground),
		client.Preconditions{UID: &uid},
	)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return false, err
	}

	err = t.client.Get(ctx, client.ObjectKeyFromObject(o), have)
	return apierrors.IsNotFound(err) || meta.IsNoMatchError(err), nil
}

// inventoryKey is where the inventory of a Component is; names of both may be as long as names are.
func inventoryKey(id ID) client.ObjectKey {
	sum := sha256.Sum256([]byte(id.Namespace + "/" + id.Name))
	return client.ObjectKey{Namespace: inventoryNamespace, Name: "component-" + hex.EncodeToString(sum[:8])}
}
