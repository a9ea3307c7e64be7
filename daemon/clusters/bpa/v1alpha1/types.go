// Package v1alpha1 is the group bpa.akraino.org as Go sees it: the kinds Provisioning and
// Software with the names, spellings and odd shapes that Akraino ICN gave them, and NodeUpdate, which is ours. The API
// server knows them by assets/crd; a test holds the two together.
//
// +kubebuilder:object:generate=true
package v1alpha1

import (
	"encoding/json"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.0 object paths=.

// Group and version of all kinds.
var GroupVersion = schema.GroupVersion{Group: "bpa.akraino.org", Version: "v1alpha1"}

// Labels of all kinds, ICN's.
const (
	LabelCluster     = "cluster"      // name of the cluster; without it the resource's own
	LabelClusterType = "cluster-type" // virtlet-vm, or bare metal
	LabelOwner       = "owner"        // read in SiteNamespace alone, see OwnerOf
	VirtletVM        = "virtlet-vm"
)

// SiteNamespace is where the clusters of the site are, and those of whoever administers the appliance.
const SiteNamespace = "default"

// Provisioning asks for a cluster.
//
// +kubebuilder:object:root=true
type Provisioning struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ProvisioningSpec   `json:"spec,omitempty"`
	Status            ProvisioningStatus `json:"status,omitempty"`
}

// ProvisioningSpec is what the owner asks for. Each item of Masters and Workers maps labels,
// normally one, to what is asked of that node; a nil body repeats a label of Masters.
type ProvisioningSpec struct {
	Masters    []map[string]*Body `json:"masters,omitempty"`
	Workers    []map[string]*Body `json:"workers,omitempty"`
	KUDPlugins []string           `json:"KUDPlugins,omitempty"`
	PodSubnet  string             `json:"PodSubnet,omitempty"`

	// Ours.
	ServiceSubnet     string `json:"ServiceSubnet,omitempty"`
	InstallerImage    string `json:"installerImage,omitempty"`
	CredentialsSecret string `json:"credentialsSecret,omitempty"`

	// Of older versions of ICN; they do nothing.
	HostFile         string `json:"hostfile,omitempty"`
	KUDInstallerPath string `json:"kudInstallerPath,omitempty"`
	DHCPLeaseFile    string `json:"dhcpLeaseFile,omitempty"`
	MultiClusterDir  string `json:"multiClusterDir,omitempty"`
}

// Body is what is asked of one node.
type Body struct {
	MACAddress string `json:"mac-address,omitempty"`
	CPU        int32  `json:"cpu,omitempty"`    // fewest
	Memory     string `json:"memory,omitempty"` // least, a quantity
	SRIOV      bool   `json:"sriov,omitempty"`
	QAT        bool   `json:"qat,omitempty"`
	Host       string `json:"host,omitempty"` // ours: the BareMetalHost by name
}

// Phases of a Provisioning, of a Software and of a NodeUpdate.
const (
	PhaseWaiting    = "Waiting"    // for what comes by itself
	PhaseRefused    = "Refused"    // until somebody edits something
	PhaseInstalling = "Installing" // hosts are claimed
	PhaseChanging   = "Changing"   // installed, and being changed
	PhaseFailed     = "Failed"     // to be tried again
	PhaseReady      = "Ready"
	PhaseDeleting   = "Deleting"
)

// Conditions of a Provisioning. Ready repeats the first of Accepted, HostsClaimed and Installed that is not true.
const (
	ConditionAccepted  = "Accepted"
	ConditionClaimed   = "HostsClaimed"
	ConditionInstalled = "Installed"
	ConditionVerified  = "Verified"         // what the installer saw when it tried the cluster, see Checks
	ConditionPlugins   = "PluginsAvailable" // all of KUDPlugins; absent if none is asked for
	ConditionReady     = "Ready"
)

