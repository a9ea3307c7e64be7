// Package v1alpha1 is the group tenant.akraino.org as Go sees it: the kind Tenant, by which a workload cluster is shared.
// The API server knows it by the add-on's definition in daemon/clusters/kpa/builtin/tenants; a test holds the two
// together.
//
// +kubebuilder:object:generate=true
package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.0 object paths=.

// GroupVersion is the group and version of the kind.
var GroupVersion = schema.GroupVersion{Group: "tenant.akraino.org", Version: "v1alpha1"}

// Keys on objects. Only the controller, and whoever may update Tenants, writes the labels: an admission policy sees to it.
const (
	// Finalizer keeps a Tenant until its namespaces are released or deleted.
	Finalizer = "tenant.akraino.org/tenant"

	// LabelTenant is on a Tenant's namespaces and on what the controller made in them; its value is the Tenant's name.
	LabelTenant = "tenant.akraino.org/name"

	// LabelIsolated with the value "true" is on namespaces whose tenants write no NetworkPolicies.
	LabelIsolated = "tenant.akraino.org/isolated"

	// AnnotationAdopt on a namespace that exists already names the Tenant that may have it.
	AnnotationAdopt = "tenant.akraino.org/adopt"
)

// ConditionReady is the type of the one condition.
const ConditionReady = "Ready"

// Reasons of the condition.
const (
	ReasonReady       = "Ready"
	ReasonTaken       = "NamespaceTaken"       // it is another Tenant's
	ReasonForeign     = "NamespaceForeign"     // it exists, and nobody consented
	ReasonTerminating = "NamespaceTerminating" // it is being deleted
	ReasonObject      = "ObjectForeign"        // an object of somebody else has the name of one of ours
	ReasonOpen        = "IsolationOpen"        // other NetworkPolicies may open it
	ReasonFailed      = "ApplyFailed"          // the API refuses something
	ReasonReleasing   = "Releasing"            // namespaces are being released or deleted
)

// Reclaim is what becomes of a namespace that is no longer asked for.
type Reclaim string

// What Reclaim may be. Delete deletes the namespace; Retain leaves it with its contents, but without what the Tenant gave.
const (
	Retain Reclaim = "Retain"
	Delete Reclaim = "Delete"
)

// Tenant asks for namespaces of one user of the cluster.
//
// +kubebuilder:object:root=true
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              TenantSpec   `json:"spec,omitempty"`
	Status            TenantStatus `json:"status,omitempty"`
}

// TenantSpec is what is asked for.
type TenantSpec struct {
	Namespaces []string         `json:"namespaces"`
	Owners     []rbacv1.Subject `json:"owners,omitempty"`  // bound to the ClusterRole admin
	Viewers    []rbacv1.Subject `json:"viewers,omitempty"` // bound to the ClusterRole view

	Quota  *Quota                  `json:"quota,omitempty"`
	Limits []corev1.LimitRangeItem `json:"limits,omitempty"`

	Isolation   *bool    `json:"isolation,omitempty"` // nil: true
	Ingress     *Ingress `json:"ingress,omitempty"`
	Egress      *Egress  `json:"egress,omitempty"`
	PodSecurity string   `json:"podSecurity,omitempty"` // "": baseline
	Reclaim     Reclaim  `json:"reclaim,omitempty"`     // "": Retain
}

// Quota is the limit of each namespace, as a ResourceQuota has it.
type Quota struct {
	Hard corev1.ResourceList `json:"hard,omitempty"`
}

// Ingress is who else reaches the pods of an isolated tenant.
type Ingress struct {
	Namespaces []string `json:"namespaces,omitempty"`
	CIDRs      []string `json:"cidrs,omitempty"`
}

// Egress is what else the pods of an isolated tenant reach.
type Egress struct {
	Internet bool     `json:"internet,omitempty"` // all public addresses
	CIDRs    []string `json:"cidrs,omitempty"`
}

// TenantStatus is what there is.
type TenantStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Namespaces         []string           `json:"namespaces,omitempty"` // that it has
	Message            string             `json:"message,omitempty"`    // that of the condition
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// TenantList is several Tenants.
//
// +kubebuilder:object:root=true
type TenantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Tenant `json:"items"`
}

// IsIsolated reports whether its pods reach its own namespaces alone.
func (s TenantSpec) IsIsolated() bool { return s.Isolation == nil || *s.Isolation }

// AddToScheme makes the kind known.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Tenant{}, &TenantList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
