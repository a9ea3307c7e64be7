// Package sriovnodes sets the virtual functions of nodes up as policies say, and makes networks of them. It is compatible
// with the SR-IOV network operator, by a part of its kinds (k8snetworkplumbingwg/sriov-network-operator, api/v1):
// SriovNetworkNodePolicy, SriovNetworkNodeState and SriovNetwork.
//
// Agent runs on each node and changes that node's devices. Operator runs once: it writes the definitions of networks, and
// has pods leave a node whose virtual functions must change.
package sriovnodes

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// Namespace has policies, networks and states: those of other namespaces are not read.
	Namespace = "sriov-network-operator"
	// Prefix is of the resources that policies name, as upstream's.
	Prefix = "openshift.io"

	group = "sriovnetwork.openshift.io"
	owner = "firstlight-sriov" // field manager
)

// Kinds that are read and written.
var (
	policies = schema.GroupVersionResource{Group: group, Version: "v1", Resource: "sriovnetworknodepolicies"}
	networks = schema.GroupVersionResource{Group: group, Version: "v1", Resource: "sriovnetworks"}
	states   = schema.GroupVersionResource{Group: group, Version: "v1", Resource: "sriovnetworknodestates"}

	definitions = schema.GroupVersionResource{
		Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions",
	}
)

// Policy is a SriovNetworkNodePolicy.
type Policy struct {
	Name string     `json:"-"`
	Spec PolicySpec `json:"spec"`
}

// PolicySpec says what devices of nodes have.
type PolicySpec struct {
	NodeSelector map[string]string `json:"nodeSelector"`
	NICSelector  struct {
		Vendor      string   `json:"vendor"`
		DeviceID    string   `json:"deviceID"`
		PFNames     []string `json:"pfNames"` // NAME, or NAME#0-3 for some of its virtual functions
		RootDevices []string `json:"rootDevices"`
	} `json:"nicSelector"`
	NumVfs       int    `json:"numVfs"`
	DeviceType   string `json:"deviceType"` // netdevice or vfio-pci
	ResourceName string `json:"resourceName"`
	Priority     int    `json:"priority"` // the lowest number comes first
	MTU          int    `json:"mtu"`      // bytes; 0 leaves it
	IsRDMA       bool   `json:"isRdma"`   // pods get devices of RDMA
}

// Network is a SriovNetwork.
type Network struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              NetworkSpec `json:"spec"`
}

// NetworkSpec says how pods are attached.
type NetworkSpec struct {
	ResourceName     string `json:"resourceName"`
	NetworkNamespace string `json:"networkNamespace"` // of the definition; the network's own if empty
	VLAN             int    `json:"vlan"`
	VLANQoS          int    `json:"vlanQoS"`
	VLANProto        string `json:"vlanProto"`
	SpoofChk         string `json:"spoofChk"`
	Trust            string `json:"trust"`
	LinkState        string `json:"linkState"`
	MinTxRate        *int   `json:"minTxRate"`
	MaxTxRate        *int   `json:"maxTxRate"`
	IPAM             string `json:"ipam"`         // JSON
	Capabilities     string `json:"capabilities"` // JSON
}

// State is the status of a SriovNetworkNodeState.
type State struct {
	Interfaces    []Interface `json:"interfaces"`
	SyncStatus    string      `json:"syncStatus"`    // of SyncSucceeded, SyncInProgress and SyncFailed
	LastSyncError string      `json:"lastSyncError"` // "" if it succeeded
	// BlockedBy are the pods that have virtual functions which must change, as NAMESPACE/NAME. Upstream has no such field.
	BlockedBy []string `json:"blockedBy"`
}

// Values of State.SyncStatus, as upstream's.
const (
	SyncSucceeded  = "Succeeded"
	SyncInProgress = "InProgress"
	SyncFailed     = "Failed"
)

// Interface is a physical function that can have virtual ones.
type Interface struct {
	PCIAddress string            `json:"pciAddress"`
	Name       string            `json:"name,omitempty"`
	Vendor     string            `json:"vendor,omitempty"`
	DeviceID   string            `json:"deviceID,omitempty"`
	Driver     string            `json:"driver,omitempty"`
	MTU        int               `json:"mtu,omitempty"`
	TotalVfs   int               `json:"totalvfs,omitempty"`
	NumVfs     int               `json:"numVfs,omitempty"`
	VFs        []VirtualFunction `json:"Vfs,omitempty"`
}

// VirtualFunction is one in a State.
type VirtualFunction struct {
	ID         int    `json:"vfID"`
	PCIAddress string `json:"pciAddress"`
	Name       string `json:"name,omitempty"`
	Vendor     string `json:"vendor,omitempty"`
	DeviceID   string `json:"deviceID,omitempty"`
	Driver     string `json:"driver,omitempty"`
}

// decode reads an object of the API.
func decode(o *unstructured.Unstructured, into any) error {
	text, err := json.Marshal(o.Object)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}
