// Package ovn4nfv gives pods interfaces on networks that OVN switches (package ovn). It is compatible with Nodus, formerly
// OVN4NFV, by a part of its interface (akraino-edge-stack/icn-nodus, doc/how-to-use.md): the kinds Network, ProviderNetwork
// and NetworkChaining of k8s.plugin.opnfv.org/v1alpha1, the pods' annotations, and the CNI plugin ovn4nfvk8s-cni.
//
// Operator runs once: it decides pods' addresses, writes them to their annotation, and makes OVN's northbound database what
// networks and pods ask for. Agent runs on each node: it installs the CNI plugin and connects provider networks. What is in
// OVN's databases is made again from what the API server has.
package ovn4nfv

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// Name is that of the CNI plugin: its program in /opt/cni/bin, and its type in configurations.
	Name = "ovn4nfvk8s-cni"
	// NetworkKey is a pod's annotation that selects networks.
	NetworkKey = "k8s.plugin.opnfv.org/nfn-network"
	// InterfacesKey is a pod's annotation that says what it has of them. The operator alone writes it.
	InterfacesKey = "k8s.plugin.opnfv.org/ovnInterfaces"

	group   = "k8s.plugin.opnfv.org"
	cniType = "ovn4nfv" // of networks and annotations

	// OperatorName and AgentName are of a Deployment and a DaemonSet in kube-system.
	OperatorName, AgentName = "ovn4nfv-operator", "ovn4nfv"
	systemNamespace         = "kube-system"
	// sharedNamespace has the networks of all namespaces.
	sharedNamespace = "default"
)

// Kinds that are read, and whose status is written.
var (
	networks  = schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "networks"}
	providers = schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "providernetworks"}
	chainings = schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "networkchainings"}
)

// Values of status.state, as upstream's.
const (
	stateCreated = "Created"
	statePending = "Pending"
	stateFailed  = "CreateInternalError"
)

// Subnet is one of a network. Gateway is an address, with or without the length of its prefix; ExcludeIPs are addresses and
// ranges FROM..TO with blanks between.
type Subnet struct {
	Name       string `json:"name"`
	Subnet     string `json:"subnet"`
	Gateway    string `json:"gateway"`
	ExcludeIPs string `json:"excludeIps"`
}

// NetworkSpec is that of a Network, and a part of a ProviderNetwork's.
type NetworkSpec struct {
	CNIType     string           `json:"cniType"`
	IPv4Subnets []Subnet         `json:"ipv4Subnets"`
	IPv6Subnets []Subnet         `json:"ipv6Subnets"`
	DNS         *json.RawMessage `json:"dns"`
	Routes      []Route          `json:"routes"`
}

// Route is one of a network.
type Route struct {
	Dst string `json:"dst"`
	GW  string `json:"gw"`
}

// ProviderSpec is that of a ProviderNetwork.
type ProviderSpec struct {
	NetworkSpec
	Type   string `json:"providerNetType"` // VLAN or DIRECT
	Direct *struct {
		Interface string   `json:"providerInterfaceName"`
		Nodes     string   `json:"directNodeSelector"` // all or specific
		Labels    []string `json:"nodeLabelList"`      // LABEL=VALUE
	} `json:"direct"`
	VLAN *struct {
		ID        string   `json:"vlanId"`
		Interface string   `json:"providerInterfaceName"`
		Logical   string   `json:"logicalInterfaceName"` // INTERFACE.ID if empty
		Nodes     string   `json:"vlanNodeSelector"`
		Labels    []string `json:"nodeLabelList"`
	} `json:"vlan"`
}

// ChainSpec is that of a NetworkChaining.
type ChainSpec struct {
	Type    string `json:"chainType"` // Routing
	Routing struct {
		Namespace string `json:"namespace"` // of the pods
		// Chain has labels of pods, and between each two the network that both have: app=a,net=middle,app=b.
		Chain string     `json:"networkChain"`
		Left  []ChainEnd `json:"left"`
		Right []ChainEnd `json:"right"`
	} `json:"routingSpec"`
}

// ChainEnd is a network at an end of a chain. The first pod of the chain, or the last one, has an interface on it.
type ChainEnd struct {
	Network     string         `json:"networkName"`
	Gateway     string         `json:"gatewayIp"` // by which the subnet is reached
	Subnet      string         `json:"subnet"`
	PodSelector map[string]any `json:"podSelector"`
}

// decode reads the spec of an object.
func decode(o *unstructured.Unstructured, spec any) error {
	text, err := json.Marshal(o.Object["spec"])
	if err == nil {
		err = json.Unmarshal(text, spec)
	}
	if err != nil {
		return fmt.Errorf("read spec: %w", err)
	}
	return nil
}

// Dirs are folders of the node, as the process sees them.
type Dirs struct {
	Programs string // of CNI plugins
	Conf     string // of the runtime's configurations
	State    string // the plugin's own
}

// NodeDirs are the folders below root.
func NodeDirs(root string) Dirs {
	return Dirs{
		Programs: filepath.Join(root, "/opt/cni/bin"),
		Conf:     filepath.Join(root, "/etc/cni/net.d"),
		State:    filepath.Join(root, "/var/lib/cni/ovn4nfv"),
	}
}

func (d Dirs) kubeconfig() string { return filepath.Join(d.Conf, "ovn4nfv.d", "ovn4nfv.kubeconfig") }

func (d Dirs) settings() string { return filepath.Join(d.Conf, "ovn4nfv.d", "settings.json") }
