// Package ovn runs OVN on the nodes of a workload cluster: its databases and northd once, Open vSwitch and ovn-controller on
// every node, from Debian's packages. What they switch is other add-ons' to say (package ovn4nfv).
//
// On a node Open vSwitch has a network namespace of its own, whose one link to the node carries Geneve: nothing of the node's
// own network is changed but for two rules, and whatever ends or starts again, the interfaces of pods stay. Where the kernel
// has no module for it, packets are switched by ovs-vswitchd itself; all else is the same.
package ovn

import (
	"net"
	"net/netip"
	"path/filepath"
)

const (
	// Run is the node's folder of sockets and of the database of Open vSwitch. Like the namespace, it lives until the node
	// is started again, as do the pods' interfaces that it lists.
	Run = "/run/firstlight-ovn"
	// Namespace is the network namespace of Open vSwitch, where ip-netns(8) finds it.
	Namespace = "/run/netns/firstlight-ovn"
	// IntegrationBridge has the interfaces of pods. ovn-controller creates it.
	IntegrationBridge = "br-int"
	// Database is that of Open vSwitch.
	Database = "Open_vSwitch"
	// Northbound and Southbound are those of OVN's central part.
	Northbound, Southbound = "OVN_Northbound", "OVN_Southbound"

	hostLink       = "ovn-host"     // on the node
	namespaceLink  = "ovn-underlay" // the other end, in the namespace
	underlayBridge = "br-underlay"  // has the address of the tunnels where ovs-vswitchd switches itself

	genevePort = 6081
	// NorthboundPort and SouthboundPort are of the databases of OVN, with TLS.
	NorthboundPort, SouthboundPort = 6641, 6642
)

// The link between the node and the namespace: nobody else sees these addresses. In the namespace tunnels have the node's
// own address, as OVN wants it. On the way through the node's routing, where that address is the node's, they have insideAddr.
var (
	hostPrefix  = netip.MustParsePrefix("169.254.66.1/30")
	insideAddr  = netip.MustParseAddr("169.254.66.2")
	hostMAC     = net.HardwareAddr{0x02, 0xa9, 0xfe, 0x42, 0x01, 0x01}
	underlayMAC = net.HardwareAddr{0x02, 0xa9, 0xfe, 0x42, 0x02, 0x01}
	everywhere  = net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
)

// Socket is that of a node's Open_vSwitch, in the form of ovsdb.Dial.
func Socket() string { return "unix:" + filepath.Join(Run, "db.sock") }

// Datapath is what switches packets: values of datapath_type in Open vSwitch's table Bridge.
type Datapath string

const (
	// Kernel is the module openvswitch.
	Kernel Datapath = "system"
	// Userspace is ovs-vswitchd. It takes packets as they are, so what sends to it must write checksums.
	Userspace Datapath = "netdev"
)
