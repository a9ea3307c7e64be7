// Package virtualrack is a whole rack on one machine: an appliance booted from the stick image and
// blank nodes, all in QEMU, on a switch of this process, each node with a BMC. docs/lab.md
// walks through it. A supervisor process holds the rack; everything about it lies in one
// directory, and whoever asks (Client) or ends it (Down) needs nothing but that.
package virtualrack

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"firstlight.dev/firstlight/image/lab"
)

// Order is what a rack is asked to be.
type Order struct {
	Image     string   `json:"image"`              // of the stick; absolute
	System    string   `json:"system,omitempty"`   // raw image of a disk with a system, on which the appliance is installed; absolute; "": it starts from the stick
	Nodes     int      `json:"nodes"`              // 1 to MaxNodes
	Firmware  Firmware `json:"firmware"`           // of the nodes
	BMC       BMCs     `json:"bmc"`                // of the nodes
	MiB       int      `json:"mib"`                // memory of a node
	DiskGiB   int      `json:"diskGiB"`            // of each disk of a node
	Disks     int      `json:"disks"`              // of a node; 1 or more
	NICs      int      `json:"nics"`               // of a node; the second and further ones are on a network of their own
	Gateway   bool     `json:"gateway"`            // a network of the owner, with a gateway and a resolver that lead nowhere
	Appliance int      `json:"appliance"`          // memory of the appliance, MiB
	CPUs      int      `json:"cpus,omitempty"`     // of the appliance; 0, in racks of before: applianceCPUs
	NICModel  string   `json:"nicModel,omitempty"` // of the appliance's cards, as QEMU names devices; "": virtio-net-pci
	StickGiB  int      `json:"stickGiB"`
	Cluster   bool     `json:"cluster"`             // one Kubernetes of all nodes, its control plane on the first that is free
	Capture   bool     `json:"capture"`             // everything on the wire, to files
	EmptySite bool     `json:"emptySite,omitempty"` // the site names networks only: hosts and clusters come by kubectl
	VLAN      int      `json:"vlan,omitempty"`      // of the provisioning network at the appliance; its servers know of none; 0: no tag
	Bond      bool     `json:"bond,omitempty"`      // the appliance has two cards on the provisioning network, as one
	Discover  bool     `json:"discover,omitempty"`  // the site says only how many nodes there are: BMCs lease their addresses
}

// Firmware says what the nodes' firmware is.
type Firmware string

const (
	AllBIOS Firmware = "bios"
	AllUEFI Firmware = "uefi"
	Mixed   Firmware = "mixed" // node 1 BIOS, node 2 UEFI, and so on
)

// BMCs says what the nodes' BMCs speak.
type BMCs string

const (
	AllIPMI    BMCs = "ipmi"
	AllRedfish BMCs = "redfish"
	MixedBMCs  BMCs = "mixed" // node 1 IPMI, node 2 Redfish, and so on
)

// MaxNodes is how many nodes the rack's address plan has room for.
const MaxNodes = 99

// DefaultOrder is a rack of two nodes.
func DefaultOrder() Order {
	return Order{
		Nodes:     2,
		Firmware:  AllBIOS,
		BMC:       AllIPMI,
		MiB:       2048,
		DiskGiB:   8,
		Disks:     1,
		NICs:      1,
		Appliance: 6144,
		CPUs:      applianceCPUs,
		StickGiB:  8,
		Cluster:   true,
	}
}

// Check names what is wrong with an order.
func (o Order) Check() error {
	for _, c := range []struct {
		what             string
		value, low, high int
	}{
		{"nodes", o.Nodes, 1, MaxNodes},
		{"MiB of memory for a node", o.MiB, 1024, 1 << 20},
		{"GiB for a disk", o.DiskGiB, 3, 1 << 20},
		{"disks for a node", o.Disks, 1, 8},
		{"NICs for a node", o.NICs, 1, 8},
		{"MiB of memory for the appliance", o.Appliance, 2048, 1 << 20},
		{"processors of the appliance", o.CPUs, 0, 64},
		{"GiB for the stick", o.StickGiB, 4, 1 << 20},
		{"as the tag of a VLAN", o.VLAN, 0, 4094},
	} {
		if c.value < c.low || c.value > c.high {
			return fmt.Errorf("%d %s; want %d to %d", c.value, c.what, c.low, c.high)
		}
	}
	if !slices.Contains([]Firmware{AllBIOS, AllUEFI, Mixed}, o.Firmware) {
		return fmt.Errorf("firmware %q; want %s, %s or %s", o.Firmware, AllBIOS, AllUEFI, Mixed)
	}
	if !slices.Contains([]BMCs{AllIPMI, AllRedfish, MixedBMCs}, o.BMC) {
		return fmt.Errorf("BMCs %q; want %s, %s or %s", o.BMC, AllIPMI, AllRedfish, MixedBMCs)
	}
	if o.NICModel != "" && !slices.Contains(nicModels, o.NICModel) {
		return fmt.Errorf("cards of model %q; want %s", o.NICModel, strings.Join(nicModels, ", "))
	}
	return o.checkDiscover()
}

