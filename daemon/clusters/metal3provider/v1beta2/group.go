// Package v1beta2 is the group infrastructure.cluster.x-k8s.io as Cluster API's Metal3 provider has it: the same kinds
// and the same names in JSON, for the contract v1beta2 of Cluster API. The definitions in assets/crd and the copies in
// zz_generated.deepcopy.go are made from these types by go generate.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate sh -c "cd ../../../.. && GOFLAGS=-mod=mod go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.0 object paths=./daemon/clusters/metal3provider/v1beta2/... paths=./daemon/clusters/metal3provider/v1alpha1/..."
//go:generate sh -c "cd ../../../.. && GOFLAGS=-mod=mod go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.0 crd:maxDescLen=400 output:stdout paths=./daemon/clusters/metal3provider/v1beta2/... paths=./daemon/clusters/metal3provider/v1alpha1/... > assets/crd/metal3provider.yaml"

// GroupVersion of all kinds.
var GroupVersion = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2"}

// AddToScheme makes the kinds known.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Metal3Cluster{}, &Metal3ClusterList{},
		&Metal3ClusterTemplate{}, &Metal3ClusterTemplateList{},
		&Metal3Machine{}, &Metal3MachineList{},
		&Metal3MachineTemplate{}, &Metal3MachineTemplateList{},
		&Metal3DataTemplate{}, &Metal3DataTemplateList{},
		&Metal3DataClaim{}, &Metal3DataClaimList{},
		&Metal3Data{}, &Metal3DataList{},
		&Metal3Remediation{}, &Metal3RemediationList{},
		&Metal3RemediationTemplate{}, &Metal3RemediationTemplateList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// ObjectReference names an object in the namespace of whoever refers to it.
type ObjectReference struct {
	// Name of the object.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
	// Namespace of the object. It is the one of the object that refers to it.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// TemplateMeta is metadata that objects made from a template get.
type TemplateMeta struct {
	// Labels of the objects.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the objects.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Initialization says what Cluster API waits for once.
type Initialization struct {
	// Provisioned is true once the infrastructure is there.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}
