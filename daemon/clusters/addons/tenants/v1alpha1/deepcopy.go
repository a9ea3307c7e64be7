package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyObject makes the kind a runtime.Object.
func (t *Tenant) DeepCopyObject() runtime.Object { return t.DeepCopy() }

// DeepCopyObject makes the list a runtime.Object.
func (l *TenantList) DeepCopyObject() runtime.Object {
	out := &TenantList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}

	return out
}

// DeepCopy shares nothing with its original.
func (t *Tenant) DeepCopy() *Tenant {
	out := &Tenant{TypeMeta: t.TypeMeta, Spec: t.Spec.deepCopy(), Status: t.Status.deepCopy()}
	t.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return out
}

func (s TenantSpec) deepCopy() TenantSpec {
	s.Namespaces = slices.Clone(s.Namespaces)
	s.Owners, s.Viewers = slices.Clone(s.Owners), slices.Clone(s.Viewers)
	s.Quota, s.Ingress, s.Egress = copyPointer(s.Quota), copyPointer(s.Ingress), copyPointer(s.Egress)
	s.Isolation = copyPointer(s.Isolation)
	if s.Quota != nil {
		s.Quota.Hard = s.Quota.Hard.DeepCopy()
	}
	if s.Ingress != nil {
		s.Ingress.Namespaces, s.Ingress.CIDRs = slices.Clone(s.Ingress.Namespaces), slices.Clone(s.Ingress.CIDRs)
	}
	if s.Egress != nil {
		s.Egress.CIDRs = slices.Clone(s.Egress.CIDRs)
	}
	s.Limits = copyAll(s.Limits, func(i *corev1.LimitRangeItem) corev1.LimitRangeItem { return *i.DeepCopy() })

	return s
}

func (s TenantStatus) deepCopy() TenantStatus {
	s.Namespaces = slices.Clone(s.Namespaces)
	s.Conditions = copyAll(s.Conditions, func(c *metav1.Condition) metav1.Condition { return *c.DeepCopy() })
	return s
}

func copyAll[T any](all []T, deepCopy func(*T) T) []T {
	if all == nil {
		return nil
	}
	out := make([]T, len(all))
	for i := range all {
		out[i] = deepCopy(&all[i])
	}
	return out
}

func copyPointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	out := *p
	return &out
}
