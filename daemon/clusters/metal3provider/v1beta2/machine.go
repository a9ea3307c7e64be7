package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MachineFinalizer keeps a Metal3Machine until its host is released, and its claim of data until the Metal3Machine
// gives it up.
const MachineFinalizer = "metal3machine.infrastructure.cluster.x-k8s.io"

// AnnotationHost of a Metal3Machine is NAMESPACE/NAME of its BareMetalHost.
const AnnotationHost = "metal3.io/BareMetalHost"

// Conditions of a Metal3Machine, besides Ready and Paused.
const (
	ConditionAssociate = "AssociateBareMetalHost"
	ConditionMetaData  = "AssociateMetal3MachineMetaData"
	ConditionDataReady = "Metal3DataReady"
	// ConditionHostProvisioned says how far its host is, and what keeps it: CAPM3 has no such condition.
	ConditionHostProvisioned = "BareMetalHostProvisioned"
)

// Reasons of those conditions.
const (
	ReasonWaitingForOwner          = "WaitingForMetal3MachineOwnerRef"
	ReasonWaitingForInfrastructure = "WaitingForClusterInfrastructureReady"
	ReasonWaitingForMetal3Cluster  = "WaitingforMetal3Cluster" // CAPM3's spelling
	ReasonWaitingForBootstrap      = "WaitingForBootstrapData"
	ReasonAssociateFailed          = "AssociateBareMetalHostFailed"
	ReasonAssociated               = "AssociateBareMetalHostSuccess"
	ReasonAssociatedByReuse        = "AssociateBareMetalHostViaNodeReuseSuccess"
	ReasonMetaData                 = "AssociateMetal3MachineMetaDataSuccess"
	ReasonMetaDataFailed           = "AssociateMetal3MachineMetaDataFailed"
	ReasonWaitingForData           = "WaitingForMetal3Data"
	ReasonDataReady                = "Metal3DataSecretsReady"
	ReasonDataExternal             = "SecretsSetExternally"
	ReasonDeleting                 = "Deleting"
	ReasonPaused                   = "Paused"
	ReasonNotPaused                = "NotPaused"
	ReasonReady                    = "Ready"
	ReasonNotReady                 = "NotReady"

	// Of ConditionHostProvisioned.
	ReasonHostProvisioning = "Provisioning"       // time is needed
	ReasonHostHeld         = "HeldByChecks"       // the appliance's checks hold it: consent, pre-flight
	ReasonHostFailed       = "BareMetalHostError" // the host says an error
	ReasonHostRefused      = "RefusedByPolicy"    // the API server refused what was to be written
	ReasonHostProvisioned  = "Provisioned"
	ReasonWaitingForNode   = "WaitingForNode"
	ReasonHostGone         = "BareMetalHostNotFound"
)