// checkDiscover names what nodes cannot have of which the site says no more than that there are some.
func (o Order) checkDiscover() error {
	if !o.Discover {
		return nil
	}

	for _, c := range []struct {
		isGiven bool
		what    string
	}{
		{o.EmptySite, "an empty site"},
		{o.Firmware == Mixed, "firmware of two kinds, because a server that is off does not say which it has"},
		{o.Disks > 1, "several disks, because the site would have to name one"},
		{o.NICs > 1, "several NICs, because the site would have to name the one with an address"},
		{o.Gateway, "a network of the owner"},
		{o.VLAN != 0, "a tag on the provisioning network"},
		{o.Bond, "a bond"},
	} {
		if c.isGiven {
			return fmt.Errorf("a rack whose nodes are discovered cannot have %s", c.what)
		}
	}
	return nil
}

// DiscoveredNodes is how many nodes a rack has whose nodes are discovered, unless it is asked for another number.
const DiscoveredNodes = 3

// The rack's networks, by the role that the site gives them.
const (
	provisioning = "provisioning"
	bmcs         = "bmc"
	baremetal    = "baremetal"
	system       = "system" // of the machine that the appliance is installed on, by which its owner reaches it
	data         = "data"   // the further NICs of nodes; nobody else is on it
)

// networks is the address plan.
var networks = map[string]netip.Prefix{
	provisioning: netip.MustParsePrefix("172.22.0.0/24"),
	bmcs:         netip.MustParsePrefix("172.23.0.0/24"),
	baremetal:    netip.MustParsePrefix("172.24.0.0/24"),
	system:       netip.MustParsePrefix("172.25.0.0/24"),
}

// Last bytes of addresses within those networks.
const (
	applianceHost = 1
	firstNode     = 101 // node-1; its BMC on the bmc network
	gatewayHost   = 253 // on baremetal
	endpointHost  = 254 // this process
)

// addressOf is an address of the plan.
func addressOf(network string, host int) netip.Addr {
	b := networks[network].Addr().As4()
	b[3] = byte(host)
	return netip.AddrFrom4(b)
}

// prefixOf is at with the length of its network.
func prefixOf(network string, host int) netip.Prefix {
	return netip.PrefixFrom(addressOf(network, host), networks[network].Bits())
}

// Appliance is the appliance's name.
const Appliance = "appliance"

// workstation is the name of this process's ports.
const workstation = "workstation"

// Card is a NIC and the network that it is on.
type Card struct {
	MAC     net.HardwareAddr
	Network string
}

// MachineSpec is one machine of a rack.
type MachineSpec struct {
	Name     string
	Firmware lab.Firmware
	Cards    []Card     // the first boots
	BMC      netip.Addr // of a node; what it wishes for, where BMCs lease their addresses
	BMCMAC   net.HardwareAddr
	Redfish  bool       // its BMC speaks Redfish; else IPMI
	Address  netip.Addr // on the provisioning network
}

// Rack is an order worked out. It depends on nothing else: the same order gives the same.
type Rack struct {
	Order     Order
	Appliance MachineSpec
	Nodes     []MachineSpec
	Networks  []string // that have a switch
}

// Plan works out an order.
func Plan(o Order) Rack {
	r := Rack{Order: o, Networks: []string{provisioning, bmcs}}
	r.Appliance = MachineSpec{Name: Appliance, Firmware: lab.BIOS, Address: addressOf(provisioning, applianceHost),
		Cards: []Card{{macOf(0, 1), provisioning}, {macOf(0, 2), bmcs}}}
	if o.Gateway {
		r.Networks = append(r.Networks, baremetal)
		r.Appliance.Cards = append(r.Appliance.Cards, Card{macOf(0, 3), baremetal})
	}

	if o.Bond {
		r.Appliance.Cards = append(r.Appliance.Cards, Card{macOf(0, bondCard), provisioning})
	}

	if o.System != "" {
		r.Networks = append(r.Networks, system)
		r.Appliance.Cards = append(r.Appliance.Cards, Card{macOf(0, systemCard), system})
	}

	if o.NICs > 1 {
		r.Networks = append(r.Networks, data)
	}

	for i := range o.Nodes {
		n := MachineSpec{
			Name:     fmt.Sprintf("node-%d", i+1),
			Firmware: lab.BIOS,
			Address:  addressOf(provisioning, firstNode+i),
			BMC:      addressOf(bmcs, firstNode+i),
			BMCMAC:   macOf(i+1, bmcCard),
			Cards:    []Card{{macOf(i+1, 1), provisioning}},
		}
		if o.Firmware == AllUEFI || o.Firmware == Mixed && i%2 == 1 {
			n.Firmware = lab.UEFI
		}

		n.Redfish = o.BMC == AllRedfish || o.BMC == MixedBMCs && i%2 == 1
		if o.Gateway {
			n.Cards = append(n.Cards, Card{macOf(i+1, 2), baremetal})
		}

		for j := 1; j < o.NICs; j++ {
			n.Cards = append(n.Cards, Card{macOf(i+1, 2+j), data})
		}

		r.Nodes = append(r.Nodes, n)
	}

	return r
}

