package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Finalizers of what data is rendered by.
const (
	DataTemplateFinalizer = "metal3datatemplate.infrastructure.cluster.x-k8s.io"
	DataClaimFinalizer    = "metal3dataclaim.infrastructure.cluster.x-k8s.io"
	DataFinalizer         = "metal3data.infrastructure.cluster.x-k8s.io"
)

// IndexEntry is an index that is in use.
type IndexEntry struct {
	// Name of the Metal3DataClaim.
	Name string `json:"name"`
	// Index that it has.
	Index int32 `json:"index"`
}

// Metal3DataTemplateSpec is what data is rendered from.
//
// +kubebuilder:validation:XValidation:rule="has(self.metaData) == has(oldSelf.metaData) && (!has(self.metaData) || self.metaData == oldSelf.metaData)",message="metaData cannot be changed: make another Metal3DataTemplate"
// +kubebuilder:validation:XValidation:rule="has(self.networkData) == has(oldSelf.networkData) && (!has(self.networkData) || self.networkData == oldSelf.networkData)",message="networkData cannot be changed: make another Metal3DataTemplate"
type Metal3DataTemplateSpec struct {
	// ClusterName does nothing: a template may serve several clusters.
	// +optional
	ClusterName string `json:"clusterName,omitempty"`
	// MetaData is what the Secret of metadata gets.
	// +optional
	MetaData *MetaData `json:"metaData,omitempty"`
	// NetworkData is what the Secret of network data gets.
	// +optional
	NetworkData *NetworkData `json:"networkData,omitempty"`
}

// Metal3DataTemplateStatus is what the provider says.
type Metal3DataTemplateStatus struct {
	// Indexes in use. They are found again from the Metal3Data.
	// +listType=map
	// +listMapKey=name
	// +optional
	Indexes []IndexEntry `json:"indexes,omitempty"`
	// LastUpdated is when this status was last written.
	// +optional
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`
}

// Metal3DataTemplate is what metadata and network data of machines are rendered from.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=m3dt,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io=","cluster.x-k8s.io/provider=infrastructure-metal3","clusterctl.cluster.x-k8s.io/move="}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Metal3DataTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what data is rendered from.
	// +optional
	Spec Metal3DataTemplateSpec `json:"spec,omitempty"`
	// Status is what the provider says.
	// +optional
	Status Metal3DataTemplateStatus `json:"status,omitempty,omitzero"`
}

// Metal3DataTemplateList is what a list request returns.
//
// +kubebuilder:object:root=true
type Metal3DataTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3DataTemplate `json:"items"`
}

// Metal3DataClaimSpec is what is asked for.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a claim cannot be changed"
type Metal3DataClaimSpec struct {
	// Template is the Metal3DataTemplate.
	// +kubebuilder:validation:XValidation:rule="has(self.name) && size(self.name) > 0",message="the template needs a name"
	Template ObjectReference `json:"template"`
}

// Metal3DataClaimStatus is what the provider says.
type Metal3DataClaimStatus struct {
	// RenderedData is the Metal3Data.
	// +optional
	RenderedData *ObjectReference `json:"renderedData,omitempty"`
	// ErrorMessage is why there is none.
	// +optional
	ErrorMessage string `json:"errorMessage,omitempty"`
}

// Metal3DataClaim asks for data of a template, for the Metal3Machine of the same name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=m3dc,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io=","cluster.x-k8s.io/provider=infrastructure-metal3"}
type Metal3DataClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked for.
	Spec Metal3DataClaimSpec `json:"spec"`
	// Status is what the provider says.
	// +optional
	Status Metal3DataClaimStatus `json:"status,omitempty,omitzero"`
}

// Metal3DataClaimList is what a list request returns.
//
// +kubebuilder:object:root=true
type Metal3DataClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3DataClaim `json:"items"`
}

// Metal3DataSpec is which data it is.
//
// +kubebuilder:validation:XValidation:rule="self.index == oldSelf.index && self.template == oldSelf.template && self.claim == oldSelf.claim",message="index, template and claim cannot be changed"
type Metal3DataSpec struct {
	// Index among the data of the template, from 0.
	// +kubebuilder:validation:Minimum=0
	Index int32 `json:"index"`
	// Template is the Metal3DataTemplate.
	Template ObjectReference `json:"template"`
	// Claim is the Metal3DataClaim.
	Claim ObjectReference `json:"claim"`
	// MetaData is the Secret that was rendered.
	// +optional
	MetaData *corev1.SecretReference `json:"metaData,omitempty"`
	// NetworkData is the Secret that was rendered.
	// +optional
	NetworkData *corev1.SecretReference `json:"networkData,omitempty"`
}

// Metal3DataStatus is what the provider says.
type Metal3DataStatus struct {
	// Ready is true once the Secrets are there.
	// +optional
	Ready *bool `json:"ready,omitempty"`
	// ErrorMessage is why they are not.
	// +optional
	ErrorMessage string `json:"errorMessage,omitempty"`
}

// Metal3Data is rendered data: an index of a template, addresses, and Secrets. Its name is TEMPLATE-INDEX.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=metal3datas,shortName=m3d,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io=","cluster.x-k8s.io/provider=infrastructure-metal3"}
// +kubebuilder:metadata:annotations="clusterctl.cluster.x-k8s.io/skip-crd-name-preflight-check="
// +kubebuilder:validation:XValidation:rule="self.metadata.name.startsWith(self.spec.template.name + '-')",message="the name of a Metal3Data is TEMPLATE-INDEX"
type Metal3Data struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is which data it is.
	Spec Metal3DataSpec `json:"spec"`
	// Status is what the provider says.
	// +optional
	Status Metal3DataStatus `json:"status,omitempty,omitzero"`
}

// Metal3DataList is what a list request returns.
//
// +kubebuilder:object:root=true
type Metal3DataList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3Data `json:"items"`
}
