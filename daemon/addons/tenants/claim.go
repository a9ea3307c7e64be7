package tenants

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"firstlight.dev/firstlight/daemon/addons/tenants/v1alpha1"
)

// Verdict is what is done about one namespace that a Tenant asks for.
type Verdict int

// What a Verdict may be.
const (
	Refuse Verdict = iota // it is not this Tenant's
	Create                // it is missing
	Adopt                 // it exists, is nobody's, and is given to this Tenant
	Hold                  // it is this Tenant's already
	Await                 // it is being deleted
)

// Claim is a decision about one namespace, with the reason and the sentence if the Tenant does not get it.
type Claim struct {
	Namespace string
	Verdict   Verdict
	Reason    string
	Message   string
}

// DecideClaim says whether a Tenant gets a namespace that it names. Whoever has it keeps it while that Tenant exists and
// names it. Of several that name one that nobody has, it is the oldest's. One that exists and is nobody's is given only to
// the Tenant that its annotation names. A nil namespace does not exist.
func DecideClaim(t *v1alpha1.Tenant, name string, is *corev1.Namespace, all []v1alpha1.Tenant) Claim {
	c := Claim{Namespace: name}
	holder := ""
	if is != nil {
		holder = is.Labels[v1alpha1.LabelTenant]
	}

	switch {
	case holder == t.Name:
		if !is.DeletionTimestamp.IsZero() {
			return awaitDeletion(c)
		}
		c.Verdict = Hold
		return c
	case holder != "" && slices.ContainsFunc(all, func(o v1alpha1.Tenant) bool { return o.Name == holder }):
		c.Reason = v1alpha1.ReasonTaken
		c.Message = fmt.Sprintf("namespace %s belongs to Tenant %s; take it out of one of the two", name, holder)
		return c
	}

	if first := oldestClaimant(name, all); first != "" && first != t.Name {
		c.Reason = v1alpha1.ReasonTaken
		c.Message = fmt.Sprintf(
			"namespace %s is named by Tenant %s as well, which is older; take it out of one of the two", name, first,
		)
		return c
	}

	switch {
	case is == nil:
		c.Verdict = Create
	case !is.DeletionTimestamp.IsZero():
		return awaitDeletion(c)
	case is.Annotations[v1alpha1.AnnotationAdopt] == t.Name:
		c.Verdict = Adopt
	default:
		c.Reason = v1alpha1.ReasonForeign
		c.Message = fmt.Sprintf(
			"namespace %s exists already and was not made for this Tenant; to give it to the Tenant: "+
				"kubectl annotate namespace %s %s=%s", name, name, v1alpha1.AnnotationAdopt, t.Name,
		)
	}
	return c
}

func awaitDeletion(c Claim) Claim {
	c.Verdict = Await
	c.Reason = v1alpha1.ReasonTerminating
	c.Message = fmt.Sprintf("namespace %s is being deleted; it is made again when it is gone", c.Namespace)
	return c
}

// oldestClaimant is the oldest Tenant that names a namespace and is not being deleted; of two of one second the first by
// name. "" if there is none.
func oldestClaimant(namespace string, all []v1alpha1.Tenant) string {
	var of []v1alpha1.Tenant
	for _, t := range all {
		if t.DeletionTimestamp.IsZero() && slices.Contains(t.Spec.Namespaces, namespace) {
			of = append(of, t)
		}
	}
	if len(of) == 0 {
		return ""
	}

	return slices.MinFunc(of, func(a, b v1alpha1.Tenant) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	}).Name
}

// listReleases are the namespaces that a Tenant has and no longer asks for, or all if it is being deleted.
func listReleases(t *v1alpha1.Tenant, namespaces []corev1.Namespace) []corev1.Namespace {
	var all []corev1.Namespace
	for _, n := range namespaces {
		if n.Labels[v1alpha1.LabelTenant] != t.Name {
			continue
		}
		if !t.DeletionTimestamp.IsZero() || !slices.Contains(t.Spec.Namespaces, n.Name) {
			all = append(all, n)
		}
	}
	return all
}
