package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterFinalizer keeps a Metal3Cluster as long as its cluster has Machines.
const ClusterFinalizer = "metal3cluster.infrastructure.cluster.x-k8s.io"

// Annotations of a Metal3Cluster.
const (
	// AnnotationLabelSync lists prefixes of labels, separated by commas, that go from a host to its Node.
	AnnotationLabelSync = "metal3.io/metal3-label-sync-prefixes"
)

// Conditions of a Metal3Cluster.
const (
	ConditionInfrastructureReady = "BaremetalInfrastructureReady"
	ConditionReady               = "Ready"
	ConditionPaused              = "Paused"
)

// APIEndpoint is where a cluster's API server is reached.
type APIEndpoint struct {
	// Host is a name or an address, given by the owner or taken from a pool. The nodes of the control plane set it up.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host"`
	// Port of the API server.
	// +kubebuilder:default=6443
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port int32 `json:"port,omitempty"`
}

// FailureDomain is a part of the rack that fails as a whole.
type FailureDomain struct {
	// Name, which hosts have in the label infrastructure.cluster.x-k8s.io/failure-domain.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name"`
	// ControlPlane is true if nodes of the control plane may be there.
	// +optional
	ControlPlane *bool `json:"controlPlane,omitempty"`
	// Attributes are the owner's own.
	// +optional
	Attributes map[string]string `json:"attributes,omitempty"`
}

// EndpointPool is a pool that the endpoint's address is taken from.
type EndpointPool struct {
	// Name of the pool.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// APIGroup of the pool. Without it ipam.metal3.io.
	// +optional
	APIGroup string `json:"apiGroup,omitempty"`
	// Kind of the pool. Without it IPPool.
	// +optional
	Kind string `json:"kind,omitempty"`
}

// Metal3ClusterSpec is what the owner asks for.
type Metal3ClusterSpec struct {
	// ControlPlaneEndpoint is where the cluster's API server is reached. Without it, it is taken from a pool.
	// +optional
	ControlPlaneEndpoint APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`
	// ControlPlaneEndpointFromPool is where the endpoint's address comes from if none is given.
	// +optional
	ControlPlaneEndpointFromPool *EndpointPool `json:"controlPlaneEndpointFromPool,omitempty"`
	// CloudProviderEnabled is true if an external cloud provider gives Nodes their providerID.
	// +kubebuilder:default=false
	// +optional
	CloudProviderEnabled *bool `json:"cloudProviderEnabled,omitempty"`
	// FailureDomains of the rack.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	// +optional
	FailureDomains []FailureDomain `json:"failureDomains,omitempty"`
}

// Metal3ClusterStatus is what the provider says.
type Metal3ClusterStatus struct {
	// Initialization says what Cluster API waits for once.
	// +optional
	Initialization Initialization `json:"initialization,omitempty,omitzero"`
	// FailureDomains are those of the spec.
	// +listType=map
	// +listMapKey=name
	// +optional
	FailureDomains []FailureDomain `json:"failureDomains,omitempty"`
	// Conditions are BaremetalInfrastructureReady, Paused and Ready.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// LastUpdated is when this status was last written.
	// +optional
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`
}

// Metal3Cluster is the infrastructure of a Cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=m3c,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io=","cluster.x-k8s.io/provider=infrastructure-metal3"}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels.cluster\.x-k8s\.io/cluster-name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.spec.controlPlaneEndpoint.host`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Metal3Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the owner asks for. A template of a ClusterClass has no endpoint: each cluster brings its own.
	// +kubebuilder:validation:XValidation:rule="has(self.controlPlaneEndpoint) || has(self.controlPlaneEndpointFromPool)",message="name controlPlaneEndpoint, or a pool to take it from in controlPlaneEndpointFromPool"
	Spec Metal3ClusterSpec `json:"spec"`
	// Status is what the provider says.
	// +optional
	Status Metal3ClusterStatus `json:"status,omitempty,omitzero"`
}

// Metal3ClusterList is what a list request returns.
//
// +kubebuilder:object:root=true
type Metal3ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3Cluster `json:"items"`
}

// Metal3ClusterTemplateResource is what a ClusterClass makes Metal3Clusters from.
type Metal3ClusterTemplateResource struct {
	// ObjectMeta is metadata that the Metal3Cluster gets.
	// +optional
	ObjectMeta TemplateMeta `json:"metadata,omitempty,omitzero"`
	// Spec of the Metal3Cluster.
	Spec Metal3ClusterSpec `json:"spec"`
}

// Metal3ClusterTemplateSpec holds the template.
type Metal3ClusterTemplateSpec struct {
	// Template of Metal3Clusters.
	Template Metal3ClusterTemplateResource `json:"template"`
}

// Metal3ClusterTemplate is what a ClusterClass refers to.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=m3ct,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io=","cluster.x-k8s.io/provider=infrastructure-metal3"}
type Metal3ClusterTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec holds the template.
	Spec Metal3ClusterTemplateSpec `json:"spec"`
}

// Metal3ClusterTemplateList is what a list request returns.
//
// +kubebuilder:object:root=true
type Metal3ClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3ClusterTemplate `json:"items"`
}
