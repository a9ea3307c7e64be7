package engine

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

// record is what a target knows of a Component, in a ConfigMap.
type record struct {
	objects inventory
	release plan.Release
	hooks   inventory // objects of hooks that are there, or may be
	last    bool      // a Secret of the same name has the hooks of the removal
}

// releaseText is a record without its objects, as it is written.
type releaseText struct {
	plan.Release
	Hooks inventory `json:"hooks,omitempty"`
	Last  bool      `json:"last,omitempty"`
}

func (t *Target) readRecord(ctx context.Context, id ID) (record, error) {
	var c corev1.ConfigMap
	err := t.client.Get(ctx, inventoryKey(id), &c)
	if apierrors.IsNotFound(err) {
		return record{}, nil
	}
	if err != nil {
		return record{}, fmt.Errorf("read inventory: %w", err)
	}

	var all record
	var text releaseText
	if err = json.Unmarshal([]byte(c.Data["objects"]), &all.objects); err == nil && c.Data["release"] != "" {
		err = json.Unmarshal([]byte(c.Data["release"]), &text)
	}
	if err != nil {
		return record{}, fmt.Errorf("read inventory: ConfigMap %s/%s: %w", c.Namespace, c.Name, err)
	}
	all.release, all.hooks, all.last = text.Release, text.Hooks, text.Last
	return all, nil
}

func (t *Target) writeRecord(ctx context.Context, id ID, r record) error {
	if err := t.ensureNamespace(ctx, inventoryNamespace); err != nil {
		return err
	}
	objects, err := json.Marshal(r.objects)
	if err != nil {
		return err
	}
	release, err := json.Marshal(releaseText{r.release, r.hooks, r.last})
	if err != nil {
		return err
	}

	u := newRecordObject(id, "ConfigMap")
	u.Object["data"] = map[string]any{"objects": string(objects), "release": string(release)}
	if err := t.applyOne(ctx, u); err != nil {
		return fmt.Errorf("write inventory: %w", err)
	}
	return nil
}

func newRecordObject(id ID, kind string) *unstructured.Unstructured {
	key := inventoryKey(id)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": kind,
		"metadata": map[string]any{
			"namespace": key.Namespace, "name": key.Name,
			"annotations": map[string]any{v1alpha1.GroupVersion.Group + "/component": id.Namespace + "/" + id.Name},
		},
	}}
}

// deleteRecord forgets a Component. The Secret goes first: what says that there is one must outlive it.
func (t *Target) deleteRecord(ctx context.Context, id ID, known record) error {
	kinds := []string{"ConfigMap"}
	if known.last {
		kinds = []string{"Secret", "ConfigMap"}
	}
	for _, kind := range kinds {
		if err := client.IgnoreNotFound(t.client.Delete(ctx, newRecordObject(id, kind))); err != nil {
			return fmt.Errorf("delete inventory: %w", err)
		}
	}
	return nil
}

// writeLastHooks writes the hooks of the removal to the target: the source may be gone by then, and the appliance
// another one. They may hold passwords, hence a Secret.
func (t *Target) writeLastHooks(ctx context.Context, id ID, hooks []hook) error {
	items := []any{}
	for _, o := range objectsOf(hooks) {
		items = append(items, o.Object)
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		return err
	}

	u := newRecordObject(id, "Secret")
	u.Object["stringData"] = map[string]any{"hooks": string(text)}
	if err := foldStringData(u); err != nil {
		return err
	}
	if err := t.applyOne(ctx, u); err != nil {
		return fmt.Errorf("write hooks of the removal: %w", err)
	}
	return nil
}

func (t *Target) readLastHooks(ctx context.Context, id ID, known record) ([]hook, error) {
	if !known.last {
		return nil, nil
	}

	var s corev1.Secret
	err := t.client.Get(ctx, inventoryKey(id), &s)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read hooks of the removal: %w", err)
	}
	objects, err := decode(s.Data["hooks"])
	if err != nil {
		return nil, fmt.Errorf("read hooks of the removal: Secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	_, hooks, err := splitHooks(objects)
	return hooks, err
}
