// Package apply keeps sets of objects in a Kubernetes API as they are wanted: by
// server-side apply, each set under the name of its owner. Which fields are whose is the
// API server's knowledge (metadata.managedFields), not ours.
package apply

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/label"
)

// Annotation holds the digest of what was applied last. It tells a set that is current
// from one that must be applied again; it is no lock and holds nothing secret.
const Annotation = label.Applied

// Set is objects that belong together, in the order in which they are applied.
type Set struct {
	Owner   string // field manager
	Objects []*unstructured.Unstructured
}

// New makes a set of typed or unstructured objects. What only the server may say (status,
// creationTimestamp) is left out, and every object carries the digest of the rest.
func New(owner string, objects ...client.Object) (Set, error) {
	s := Set{Owner: owner}
	for _, o := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return Set{}, fmt.Errorf("convert %s: %w", objectName(o), err)
		}

		u := &unstructured.Unstructured{Object: content}
		if u.GetKind() == "" || u.GetAPIVersion() == "" {
			return Set{}, fmt.Errorf("object %q says neither kind nor API version", o.GetName())
		}

		unstructured.RemoveNestedField(u.Object, "status")
		unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
		unstructured.RemoveNestedField(u.Object, "spec", "template", "metadata", "creationTimestamp")
		digest, err := digestOf(u)
		if err != nil {
			return Set{}, err
		}

		annotations := u.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}

		annotations[Annotation] = digest
		u.SetAnnotations(annotations)
		s.Objects = append(s.Objects, u)
	}
	return s, nil
}

// Read makes a set of a YAML stream.
func Read(owner string, stream []byte) (Set, error) {
	all, err := Decode(stream)
	if err != nil {
		return Set{}, fmt.Errorf("read objects of %s: %w", owner, err)
	}

	objects := make([]client.Object, len(all))
	for i, u := range all {
		objects[i] = u
	}
	return New(owner, objects...)
}

// CheckCurrent is nil if every object is there as it was last applied from this set. Otherwise
// it says which is not.
//
// Only metadata is asked for: it is asked again and again, and a definition of BareMetalHosts alone is
// 100 KiB. A reader with a cache would watch every object of these kinds: take one without.
func (s Set) CheckCurrent(ctx context.Context, c client.Reader) error {
	for _, want := range s.Objects {
		if err := checkCurrent(ctx, c, want); err != nil {
			return err
		}
	}
	return nil
}

// StaleSubset is the part of the set that is not current: what applying it leaves alone is as people changed it.
func (s Set) StaleSubset(ctx context.Context, c client.Reader) Set {
	part := Set{Owner: s.Owner}
	for _, want := range s.Objects {
		if checkCurrent(ctx, c, want) != nil {
			part.Objects = append(part.Objects, want)
		}
	}
	return part
}

func checkCurrent(ctx context.Context, c client.Reader, want *unstructured.Unstructured) error {
	have := &metav1.PartialObjectMetadata{}
	have.SetGroupVersionKind(want.GroupVersionKind())
	err := c.Get(ctx, client.ObjectKeyFromObject(want), have)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return fmt.Errorf("%s does not exist", objectName(want))
	case err != nil:
		return fmt.Errorf("read %s: %w", objectName(want), err)
	case have.GetAnnotations()[Annotation] != want.GetAnnotations()[Annotation]:
		return fmt.Errorf("%s is not as wanted", objectName(want))
	}

	return nil
}

// CacheTTL is how long a Cache takes a set for current without looking again.
const CacheTTL = 2 * time.Minute

// Cache is what a stage remembers of its last look at a set. An appliance keeps more than a hundred objects, and nobody
// changes them but by hand.
type Cache struct {
	now func() time.Time // nil: the clock

	mu     sync.Mutex
	digest string // of the set that was current
	until  time.Time
}

// CheckCurrent is Set.CheckCurrent, not asked again for CacheTTL after it was nil for this very set, and Set.Recheck then.
func (m *Cache) CheckCurrent(ctx context.Context, s Set, c client.Reader) error {
	now := time.Now
	if m.now != nil {
		now = m.now
	}

	var digest strings.Builder
	for _, o := range s.Objects {
		digest.WriteString(objectName(o) + " " + o.GetAnnotations()[Annotation] + "\n")
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	wasCurrent := m.digest == digest.String()
	if wasCurrent && now().Before(m.until) {
		return nil
	}

	m.digest = ""
	check := s.CheckCurrent
	if wasCurrent {
		check = s.Recheck
	}
	if err := check(ctx, c); err != nil {
		return err
	}

	m.digest, m.until = digest.String(), now().Add(CacheTTL)
	return nil
}

// Apply writes every object of the set and goes on after a refusal, so that one bad
// object keeps none of the others back. It returns all refusals.
func (s Set) Apply(ctx context.Context, c client.Client) error {
	var all []error
	for _, o := range s.Objects {
		err := c.Apply(
			ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner(s.Owner),
			client.ForceOwnership,
		)
		if err != nil {
			all = append(all, fmt.Errorf("apply %s: %w", objectName(o), err))
		}
	}
	return errors.Join(all...)
}

func digestOf(u *unstructured.Unstructured) (string, error) {
	text, err := json.Marshal(u.Object) // keys are sorted
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", objectName(u), err)
	}

	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

func objectName(o client.Object) string {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if o.GetNamespace() == "" {
		return fmt.Sprintf("%s %s", kind, o.GetName())
	}
	return fmt.Sprintf("%s %s/%s", kind, o.GetNamespace(), o.GetName())
}
