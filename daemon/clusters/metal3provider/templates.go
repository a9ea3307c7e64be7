package metal3provider

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// Templates reconciles Metal3DataTemplates: each claim of a template gets a Metal3Data with an index of its own. The
// indexes in use are found again from the Metal3Data each time, so they survive a move and a lost status.
type Templates struct{ *Provider }

// Reconcile gives claims their data, and takes it back. A template that is gone still gives back.
func (r *Templates) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	t := &v1beta2.Metal3DataTemplate{}
	err := r.Reader.Get(ctx, q.NamespacedName, t)
	if apierrors.IsNotFound(err) {
		t = nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("read Metal3DataTemplate %s: %w", q.Name, err)
	}

	var claims v1beta2.Metal3DataClaimList
	var data v1beta2.Metal3DataList
	for _, list := range []client.ObjectList{&claims, &data} {
		if err := r.Reader.List(ctx, list, client.InNamespace(q.Namespace)); err != nil {
			return reconcile.Result{}, fmt.Errorf("list claims and data of template %s: %w", q.Name, err)
		}
	}
	claims.Items = slices.DeleteFunc(claims.Items, func(c v1beta2.Metal3DataClaim) bool { return c.Spec.Template.Name != q.Name })
	data.Items = slices.DeleteFunc(data.Items, func(d v1beta2.Metal3Data) bool { return d.Spec.Template.Name != q.Name })

	return afterRace(reconcile.Result{}, r.serve(ctx, t, claims.Items, &data.Items))
}

func (r *Templates) serve(
	ctx context.Context, t *v1beta2.Metal3DataTemplate, claims []v1beta2.Metal3DataClaim, data *[]v1beta2.Metal3Data,
) error {
	if t != nil {
		inUse := len(claims)+len(*data) > 0
		after, err := writeObject(ctx, r.Client, t, func(t *v1beta2.Metal3DataTemplate) {
			if inUse && t.DeletionTimestamp.IsZero() {
				controllerutil.AddFinalizer(t, v1beta2.DataTemplateFinalizer)
			}
			if !inUse {
				controllerutil.RemoveFinalizer(t, v1beta2.DataTemplateFinalizer)
			}
		})
		if err != nil || len(after.Finalizers) == 0 && !after.DeletionTimestamp.IsZero() {
			return client.IgnoreNotFound(err)
		}
		t.ObjectMeta = after.ObjectMeta
	}

	for i := range claims {
		c := &claims[i]
		var err error
		switch {
		case !c.DeletionTimestamp.IsZero():
			err = r.release(ctx, c, data)
		case t != nil && t.DeletionTimestamp.IsZero():
			err = r.fulfil(ctx, t, c, data)
		}
		if err != nil {
			return err
		}
	}
	if t == nil {
		return nil
	}

	return r.writeIndexes(ctx, t, *data)
}

// fulfil makes the data of a claim, or finds what was made for it before.
func (r *Templates) fulfil(
	ctx context.Context, t *v1beta2.Metal3DataTemplate, c *v1beta2.Metal3DataClaim, data *[]v1beta2.Metal3Data,
) error {
	cluster, err := r.readCluster(ctx, c.Namespace, c.Labels[labelCluster])
	if err != nil || isPaused(cluster, c) {
		return err
	}

	after, err := writeObject(ctx, r.Client, c, func(c *v1beta2.Metal3DataClaim) {
		controllerutil.AddFinalizer(c, v1beta2.DataClaimFinalizer)
	})
	if err != nil {
		return err
	}
	status := c.Status
	*c = *after
	c.Status = status

	i := slices.IndexFunc(*data, func(d v1beta2.Metal3Data) bool { return d.Spec.Claim.Name == c.Name })
	if i < 0 {
		d := newData(t, c, lowestFree(*data))
		if err := r.Client.Create(ctx, d); err != nil {
			return fmt.Errorf("create Metal3Data %s: %w", d.Name, err)
		}
		*data = append(*data, *d)
		i = len(*data) - 1
	}

	name := (*data)[i].Name
	if c.Status.RenderedData != nil && c.Status.RenderedData.Name == name {
		return nil
	}
	before := c.DeepCopy()
	c.Status.RenderedData = &v1beta2.ObjectReference{Name: name, Namespace: c.Namespace}
	if err := r.Client.Status().Patch(ctx, c, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write status of Metal3DataClaim %s: %w", c.Name, err)
	}

	return nil
}

