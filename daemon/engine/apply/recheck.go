package apply

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// listFrom is how many objects of one kind and namespace a set has at least, for these to be listed.
const listFrom = 5

// Recheck is CheckCurrent for a set that was current some time ago. It asks for less: objects of one kind and namespace
// are listed if the set has several, and the API server answers FromCache. What such an answer does not show as wanted
// is read again by itself, as CheckCurrent does: no one acts on an answer that was only late.
func (s Set) Recheck(ctx context.Context, c client.Reader) error {
	digests := listDigests(ctx, c, s.Objects)
	for _, want := range s.Objects {
		place := placeOf(want)
		applied, isListed := digests[place][want.GetName()]
		if digests[place] == nil {
			applied, isListed = cachedDigest(ctx, c, want)
		}
		if isListed && applied == want.GetAnnotations()[Annotation] {
			continue
		}
		if err := checkCurrent(ctx, c, want); err != nil {
			return err
		}
	}
	return nil
}

// place is what one request lists.
type place struct {
	kind      schema.GroupVersionKind
	namespace string // "": of the cluster
}

func placeOf(o *unstructured.Unstructured) place {
	return place{o.GroupVersionKind(), o.GetNamespace()}
}

// listDigests returns what was applied last to the objects of a place, by name, for each place with several of the
// objects. A place that cannot be listed is left out.
func listDigests(ctx context.Context, c client.Reader, objects []*unstructured.Unstructured) map[place]map[string]string {
	count := map[place]int{}
	for _, o := range objects {
		count[placeOf(o)]++
	}

	digests := map[place]map[string]string{}
	for p, n := range count {
		if n < listFrom {
			continue
		}

		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(p.kind.GroupVersion().WithKind(p.kind.Kind + "List"))
		if err := c.List(ctx, list, client.InNamespace(p.namespace), FromCache{}); err != nil {
			continue
		}

		digests[p] = map[string]string{}
		for i := range list.Items {
			digests[p][list.Items[i].Name] = list.Items[i].Annotations[Annotation]
		}
	}
	return digests
}

// cachedDigest is what was applied last to an object, if the API server's cache has it.
func cachedDigest(ctx context.Context, c client.Reader, o *unstructured.Unstructured) (digest string, isThere bool) {
	have := &metav1.PartialObjectMetadata{}
	have.SetGroupVersionKind(o.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), have, FromCache{}); err != nil {
		return "", false
	}
	return have.GetAnnotations()[Annotation], true
}

// Outline is the set by names and digests alone: enough for CheckCurrent and Recheck, and no definition of kinds is kept
// in memory while all is well. It is not to be applied.
func (s Set) Outline() Set {
	outline := Set{Owner: s.Owner}
	for _, o := range s.Objects {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(o.GroupVersionKind())
		u.SetNamespace(o.GetNamespace())
		u.SetName(o.GetName())
		u.SetAnnotations(map[string]string{Annotation: o.GetAnnotations()[Annotation]})
		outline.Objects = append(outline.Objects, u)
	}
	return outline
}
