package v1alpha1

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyObject makes the kind a runtime.Object.
func (c *Component) DeepCopyObject() runtime.Object { return c.DeepCopy() }

// DeepCopyObject makes the list a runtime.Object.
func (l *ComponentList) DeepCopyObject() runtime.Object {
	out := &ComponentList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}

	return out
}

// DeepCopy shares nothing with its original.
func (c *Component) DeepCopy() *Component {
	out := &Component{TypeMeta: c.TypeMeta, Spec: c.Spec.deepCopy(), Status: c.Status.deepCopy()}
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return out
}

func (s ComponentSpec) deepCopy() ComponentSpec {
	s.Clusters = slices.Clone(s.Clusters)
	s.ClusterSelector = s.ClusterSelector.DeepCopy()
	s.Source.Bundle = copyPointer(s.Source.Bundle)
	s.DependsOn = slices.Clone(s.DependsOn)
	s.HealthExpr = slices.Clone(s.HealthExpr)
	s.Prune, s.Retries = copyPointer(s.Prune), copyPointer(s.Retries)
	s.Interval, s.RetryInterval = copyPointer(s.Interval), copyPointer(s.RetryInterval)
	s.Timeout = copyPointer(s.Timeout)
	if s.Requires = copyPointer(s.Requires); s.Requires != nil {
		s.Requires.NodeLabels = maps.Clone(s.Requires.NodeLabels)
	}
	if s.SelfTest = copyPointer(s.SelfTest); s.SelfTest != nil {
		s.SelfTest.Job = *s.SelfTest.Job.DeepCopy()
	}

	return s
}

func (s ComponentStatus) deepCopy() ComponentStatus {
	s.Clusters = slices.Clone(s.Clusters)
	for i := range s.Clusters {
		c := &s.Clusters[i]
		c.Since, c.Next, c.Checked = c.Since.DeepCopy(), c.Next.DeepCopy(), c.Checked.DeepCopy()
	}

	conditions := make([]metav1.Condition, len(s.Conditions))
	for i := range s.Conditions {
		s.Conditions[i].DeepCopyInto(&conditions[i])
	}
	if s.Conditions != nil {
		s.Conditions = conditions
	}

	return s
}

func copyPointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	out := *p
	return &out
}
