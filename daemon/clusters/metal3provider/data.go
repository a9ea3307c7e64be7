package metal3provider

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// prepareData finds the Secrets that a machine's host boots with besides its user data: the owner's own, or those that
// a Metal3DataTemplate is rendered to. false: they are not there yet, which a condition says.
func (r *Machines) prepareData(ctx context.Context, m *machine, s surroundings) (bool, error) {
	metaData, err := ownSecret(m.Namespace, m.Spec.MetaData)
	if err != nil {
		return false, r.refuseData(m, "spec.metaData", err)
	}
	networkData, err := ownSecret(m.Namespace, m.Spec.NetworkData)
	if err != nil {
		return false, r.refuseData(m, "spec.networkData", err)
	}
	if t := m.Spec.DataTemplate; t != nil && t.Namespace != "" && t.Namespace != m.Namespace {
		return false, r.refuseData(m, "spec.dataTemplate", fmt.Errorf(
			"Metal3DataTemplate %s is of namespace %s; make one in %s", t.Name, t.Namespace, m.Namespace,
		))
	}

	data, err := r.renderedData(ctx, m, s)
	if err != nil {
		return false, err
	}
	r.set(m, verdict{Type: v1beta2.ConditionMetaData, Holds: true, Reason: v1beta2.ReasonMetaData})

	reason := v1beta2.ReasonDataExternal
	if m.Spec.DataTemplate != nil {
		reason = v1beta2.ReasonDataReady
		if data == nil || !ptr.Deref(data.Status.Ready, false) {
			v := verdict{Type: v1beta2.ConditionDataReady, Reason: v1beta2.ReasonWaitingForData}
			if data != nil {
				v.Message = data.Status.ErrorMessage
			}
			r.set(m, v)
			return false, nil
		}
		m.Status.RenderedData = &v1beta2.ObjectReference{Name: data.Name, Namespace: data.Namespace}
		metaData = firstRef(metaData, data.Spec.MetaData)
		networkData = firstRef(networkData, data.Spec.NetworkData)
	}

	m.Status.MetaData, m.Status.NetworkData = metaData, networkData
	r.set(m, verdict{Type: v1beta2.ConditionDataReady, Holds: true, Reason: reason})
	return true, nil
}

func firstRef(a, b *corev1.SecretReference) *corev1.SecretReference {
	if a != nil {
		return a
	}
	return b.DeepCopy()
}

func (r *Machines) refuseData(m *machine, field string, err error) error {
	r.set(m, verdict{
		Type:    v1beta2.ConditionMetaData,
		Reason:  v1beta2.ReasonMetaDataFailed,
		Message: fmt.Sprintf("%s: %v", field, err),
	})
	return nil
}

// renderedData is the Metal3Data of a machine, which it claims; nil if there is none yet, or none is asked for.
func (r *Machines) renderedData(ctx context.Context, m *machine, s surroundings) (*v1beta2.Metal3Data, error) {
	if m.Spec.DataTemplate == nil {
		return nil, nil
	}

	claim := &v1beta2.Metal3DataClaim{}
	err := r.Reader.Get(ctx, key(m), claim)
	if apierrors.IsNotFound(err) {
		claim = newDataClaim(m, clusterName(m, s.machine))
		if err := r.Client.Create(ctx, claim); err != nil {
			return nil, fmt.Errorf("create Metal3DataClaim %s: %w", m.Name, err)
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Metal3DataClaim %s: %w", m.Name, err)
	}
	if claim.Status.RenderedData == nil || claim.Status.RenderedData.Name == "" {
		return nil, nil
	}

	data := &v1beta2.Metal3Data{}
	err = r.Reader.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: claim.Status.RenderedData.Name}, data)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Metal3Data %s: %w", claim.Status.RenderedData.Name, err)
	}

	return data, nil
}

// newDataClaim asks for data for a machine. The machine's finalizer keeps it until the machine gives it up.
func newDataClaim(m *machine, cluster string) *v1beta2.Metal3DataClaim {
	labels := map[string]string{}
	for k, v := range m.Labels {
		labels[k] = v
	}
	labels[labelCluster] = cluster

	return &v1beta2.Metal3DataClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  m.Namespace,
			Name:       m.Name,
			Labels:     labels,
			Finalizers: []string{v1beta2.MachineFinalizer},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(m, v1beta2.GroupVersion.WithKind("Metal3Machine")),
			},
		},
		Spec: v1beta2.Metal3DataClaimSpec{
			Template: v1beta2.ObjectReference{Name: m.Spec.DataTemplate.Name, Namespace: m.Namespace},
		},
	}
}

// removeClaim gives up the data of a machine.
func (r *Machines) removeClaim(ctx context.Context, m *machine) error {
	claim := &v1beta2.Metal3DataClaim{}
	err := r.Reader.Get(ctx, key(m), claim)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Metal3DataClaim %s: %w", m.Name, err)
	}
	if !metav1.IsControlledBy(claim, m) {
		return nil
	}

	after, err := writeObject(ctx, r.Client, claim, func(c *v1beta2.Metal3DataClaim) {
		controllerutil.RemoveFinalizer(c, v1beta2.MachineFinalizer)
	})
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if !after.DeletionTimestamp.IsZero() {
		return nil
	}
	if err := r.Client.Delete(ctx, after); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Metal3DataClaim %s: %w", m.Name, err)
	}

	return nil
}
