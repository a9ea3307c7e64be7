package v1beta2

import apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

// NetworkData is OpenStack's network_data.json, with addresses from pools.
type NetworkData struct {
	// Links are interfaces.
	// +optional
	Links NetworkLinks `json:"links,omitempty,omitzero"`
	// Networks are on links.
	// +optional
	Networks Networks `json:"networks,omitempty,omitzero"`
	// Services of all networks.
	// +optional
	Services NetworkServices `json:"services,omitempty,omitzero"`
}

// NetworkLinks are interfaces by their type.
type NetworkLinks struct {
	// Ethernets are interfaces of the host.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Ethernets []LinkEthernet `json:"ethernets,omitempty"`
	// Bonds join interfaces.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Bonds []LinkBond `json:"bonds,omitempty"`
	// Vlans are on interfaces.
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Vlans []LinkVlan `json:"vlans,omitempty"`
}

// LinkMAC is a MAC address by exactly one of its ways.
//
// +kubebuilder:validation:XValidation:rule="[has(self.string), has(self.fromHostInterface), has(self.fromAnnotation)].filter(x, x).size() == 1",message="a MAC address has exactly one of string, fromHostInterface and fromAnnotation"
type LinkMAC struct {
	// String is the address itself.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	String *string `json:"string,omitempty"`
	// FromHostInterface is that of an interface by its name in the host's inspection.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	FromHostInterface *string `json:"fromHostInterface,omitempty"`
	// FromAnnotation is in an annotation.
	// +optional
	FromAnnotation *AnnotationReference `json:"fromAnnotation,omitempty"`
}

// AnnotationReference is an annotation of an object.
type AnnotationReference struct {
	// Object is machine, metal3machine or baremetalhost.
	// +kubebuilder:validation:Enum=machine;metal3machine;baremetalhost
	Object string `json:"object"`
	// Annotation by its key.
	// +kubebuilder:validation:MaxLength=317
	Annotation string `json:"annotation"`
}

