// Package v1alpha1 is the group kpa.akraino.org as Go sees it: the kind Component, which says what runs on
// workload clusters. The API server knows it by assets/crd; a test holds the two together.
//
// +kubebuilder:object:generate=true
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.0 object paths=.

// GroupVersion is the group and version of the kind.
var GroupVersion = schema.GroupVersion{Group: "kpa.akraino.org", Version: "v1alpha1"}

// Finalizer keeps a Component until what it installed is removed.
const Finalizer = "kpa.akraino.org/component"

// AnnotationAbandon with the value "true" lets a Component go although a cluster that has it does not answer.
const AnnotationAbandon = "kpa.akraino.org/abandon"

// ApplianceTarget is the name under which the appliance's own API is listed in a status. No cluster has it: it is no
// name of a Secret.
const ApplianceTarget = "(appliance)"

// Component asks for a bundle of objects on clusters.
//
// +kubebuilder:object:root=true
type Component struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ComponentSpec   `json:"spec,omitempty"`
	Status            ComponentStatus `json:"status,omitempty"`
}

// ComponentSpec is what the owner asks for.
type ComponentSpec struct {
	// Where: one of the three. Clusters are of the Component's namespace.
	Clusters        []string              `json:"clusters,omitempty"`
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`
	Appliance       bool                  `json:"appliance,omitempty"`

	Source          Source `json:"source"`
	TargetNamespace string `json:"targetNamespace,omitempty"`

	DependsOn []Dependency `json:"dependsOn,omitempty"`
	Requires  *Requires    `json:"requires,omitempty"`

	HealthExpr []HealthExpr `json:"healthExpr,omitempty"`
	SelfTest   *SelfTest    `json:"selfTest,omitempty"`

	Prune   *bool `json:"prune,omitempty"` // nil: true
	Suspend bool  `json:"suspend,omitempty"`
	Force   bool  `json:"force,omitempty"`

	Interval      *metav1.Duration `json:"interval,omitempty"`
	RetryInterval *metav1.Duration `json:"retryInterval,omitempty"`
	Timeout       *metav1.Duration `json:"timeout,omitempty"`
	Retries       *int32           `json:"retries,omitempty"` // nil: no limit
}

// AnnotationNoHooks with the value "true" has no hooks run, as helm's --no-hooks does.
const AnnotationNoHooks = "kpa.akraino.org/no-hooks"

// Source is where the objects come from: one of the three.
type Source struct {
	Inline string        `json:"inline,omitempty"` // YAML documents
	Folder string        `json:"folder,omitempty"` // below the folder of components on the appliance
	Bundle *BundleSource `json:"bundle,omitempty"`
}

// BundleSource is what firstlight pack made, uploaded or on the stick.
type BundleSource struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Owner   string `json:"owner,omitempty"` // of the upload; "": the namespace. Only the site's namespace may name others
}

// Dependency is a Component of the same namespace that is ready before.
type Dependency struct {
	Name      string `json:"name"`
	OrSkipped bool   `json:"orSkipped,omitempty"` // it is enough that it is skipped: the order matters, not the thing
}

// Requires is what a cluster must have; a cluster without it is skipped, or waited for.
type Requires struct {
	NodeLabels map[string]string `json:"nodeLabels,omitempty"` // all of them on one node
	OnMissing  string            `json:"onMissing,omitempty"`  // OnMissingSkip if ""
}

// What Requires.OnMissing says.
const (
	OnMissingSkip = "Skip"
	OnMissingWait = "Wait"
)

// HealthExpr is a CEL expression that holds for an object, self, of the cluster, or for all of a kind if it has no
// name; there must be one.
type HealthExpr struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	Expr       string `json:"expr"`
	Message    string `json:"message,omitempty"` // said when it does not hold
}

// SelfTest is a Job that runs once for each revision when everything is healthy.
type SelfTest struct {
	Job runtime.RawExtension `json:"job"` // its spec
}

// Phases of a Component on one cluster, and of a Component, which has the worst one of its clusters.
const (
	PhaseWaiting   = "Waiting"        // for something outside
	PhaseApplying  = "Applying"       // objects are written or removed
	PhaseHealth    = "HealthChecking" // until they are ready
	PhaseTesting   = "Testing"        // its own test runs
	PhaseReady     = "Ready"
	PhaseSkipped   = "Skipped"   // the cluster lacks what it requires
	PhaseDegraded  = "Degraded"  // it was ready and is not healthy
	PhaseFailed    = "Failed"    // this attempt; there is another one unless all are used up
	PhaseRefused   = "Refused"   // until someone edits something
	PhaseSuspended = "Suspended" // nothing is done
	PhaseDeleting  = "Deleting"
)

// ConditionReady is the condition that kubectl wait asks for.
const ConditionReady = "Ready"

// ComponentStatus is what the operator reports.
type ComponentStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Phase              string             `json:"phase,omitempty"`
	Message            string             `json:"message,omitempty"`
	Ready              string             `json:"ready,omitempty"` // clusters: 2/3
	Revision           string             `json:"revision,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	Clusters           []ClusterStatus    `json:"clusters,omitempty"`
}

// ClusterStatus is how the Component stands on one cluster.
type ClusterStatus struct {
	Name     string       `json:"name"`
	Phase    string       `json:"phase"`
	Reason   string       `json:"reason,omitempty"`
	Message  string       `json:"message,omitempty"`
	Revision string       `json:"revision,omitempty"` // that this phase is about
	Applied  string       `json:"applied,omitempty"`  // revision that was written last
	Tested   string       `json:"tested,omitempty"`   // revision that its own test passed with
	Objects  string       `json:"objects,omitempty"`  // ready, of all: 3/5
	Attempts int32        `json:"attempts,omitempty"` // that failed in a row
	Since    *metav1.Time `json:"since,omitempty"`    // start of this attempt
	Next     *metav1.Time `json:"next,omitempty"`     // start of the next attempt
	Checked  *metav1.Time `json:"checked,omitempty"`  // when drift was looked for last
}

// ComponentList is a list of Components.
//
// +kubebuilder:object:root=true
type ComponentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Component `json:"items"`
}

// AddToScheme makes the kind known to s.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Component{}, &ComponentList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