// bondCard is the number of the appliance's second card on the provisioning network.
const bondCard = 0x0b

// bmcCard is the number of a BMC's own card, by which it leases its address.
const bmcCard = 0xb0

// firstSlot is the PCI slot of the appliance's first card where its site names cards by that.
const firstSlot = 0x10

// macOf is a locally administered address: machine 0 is the appliance.
func macOf(machine, card int) net.HardwareAddr {
	return net.HardwareAddr{0x52, 0x54, 0x00, 0xf1, byte(machine), byte(card)}
}

// Machines are the appliance and the nodes.
func (r Rack) Machines() []MachineSpec { return append([]MachineSpec{r.Appliance}, r.Nodes...) }

// ApplianceMACs are the appliance's cards on a network.
func (r Rack) ApplianceMACs(network string) []net.HardwareAddr {
	var all []net.HardwareAddr
	for _, card := range r.Appliance.Cards {
		if card.Network == network {
			all = append(all, card.MAC)
		}
	}
	return all
}

// accessVLAN is that of a machine's port, 0 where it hears what is on the switch as it is: tags are the appliance's
// business alone.
func (r Rack) accessVLAN(machine, network string) int {
	if machine == Appliance || network != provisioning {
		return 0
	}
	return r.Order.VLAN
}

// Find is a computer by its name.
func (r Rack) Find(name string) (MachineSpec, error) {
	var names []string
	for _, c := range r.Machines() {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return MachineSpec{}, fmt.Errorf("machine %q is not in the rack; it has %s", name, strings.Join(names, ", "))
}

// stickImage is the rack's own name for the image, in its directory.
const stickImage = "stick.img"

// stickSerial is the stick's serial number.
const stickSerial = "stick"

// disks of a node, and the stick: the firmware begins with the one that boots.
func (r Rack) disks(c MachineSpec) []lab.Disk {
	const gib = 1 << 30
	if c.Name == Appliance {
		if r.Order.System != "" {
			return r.systemDisks(int64(r.Order.StickGiB) * gib)
		}
		size := int64(r.Order.StickGiB) * gib
		return []lab.Disk{{Image: stickImage, Bus: lab.USB, Serial: stickSerial, Bytes: size, Quick: true}}
	}

	var all []lab.Disk
	for i := range r.Order.Disks {
		all = append(all, lab.Disk{
			Bus:    lab.Virtio,
			Serial: fmt.Sprintf("%s-disk%d", c.Name, i),
			Bytes:  int64(r.Order.DiskGiB) * gib,
			Quick:  true,
		})
	}

	return all
}

// nodesNice lets the appliance have this machine's processors first: while it waits for a node
// its clocks run on, and a node that installs itself takes all that it gets. Where it got too little
// its API answered after the time that callers wait, and what they tried again took the rest.
// The first node goes before the others: its control plane is what they wait for.
const (
	firstNice = 5
	nodesNice = 10
)

// CPUs of the appliance and of a node. Of two emulated ones each interrupts the other and waits for its
// answer, and every locked instruction is a real one: docs/performance.md has figures. The appliance is alone for its
// first ten minutes, and has use for two. On a node with two, Debian's kernel also fell over its
// own patching of code now and then (Oops: int3).
const (
	applianceCPUs = 2
	nodeCPUs      = 1
)

// config is the machine, off, with its files below dir and its ports in ports.
func (r Rack) config(c MachineSpec, dir string, port func(computer string, card int) string) lab.Config {
	m := lab.Config{
		Name:     c.Name,
		Dir:      dir,
		Firmware: c.Firmware,
		CPUs:     nodeCPUs,
		MiB:      r.Order.MiB,
		Disks:    r.disks(c),
	}
	if c.Name == Appliance {
		m.CPUs, m.MiB = cmp.Or(r.Order.CPUs, applianceCPUs), r.Order.Appliance
	} else {
		m.Nice = nodesNice
		if c.Name == r.Nodes[0].Name {
			m.Nice = firstNice
		}
	}

	if c.Redfish {
		m.CD = &lab.CD{}
	}

	for i, card := range c.Cards {
		nic := lab.NIC{MAC: card.MAC, Port: port(c.Name, i), NoROM: i > 0}
		if c.Name == Appliance {
			nic.Model = r.Order.NICModel
		}
		if r.Order.Discover && c.Name == Appliance {
			nic.Slot = firstSlot + i
		}
		m.NICs = append(m.NICs, nic)
	}

	if r.Order.Discover && c.Name != Appliance {
		m.Extra = append(m.Extra, "-smbios", "type=1,serial="+c.serial()) // the same that its BMC says
	}

	return m
}

// serial is a node's serial number, by which it is named when it is discovered.
func (c MachineSpec) serial() string { return c.Name }
