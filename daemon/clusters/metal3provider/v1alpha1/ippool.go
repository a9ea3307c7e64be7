// Package v1alpha1 is the kind IPPool of the group ipam.metal3.io, with the names in JSON of Metal3's
// ip-address-manager. Addresses are asked for by IPAddressClaims of Cluster API.
//
// +kubebuilder:object:generate=true
// +groupName=ipam.metal3.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of IPPool.
var GroupVersion = schema.GroupVersion{Group: "ipam.metal3.io", Version: "v1alpha1"}

// AddToScheme makes the kind known.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &IPPool{}, &IPPoolList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Finalizers of a pool, and of the claims and addresses of it.
const (
	PoolFinalizer    = "ippool.ipam.metal3.io"
	ClaimFinalizer   = "ipclaim.ipam.metal3.io"
	AddressFinalizer = "ipaddress.ipam.metal3.io"
)

// AnnotationAddress of an IPAddressClaim asks for one address.
const AnnotationAddress = "ipAddress"

// Strategies of a pool.
const (
	StrategySequential = "sequential"
	StrategyRandom     = "random"
)

// Address is an IPv4 or IPv6 address.
//
// +kubebuilder:validation:MaxLength=45
// +kubebuilder:validation:XValidation:rule="isIP(self)",message="not an IP address"
type Address string

// Range is a part of a pool: from start to end, within subnet.
//
// +kubebuilder:validation:XValidation:rule="has(self.subnet) || (has(self.start) && has(self.end))",message="a range needs subnet, or start and end"
type Range struct {
	// Start is the first address. Without it, the one after the network's.
	// +optional
	Start *Address `json:"start,omitempty"`
	// End is the last address. Without it, the last of the subnet.
	// +optional
	End *Address `json:"end,omitempty"`
	// Subnet that all addresses are in.
	// +kubebuilder:validation:MaxLength=50
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="not a subnet, such as 192.168.0.0/24"
	// +optional
	Subnet *string `json:"subnet,omitempty"`
	// Prefix is the length of the network's prefix. Without it the pool's.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	// +optional
	Prefix int32 `json:"prefix,omitempty"`
	// Gateway of the network. Without it the pool's.
	// +optional
	Gateway *Address `json:"gateway,omitempty"`
	// DNSServers of the network. Without them the pool's.
	// +kubebuilder:validation:MaxItems=16
	// +optional
	DNSServers []Address `json:"dnsServers,omitempty"`
}

// IPPoolSpec is what the owner gives.
//
// +kubebuilder:validation:XValidation:rule="self.namePrefix == oldSelf.namePrefix",message="namePrefix cannot be changed"
// +kubebuilder:validation:XValidation:rule="self.allocationStrategy == oldSelf.allocationStrategy",message="allocationStrategy cannot be changed"
// +kubebuilder:validation:XValidation:rule="!has(self.preAllocations) || self.preAllocations.all(a, self.preAllocations.exists_one(b, self.preAllocations[a] == self.preAllocations[b]))",message="an address is preallocated twice"
type IPPoolSpec struct {
	// ClusterName is the Cluster that the pool belongs to, is paused with and moves with. It may have none.
	// +optional
	ClusterName *string `json:"clusterName,omitempty"`
	// Pools are its ranges, in the order in which they are used.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Pools []Range `json:"pools,omitempty"`
	// PreAllocations are addresses by the name of the claim that is to have them.
	// +kubebuilder:validation:MaxProperties=128
	// +optional
	PreAllocations map[string]Address `json:"preAllocations,omitempty"`
	// Prefix is the length of the networks' prefix.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	// +optional
	Prefix int32 `json:"prefix,omitempty"`
	// Gateway of the networks.
	// +optional
	Gateway *Address `json:"gateway,omitempty"`
	// DNSServers of the networks.
	// +kubebuilder:validation:MaxItems=16
	// +optional
	DNSServers []Address `json:"dnsServers,omitempty"`
	// NamePrefix is that of ip-address-manager's addresses. Addresses of Cluster API are called as their claims.
	// +kubebuilder:validation:MinLength=1
	NamePrefix string `json:"namePrefix"`
	// AllocationStrategy is sequential or random.
	// +kubebuilder:validation:Enum=sequential;random
	// +kubebuilder:default=sequential
	// +optional
	AllocationStrategy string `json:"allocationStrategy,omitempty"`
}

// IPPoolStatus is what the provider says.
type IPPoolStatus struct {
	// Allocations are the addresses in use, by the name of their claim. They are found again from the IPAddresses.
	// +optional
	Allocations map[string]string `json:"indexes,omitempty"`
	// LastUpdated is when this status was last written.
	// +optional
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`
}

// IPPool is a set of addresses.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=ipp,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1alpha1","clusterctl.cluster.x-k8s.io=","clusterctl.cluster.x-k8s.io/move=","cluster.x-k8s.io/provider=infrastructure-metal3"}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels.cluster\.x-k8s\.io/cluster-name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type IPPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the owner gives.
	Spec IPPoolSpec `json:"spec"`
	// Status is what the provider says.
	// +optional
	Status IPPoolStatus `json:"status,omitempty,omitzero"`
}

// IPPoolList is what a list request returns.
//
// +kubebuilder:object:root=true
type IPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPPool `json:"items"`
}