// Link is what all links have.
type Link struct {
	// ID by which networks and other links refer to it.
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// Name of the interface in the system.
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[a-zA-Z][a-zA-Z0-9._-]*$`
	// +optional
	Name string `json:"name,omitempty"`
	// MTU of the interface.
	// +kubebuilder:default=1500
	// +kubebuilder:validation:Maximum=9000
	// +optional
	MTU int32 `json:"mtu,omitempty"`
	// MACAddress of the interface.
	// +optional
	MACAddress *LinkMAC `json:"macAddress,omitempty"`
}

// LinkEthernet is an interface of the host.
type LinkEthernet struct {
	Link `json:",inline"`
	// Type is phy for an interface of the host.
	// +kubebuilder:validation:Enum=bridge;dvs;hw_veb;hyperv;ovs;tap;vhostuser;vif;phy
	Type string `json:"type"`
}

// BondParameter is an option of a bond that has no field.
type BondParameter struct {
	// Name of the option, without bond_.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Value of the option.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Value apiextensionsv1.JSON `json:"value,omitempty"`
}

// LinkBond joins links.
type LinkBond struct {
	Link `json:",inline"`
	// BondMode is that of the kernel.
	// +kubebuilder:validation:Enum="balance-rr";"active-backup";"balance-xor";"broadcast";"balance-tlb";"balance-alb";"802.3ad"
	BondMode string `json:"bondMode"`
	// BondXmitHashPolicy of balance-xor and 802.3ad.
	// +kubebuilder:validation:Enum="layer2";"layer3+4";"layer2+3"
	// +optional
	BondXmitHashPolicy string `json:"bondXmitHashPolicy,omitempty"`
	// BondLinks are the links by their IDs.
	// +optional
	BondLinks []string `json:"bondLinks,omitempty"`
	// Parameters are further options.
	// +listType=map
	// +listMapKey=name
	// +optional
	Parameters []BondParameter `json:"parameters,omitempty"`
}

// LinkVlan is a VLAN on a link.
type LinkVlan struct {
	Link `json:",inline"`
	// VlanID is the tag.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4096
	VlanID int32 `json:"vlanID"`
	// VlanLink is the link by its ID.
	VlanLink string `json:"vlanLink"`
}

// Networks are networks by their type.
type Networks struct {
	// IPv4 are networks with an address of a pool.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	IPv4 []StaticNetwork `json:"ipv4,omitempty"`
	// IPv6 are networks with an address of a pool.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	IPv6 []StaticNetwork `json:"ipv6,omitempty"`
	// IPv4DHCP are networks with an address by DHCP.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	IPv4DHCP []Network `json:"ipv4DHCP,omitempty"`
	// IPv6DHCP are networks with an address by DHCPv6.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	IPv6DHCP []Network `json:"ipv6DHCP,omitempty"`
	// IPv6SLAAC are networks with an address by router advertisements.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	IPv6SLAAC []Network `json:"ipv6SLAAC,omitempty"`
}

// Network is on a link.
type Network struct {
	// ID of the network.
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// Link by its ID.
	// +kubebuilder:validation:MaxLength=64
	Link string `json:"link"`
	// Routes of the network.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Routes []Route `json:"routes,omitempty"`
}

// PoolReference names a pool of addresses.
type PoolReference struct {
	// Name of the pool.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// APIGroup of the pool. Without it ipam.metal3.io.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	APIGroup string `json:"apiGroup,omitempty"`
	// Kind of the pool. Without it IPPool.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Kind string `json:"kind,omitempty"`
}

// StaticNetwork has an address of a pool: fromPoolAnnotation comes before fromPoolRef, that before
// ipAddressFromIPPool.
//
// +kubebuilder:validation:XValidation:rule="has(self.fromPoolAnnotation) || has(self.fromPoolRef) || (has(self.ipAddressFromIPPool) && size(self.ipAddressFromIPPool) > 0)",message="a static network needs a pool: fromPoolRef, fromPoolAnnotation or ipAddressFromIPPool"
type StaticNetwork struct {
	Network `json:",inline"`
	// IPAddressFromIPPool is the name of an IPPool.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	IPAddressFromIPPool string `json:"ipAddressFromIPPool,omitempty"`
	// FromPoolRef names the pool.
	// +optional
	FromPoolRef *PoolReference `json:"fromPoolRef,omitempty"`
	// FromPoolAnnotation is where the name of an IPPool is.
	// +optional
	FromPoolAnnotation *AnnotationReference `json:"fromPoolAnnotation,omitempty"`
}

// Gateway is an address, or that of a pool.
type Gateway struct {
	// String is the address itself.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	String *string `json:"string,omitempty"`
	// FromIPPool is the name of an IPPool.
	// +optional
	FromIPPool *string `json:"fromIPPool,omitempty"`
	// FromPoolRef names the pool.
	// +optional
	FromPoolRef *PoolReference `json:"fromPoolRef,omitempty"`
	// FromPoolAnnotation is where the name of an IPPool is.
	// +optional
	FromPoolAnnotation *AnnotationReference `json:"fromPoolAnnotation,omitempty"`
}

// Route is one route of a network.
type Route struct {
	// Network that it leads to.
	// +kubebuilder:validation:MaxLength=64
	Network string `json:"network"`
	// Prefix is the length of the network's prefix.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	// +optional
	Prefix int32 `json:"prefix,omitempty"`
	// Gateway that it goes through.
	Gateway Gateway `json:"gateway"`
	// Services behind it.
	// +optional
	Services NetworkServices `json:"services,omitempty,omitzero"`
}

// NetworkServices are name servers.
type NetworkServices struct {
	// DNS are addresses of name servers.
	// +kubebuilder:validation:MaxItems=16
	// +optional
	DNS []string `json:"dns,omitempty"`
	// DNSFromIPPool is the name of the IPPool whose name servers they are.
	// +optional
	DNSFromIPPool *string `json:"dnsFromIPPool,omitempty"`
}