// lowestFree is the smallest index that no data of a template has.
func lowestFree(data []v1beta2.Metal3Data) int32 {
	used := map[int32]bool{}
	for i := range data {
		used[data[i].Spec.Index] = true
	}
	for n := int32(0); ; n++ {
		if !used[n] {
			return n
		}
	}
}

func newData(t *v1beta2.Metal3DataTemplate, c *v1beta2.Metal3DataClaim, index int32) *v1beta2.Metal3Data {
	owners := []metav1.OwnerReference{*metav1.NewControllerRef(c, v1beta2.GroupVersion.WithKind("Metal3DataClaim"))}
	for _, o := range c.OwnerReferences {
		if o.Kind == "Metal3Machine" && groupOf(o.APIVersion) == v1beta2.GroupVersion.Group {
			o.Controller, o.BlockOwnerDeletion = nil, nil
			owners = append(owners, o)
		}
	}

	return &v1beta2.Metal3Data{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       c.Namespace,
			Name:            fmt.Sprintf("%s-%d", t.Name, index),
			Labels:          c.Labels,
			Finalizers:      []string{v1beta2.DataClaimFinalizer, v1beta2.DataFinalizer},
			OwnerReferences: owners,
		},
		Spec: v1beta2.Metal3DataSpec{
			Index:    index,
			Template: v1beta2.ObjectReference{Name: t.Name, Namespace: t.Namespace},
			Claim:    v1beta2.ObjectReference{Name: c.Name, Namespace: c.Namespace},
		},
	}
}

// release deletes the data of a claim that is deleted, and lets the claim go. The data waits for the claim to be gone.
func (r *Templates) release(ctx context.Context, c *v1beta2.Metal3DataClaim, data *[]v1beta2.Metal3Data) error {
	if slices.Contains(c.Finalizers, v1beta2.MachineFinalizer) {
		return nil // its machine has not given it up
	}

	for i := range *data {
		d := &(*data)[i]
		if d.Spec.Claim.Name != c.Name {
			continue
		}
		after, err := writeObject(ctx, r.Client, d, func(d *v1beta2.Metal3Data) {
			controllerutil.RemoveFinalizer(d, v1beta2.DataClaimFinalizer)
		})
		if err == nil && after.DeletionTimestamp.IsZero() {
			err = r.Client.Delete(ctx, after)
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Metal3Data %s: %w", d.Name, err)
		}
	}

	_, err := writeObject(ctx, r.Client, c, func(c *v1beta2.Metal3DataClaim) {
		controllerutil.RemoveFinalizer(c, v1beta2.DataClaimFinalizer)
	})
	return client.IgnoreNotFound(err)
}

func (r *Templates) writeIndexes(ctx context.Context, t *v1beta2.Metal3DataTemplate, data []v1beta2.Metal3Data) error {
	var indexes []v1beta2.IndexEntry
	for i := range data {
		indexes = append(indexes, v1beta2.IndexEntry{Name: data[i].Spec.Claim.Name, Index: data[i].Spec.Index})
	}
	slices.SortFunc(indexes, func(a, b v1beta2.IndexEntry) int { return int(a.Index - b.Index) })
	if reflect.DeepEqual(indexes, t.Status.Indexes) {
		return nil
	}

	before := t.DeepCopy()
	now := metav1.NewTime(r.Now())
	t.Status.Indexes, t.Status.LastUpdated = indexes, &now
	if err := r.Client.Status().Patch(ctx, t, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of Metal3DataTemplate %s: %w", t.Name, err)
	}
	return nil
}