// ProvisioningStatus is what the operator says. It only reports: nothing is decided by it
// but how long to wait before the next attempt.
type ProvisioningStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Cluster            string             `json:"cluster,omitempty"`
	Phase              string             `json:"phase,omitempty"`
	Percent            int32              `json:"percent"`
	Message            string             `json:"message,omitempty"` // Ready's, in one line
	NodesReady         string             `json:"nodesReady,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	Nodes              []NodeStatus       `json:"nodes,omitempty"`
	Rejected           []Rejected         `json:"rejected,omitempty"`
	Checks             []CheckStatus      `json:"checks,omitempty"`
	Job                *JobStatus         `json:"job,omitempty"`
	Kubeconfig         string             `json:"kubeconfig,omitempty"` // name of the Secret
	Warnings           []string           `json:"warnings,omitempty"`
}

// States of a node.
const (
	NodeWaiting    = "waiting"
	NodeClaimed    = "claimed"
	NodeInstalling = "installing"
	NodeInstalled  = "installed"
	NodeRemoving   = "removing"
	NodeFailed     = "failed"
)

// NodeStatus is one node of the cluster.
type NodeStatus struct {
	Name        string   `json:"name"`
	Roles       []string `json:"roles"`          // master, worker
	Host        string   `json:"host,omitempty"` // BareMetalHost, or pod of a virtual machine, namespace/name
	MAC         string   `json:"mac,omitempty"`
	Address     string   `json:"address,omitempty"`
	AddressFrom string   `json:"addressFrom,omitempty"` // site, lease, inspection, pod
	State       string   `json:"state"`
	Reason      string   `json:"reason,omitempty"`
	Login       string   `json:"login,omitempty"` // how the appliance came by its log-in, if not from the site
}

// Rejected is a host that was not taken, and why.
type Rejected struct {
	Host   string `json:"host"`
	Reason string `json:"reason"`
}

// Outcomes of a check.
const (
	CheckPassed = "Passed"
	CheckFailed = "Failed"
)

// CheckStatus is one thing that was tried of the cluster at the end of the last run that came so far.
type CheckStatus struct {
	Name    string      `json:"name"`
	Outcome string      `json:"outcome"`
	Message string      `json:"message,omitempty"`
	Time    metav1.Time `json:"time"`
}

// States of a run.
const (
	JobRunning   = "Running"
	JobSucceeded = "Succeeded"
	JobFailed    = "Failed"
)

// JobStatus is the last run of the installer.
type JobStatus struct {
	Name       string       `json:"name"`
	Action     string       `json:"action"`
	Attempt    int32        `json:"attempt"`
	Generation int64        `json:"generation"` // of the Provisioning it was made for
	State      string       `json:"state"`
	Started    metav1.Time  `json:"started"`
	Next       *metav1.Time `json:"next,omitempty"` // when it is tried again
	Log        string       `json:"log"`            // on the appliance
}

// Software asks for packages on the nodes of a cluster.
//
// +kubebuilder:object:root=true
type Software struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SoftwareSpec   `json:"spec,omitempty"`
	Status            SoftwareStatus `json:"status,omitempty"`
}

// SoftwareSpec lists packages by the role of the node.
type SoftwareSpec struct {
	MasterSoftware []Packages `json:"masterSoftware,omitempty"`
	WorkerSoftware []Packages `json:"workerSoftware,omitempty"`
}

// Packages is one item of a list: a name alone, or names with what is asked of each.
type Packages struct {
	Name   string
	Asked  map[string]*Version
	Single bool // it was written as a name alone
}

// Version is what is asked of a package; nil or empty means any.
type Version struct {
	Version string `json:"version,omitempty"`
}

// UnmarshalJSON reads both ways of writing an item.
func (p *Packages) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &p.Name) == nil {
		p.Single = true
		return nil
	}
	if err := json.Unmarshal(b, &p.Asked); err != nil {
		return errors.New("an item of masterSoftware or workerSoftware is neither a name nor NAME: {version: VERSION}")
	}
	return nil
}

// MarshalJSON writes it as it was read.
func (p Packages) MarshalJSON() ([]byte, error) {
	if p.Single {
		return json.Marshal(p.Name)
	}
	return json.Marshal(p.Asked)
}

// SoftwareStatus is what the operator says.
type SoftwareStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Cluster            string             `json:"cluster,omitempty"`
	Phase              string             `json:"phase,omitempty"`
	Message            string             `json:"message,omitempty"`
	NodesReady         string             `json:"nodesReady,omitempty"`
	Attempt            int32              `json:"attempt,omitempty"`
	Next               *metav1.Time       `json:"next,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	Nodes              []SoftwareNode     `json:"nodes,omitempty"`
}

// SoftwareNode is how one node stands.
type SoftwareNode struct {
	Name     string          `json:"name"`
	Address  string          `json:"address"`
	Packages []PackageStatus `json:"packages,omitempty"`
	Error    string          `json:"error,omitempty"`
}

// PackageStatus is one package on one node.
type PackageStatus struct {
	Name      string `json:"name"`
	Installed string `json:"installed,omitempty"` // version
	Missing   string `json:"missing,omitempty"`   // NAME or NAME=VERSION that no repository of the node has
	Error     string `json:"error,omitempty"`
}

// ProvisioningList is what a list request returns.
//
// +kubebuilder:object:root=true
type ProvisioningList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Provisioning `json:"items"`
}

// SoftwareList is what a list request returns.
//
// +kubebuilder:object:root=true
type SoftwareList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Software `json:"items"`
}

// AddToScheme makes the kinds known.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(
		GroupVersion, &Provisioning{}, &ProvisioningList{}, &Software{}, &SoftwareList{}, &NodeUpdate{}, &NodeUpdateList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// OwnerOf is whose uploads the nodes of a cluster get: that of the namespace, which is how rights to upload are given
// (docs/artifacts.md). Only in SiteNamespace does the label say it: elsewhere it would be free to name anybody.
func OwnerOf(p *Provisioning) string {
	if p.Namespace != SiteNamespace {
		return p.Namespace
	}
	if name := p.Labels[LabelOwner]; len(validation.IsDNS1123Label(name)) == 0 {
		return name
	}
	return SiteNamespace
}

// ClusterOf is the name of the cluster that a resource is about.
func ClusterOf(o metav1.Object) string {
	if name := o.GetLabels()[LabelCluster]; name != "" {
		return name
	}
	return o.GetName()
}
