package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Annotations of a cluster's own Nodes.
const (
	AnnotationUpdating = "bpa.akraino.org/node-update"  // while it is out of service: a nodeupdate.Mark
	AnnotationUpdated  = "bpa.akraino.org/node-updated" // the nodeupdate.Order.Token that it was last updated by
)

// NodeUpdate keeps the nodes of a cluster up to date, one after the other: each is drained, gets its packages, restarts
// if it must, and is in service again before the next.
//
// +kubebuilder:object:root=true
type NodeUpdate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              NodeUpdateSpec   `json:"spec,omitempty"`
	Status            NodeUpdateStatus `json:"status,omitempty"`
}

// NodeUpdateSpec says what is updated, how fast and when.
type NodeUpdateSpec struct {
	// Packages get their version, or the newest, on the nodes that have them; without any, all but Kubernetes' own get
	// the newest.
	Packages       []Packages `json:"packages,omitempty"`
	Reboot         string     `json:"reboot,omitempty"`         // one of the following; IfRequired if empty
	MaxUnavailable int32      `json:"maxUnavailable,omitempty"` // workers at once; 1 if zero
	Window         *Window    `json:"window,omitempty"`         // any time without one
	Paused         bool       `json:"paused,omitempty"`
}

// When a node restarts.
const (
	RebootNever      = "Never"
	RebootIfRequired = "IfRequired" // its system asks for it, or a kernel came since it started
	RebootAlways     = "Always"     // once for each generation of the NodeUpdate, and after packages changed
)

// Window is when nodes may be taken out of service. A node that is out of service is completed after its end.
type Window struct {
	Days  []string `json:"days,omitempty"` // on which it begins: Mon, Tue, …; every day without any
	Start string   `json:"start"`          // HH:MM in UTC
	Hours int32    `json:"hours"`          // 1 to 24
}

// PhaseUpdating is the phase of a NodeUpdate while a node is out of service for it.
const PhaseUpdating = "Updating"

// NodeUpdateStatus is what the operator says. Packages of nodes, as they were before, are kept here alone; nothing is
// decided by them.
type NodeUpdateStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Cluster            string             `json:"cluster,omitempty"`
	Phase              string             `json:"phase,omitempty"`
	Message            string             `json:"message,omitempty"`
	NodesReady         string             `json:"nodesReady,omitempty"` // up to date and in service, of all: 2/3
	Attempt            int32              `json:"attempt,omitempty"`    // that failed last, from 1
	Next               *metav1.Time       `json:"next,omitempty"`       // when the next begins
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	Nodes              []UpdatedNode      `json:"nodes,omitempty"`
}

// Phases of a node.
const (
	NodeOutdated           = "Outdated" // and in service
	NodeDraining           = "Draining"
	NodeInstallingPackages = "Installing"
	NodeRebooting          = "Rebooting"
	NodeChecking           = "Checking" // whether it is healthy, before it is in service again
	NodeUpToDate           = "UpToDate"
	NodeUpdateFailed       = "Failed"
	NodeUnknown            = "Unknown" // it does not answer, or was not asked yet
)

// UpdatedNode is how one node stands.
type UpdatedNode struct {
	Name         string          `json:"name"`
	ControlPlane bool            `json:"controlPlane,omitempty"`
	Phase        string          `json:"phase"`
	Message      string          `json:"message,omitempty"`
	Version      string          `json:"version,omitempty"`  // of its kubelet, as the cluster says it
	Changes      int32           `json:"changes,omitempty"`  // packages that change, or that the last update changed
	Packages     []PackageChange `json:"packages,omitempty"` // the first of them
	Updated      *metav1.Time    `json:"updated,omitempty"`  // when it was last put back into service
}

// PackageChange is one package on one node.
type PackageChange struct {
	Name   string `json:"name"`
	Before string `json:"before,omitempty"` // version; "" if its installation was interrupted
	After  string `json:"after"`
}

// NodeUpdateList is what a list request returns.
//
// +kubebuilder:object:root=true
type NodeUpdateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeUpdate `json:"items"`
}
