package v1beta2

// MetaData is a flat map of strings by what makes each of them. Of two with one key the later list wins, in the order
// of docs/metal3-provider.md.
type MetaData struct {
	// Strings are given as they are.
	// +optional
	Strings []MetaDataString `json:"strings,omitempty"`
	// ObjectNames are names of objects.
	// +optional
	ObjectNames []MetaDataObjectName `json:"objectNames,omitempty"`
	// Indexes are made of the index of the Metal3Data.
	// +optional
	Indexes []MetaDataIndex `json:"indexes,omitempty"`
	// Namespaces are the namespace of the Metal3Data.
	// +optional
	Namespaces []MetaDataNamespace `json:"namespaces,omitempty"`
	// IPAddressesFromPool are addresses.
	// +optional
	IPAddressesFromPool []FromPool `json:"ipAddressesFromPool,omitempty"`
	// PrefixesFromPool are the lengths of networks' prefixes.
	// +optional
	PrefixesFromPool []FromPool `json:"prefixesFromPool,omitempty"`
	// GatewaysFromPool are gateways of addresses.
	// +optional
	GatewaysFromPool []FromPool `json:"gatewaysFromPool,omitempty"`
	// DNSServersFromPool are name servers, separated by commas.
	// +optional
	DNSServersFromPool []FromPool `json:"dnsServersFromPool,omitempty"`
	// FromHostInterfaces are MAC addresses of the host.
	// +optional
	FromHostInterfaces []MetaDataHostInterface `json:"fromHostInterfaces,omitempty"`
	// FromLabels are values of labels.
	// +optional
	FromLabels []MetaDataFromLabel `json:"fromLabels,omitempty"`
	// FromAnnotations are values of annotations.
	// +optional
	FromAnnotations []MetaDataFromAnnotation `json:"fromAnnotations,omitempty"`
}

// MetaDataString is a value as it is.
type MetaDataString struct {
	// Key in the metadata.
	Key string `json:"key"`
	// Value in the metadata.
	Value string `json:"value"`
}

// MetaDataNamespace is the namespace.
type MetaDataNamespace struct {
	// Key in the metadata.
	Key string `json:"key"`
}

// MetaDataObjectName is the name of an object.
type MetaDataObjectName struct {
	// Key in the metadata.
	Key string `json:"key"`
	// Object is machine, metal3machine or baremetalhost.
	// +kubebuilder:validation:Enum=machine;metal3machine;baremetalhost
	Object string `json:"object"`
}

// MetaDataIndex is PREFIX, OFFSET + INDEX * STEP, SUFFIX.
type MetaDataIndex struct {
	// Key in the metadata.
	Key string `json:"key"`
	// Offset of the first.
	// +optional
	Offset int32 `json:"offset,omitempty"`
	// Step between two.
	// +kubebuilder:default=1
	// +optional
	Step int32 `json:"step,omitempty"`
	// Prefix is put before the number.
	// +optional
	Prefix string `json:"prefix,omitempty"`
	// Suffix is put behind the number.
	// +optional
	Suffix string `json:"suffix,omitempty"`
}

// FromPool is something of the address that the machine has from a pool.
type FromPool struct {
	// Key in the metadata.
	Key string `json:"key"`
	// Name of the pool.
	Name string `json:"name"`
	// APIGroup of the pool. Without it ipam.metal3.io.
	// +optional
	APIGroup string `json:"apiGroup,omitempty"`
	// Kind of the pool. Without it IPPool.
	// +optional
	Kind string `json:"kind,omitempty"`
}

// MetaDataHostInterface is a MAC address of the host.
//
// +kubebuilder:validation:XValidation:rule="(has(self.interface) && size(self.interface) > 0) != (has(self.fromBootMAC) && self.fromBootMAC)",message="either interface or fromBootMAC"
type MetaDataHostInterface struct {
	// Key in the metadata.
	Key string `json:"key"`
	// Interface by its name in the host's inspection.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Interface string `json:"interface,omitempty"`
	// FromBootMAC is true for the MAC address that the host boots from.
	// +optional
	FromBootMAC bool `json:"fromBootMAC,omitempty"`
}

// MetaDataFromLabel is the value of a label; empty if there is none.
type MetaDataFromLabel struct {
	// Key in the metadata.
	Key string `json:"key"`
	// Object is machine, metal3machine or baremetalhost.
	// +kubebuilder:validation:Enum=machine;metal3machine;baremetalhost
	Object string `json:"object"`
	// Label by its key.
	Label string `json:"label"`
}

// MetaDataFromAnnotation is the value of an annotation; empty if there is none.
type MetaDataFromAnnotation struct {
	// Key in the metadata.
	Key string `json:"key"`
	// Object is machine, metal3machine or baremetalhost.
	// +kubebuilder:validation:Enum=machine;metal3machine;baremetalhost
	Object string `json:"object"`
	// Annotation by its key.
	Annotation string `json:"annotation"`
}