// Image is what a host's disk gets.
//
// +kubebuilder:validation:XValidation:rule="size(self.url) == 0 || self.url.startsWith('oci://') || (has(self.diskFormat) && self.diskFormat == 'live-iso') || (has(self.checksum) && size(self.checksum) > 0)",message="an image needs a checksum, unless it is a live-iso or an oci:// URL"
type Image struct {
	// URL of the image.
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`
	// Checksum of the image, or the URL of a file that has it.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Checksum string `json:"checksum,omitempty"`
	// ChecksumType is md5, sha256 or sha512.
	// +kubebuilder:validation:Enum=md5;sha256;sha512
	// +optional
	ChecksumType *string `json:"checksumType,omitempty"`
	// DiskFormat is raw, qcow2, vdi, vmdk or live-iso.
	// +kubebuilder:validation:Enum=raw;qcow2;vdi;vmdk;live-iso
	// +optional
	DiskFormat *string `json:"diskFormat,omitempty"`
}

// CustomDeploy installs a host by a step of the ramdisk's own.
type CustomDeploy struct {
	// Method of the deployment.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Method string `json:"method"`
}

// HostSelectorRequirement is one condition on a host's labels.
type HostSelectorRequirement struct {
	// Key of the label.
	// +kubebuilder:validation:MinLength=1
	Key string `json:"key"`
	// Operator is in, notin, exists, doesnotexist, =, ==, !=, !, gt or lt, in any case.
	Operator string `json:"operator"`
	// Values that the operator compares with.
	// +optional
	Values []string `json:"values,omitempty"`
}

// HostSelector is what a host's labels must fulfil, all of it.
type HostSelector struct {
	// MatchLabels are labels with their values.
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
	// MatchExpressions are conditions on labels.
	// +optional
	MatchExpressions []HostSelectorRequirement `json:"matchExpressions,omitempty"`
}

// Metal3MachineSpec is what the owner asks for.
//
// +kubebuilder:validation:XValidation:rule="has(self.customDeploy) || (has(self.image) && size(self.image.url) > 0)",message="image.url or customDeploy.method is needed"
type Metal3MachineSpec struct {
	// ProviderID is that of the Node. The provider writes it.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// Image is what the host's disk gets.
	// +optional
	Image *Image `json:"image,omitempty"`
	// CustomDeploy installs the host by a step of the ramdisk's own.
	// +optional
	CustomDeploy *CustomDeploy `json:"customDeploy,omitempty"`
	// UserData is a Secret of the owner's. It counts only if the Machine has no bootstrap data.
	// +optional
	UserData *corev1.SecretReference `json:"userData,omitempty"`
	// HostSelector restricts the hosts. Without it any host will do.
	// +optional
	HostSelector HostSelector `json:"hostSelector,omitempty,omitzero"`
	// DataTemplate is the Metal3DataTemplate that metadata and network data are rendered from.
	// +optional
	DataTemplate *ObjectReference `json:"dataTemplate,omitempty"`
	// MetaData is a Secret of the owner's, in place of a rendered one.
	// +optional
	MetaData *corev1.SecretReference `json:"metaData,omitempty"`
	// NetworkData is a Secret of the owner's, in place of a rendered one.
	// +optional
	NetworkData *corev1.SecretReference `json:"networkData,omitempty"`
	// AutomatedCleaningMode is metadata or disabled. This appliance never erases a disk that nobody named: it keeps
	// its hosts at disabled.
	// +kubebuilder:validation:Enum=metadata;disabled
	// +optional
	AutomatedCleaningMode *string `json:"automatedCleaningMode,omitempty"`
	// FailureDomain that the host should be in. The Machine's own comes first.
	// +optional
	FailureDomain string `json:"failureDomain,omitempty"`
}

// MachineAddress is one address of a machine.
type MachineAddress struct {
	// Type is Hostname, InternalIP, ExternalIP, InternalDNS or ExternalDNS.
	Type string `json:"type"`
	// Address itself.
	Address string `json:"address"`
}

// Metal3MachineStatus is what the provider says.
type Metal3MachineStatus struct {
	// Initialization says what Cluster API waits for once.
	// +optional
	Initialization Initialization `json:"initialization,omitempty,omitzero"`
	// Addresses of the host and of its Node.
	// +optional
	Addresses []MachineAddress `json:"addresses,omitempty"`
	// FailureDomain that the host is in, by its label.
	// +optional
	FailureDomain string `json:"failureDomain,omitempty"`
	// UserData is the Secret that the host got.
	// +optional
	UserData *corev1.SecretReference `json:"userData,omitempty"`
	// MetaData is the Secret that the host got.
	// +optional
	MetaData *corev1.SecretReference `json:"metaData,omitempty"`
	// NetworkData is the Secret that the host got.
	// +optional
	NetworkData *corev1.SecretReference `json:"networkData,omitempty"`
	// RenderedData is the Metal3Data.
	// +optional
	RenderedData *ObjectReference `json:"renderedData,omitempty"`
	// Conditions say how far it is.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// LastUpdated is when this status was last written.
	// +optional
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`
}

// Metal3Machine is the infrastructure of a Machine: one BareMetalHost.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=m3m,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io=","cluster.x-k8s.io/provider=infrastructure-metal3"}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels.cluster\.x-k8s\.io/cluster-name`
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.metadata.annotations.metal3\.io/BareMetalHost`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="ProviderID",type=string,JSONPath=`.spec.providerID`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type Metal3Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the owner asks for.
	Spec Metal3MachineSpec `json:"spec"`
	// Status is what the provider says.
	// +optional
	Status Metal3MachineStatus `json:"status,omitempty,omitzero"`
}

// Metal3MachineList is what a list request returns.
//
// +kubebuilder:object:root=true
type Metal3MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3Machine `json:"items"`
}

// Metal3MachineTemplateResource is what Metal3Machines are made from.
type Metal3MachineTemplateResource struct {
	// ObjectMeta is metadata that the Metal3Machines get.
	// +optional
	ObjectMeta TemplateMeta `json:"metadata,omitempty,omitzero"`
	// Spec of the Metal3Machines.
	Spec Metal3MachineSpec `json:"spec"`
}

// Metal3MachineTemplateSpec holds the template.
type Metal3MachineTemplateSpec struct {
	// Template of Metal3Machines.
	Template Metal3MachineTemplateResource `json:"template"`
	// NodeReuse keeps the host of a deleted machine for the next machine of the same control plane or deployment. It
	// takes a rollout without surge.
	// +kubebuilder:default=false
	// +optional
	NodeReuse *bool `json:"nodeReuse,omitempty"`
}

// Metal3MachineTemplate is what control planes and MachineDeployments refer to.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=m3mt,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io=","cluster.x-k8s.io/provider=infrastructure-metal3"}
type Metal3MachineTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec holds the template.
	Spec Metal3MachineTemplateSpec `json:"spec"`
}

// Metal3MachineTemplateList is what a list request returns.
//
// +kubebuilder:object:root=true
type Metal3MachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3MachineTemplate `json:"items"`
}
