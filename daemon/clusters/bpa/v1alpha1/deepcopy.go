package v1alpha1

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyObject makes the kind a runtime.Object.
func (p *Provisioning) DeepCopyObject() runtime.Object { return p.DeepCopy() }

// DeepCopyObject makes the kind a runtime.Object.
func (s *Software) DeepCopyObject() runtime.Object { return s.DeepCopy() }

// DeepCopyObject makes the kind a runtime.Object.
func (u *NodeUpdate) DeepCopyObject() runtime.Object { return u.DeepCopy() }

// DeepCopyObject makes the list a runtime.Object.
func (l *ProvisioningList) DeepCopyObject() runtime.Object {
	out := &ProvisioningList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}

	return out
}

// DeepCopyObject makes the list a runtime.Object.
func (l *SoftwareList) DeepCopyObject() runtime.Object {
	out := &SoftwareList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}

	return out
}

// DeepCopyObject makes the list a runtime.Object.
func (l *NodeUpdateList) DeepCopyObject() runtime.Object {
	out := &NodeUpdateList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}

	return out
}

// DeepCopy shares nothing with its original.
func (p *Provisioning) DeepCopy() *Provisioning {
	out := &Provisioning{TypeMeta: p.TypeMeta, Spec: p.Spec, Status: p.Status}
	p.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Masters, out.Spec.Workers = copyBodies(p.Spec.Masters), copyBodies(p.Spec.Workers)
	out.Spec.KUDPlugins = slices.Clone(p.Spec.KUDPlugins)
	out.Status.Conditions = copyConditions(p.Status.Conditions)
	out.Status.Nodes = slices.Clone(p.Status.Nodes)
	for i := range out.Status.Nodes {
		out.Status.Nodes[i].Roles = slices.Clone(out.Status.Nodes[i].Roles)
	}

	out.Status.Rejected = slices.Clone(p.Status.Rejected)
	out.Status.Warnings = slices.Clone(p.Status.Warnings)
	out.Status.Checks = slices.Clone(p.Status.Checks)
	for i := range out.Status.Checks {
		out.Status.Checks[i].Time = *p.Status.Checks[i].Time.DeepCopy()
	}

	if p.Status.Job != nil {
		job := *p.Status.Job
		job.Started, job.Next = *job.Started.DeepCopy(), job.Next.DeepCopy()
		out.Status.Job = &job
	}

	return out
}

func copyBodies(in []map[string]*Body) []map[string]*Body {
	out := slices.Clone(in)
	for i := range out {
		out[i] = maps.Clone(out[i])
		for label, body := range out[i] {
			if body != nil {
				b := *body
				out[i][label] = &b
			}
		}
	}
	return out
}

func copyConditions(in []metav1.Condition) []metav1.Condition {
	out := slices.Clone(in)
	for i := range out {
		in[i].DeepCopyInto(&out[i])
	}
	return out
}

// DeepCopy shares nothing with its original.
func (s *Software) DeepCopy() *Software {
	out := &Software{TypeMeta: s.TypeMeta, Status: s.Status}
	s.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.MasterSoftware, out.Spec.WorkerSoftware = copyPackages(s.Spec.MasterSoftware), copyPackages(s.Spec.WorkerSoftware)
	out.Status.Conditions = copyConditions(s.Status.Conditions)
	out.Status.Next = s.Status.Next.DeepCopy()
	out.Status.Nodes = slices.Clone(s.Status.Nodes)
	for i := range out.Status.Nodes {
		out.Status.Nodes[i].Packages = slices.Clone(out.Status.Nodes[i].Packages)
	}

	return out
}

// DeepCopy shares nothing with its original.
func (u *NodeUpdate) DeepCopy() *NodeUpdate {
	out := &NodeUpdate{TypeMeta: u.TypeMeta, Spec: u.Spec, Status: u.Status}
	u.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Packages = copyPackages(u.Spec.Packages)
	if w := u.Spec.Window; w != nil {
		out.Spec.Window = &Window{Days: slices.Clone(w.Days), Start: w.Start, Hours: w.Hours}
	}

	out.Status.Conditions = copyConditions(u.Status.Conditions)
	out.Status.Next = u.Status.Next.DeepCopy()
	out.Status.Nodes = slices.Clone(u.Status.Nodes)
	for i := range out.Status.Nodes {
		n := &out.Status.Nodes[i]
		n.Packages, n.Updated = slices.Clone(n.Packages), n.Updated.DeepCopy()
	}

	return out
}

func copyPackages(in []Packages) []Packages {
	out := slices.Clone(in)
	for i := range out {
		out[i].Asked = maps.Clone(out[i].Asked)
		for name, v := range out[i].Asked {
			if v != nil {
				c := *v
				out[i].Asked[name] = &c
			}
		}
	}
	return out
}
