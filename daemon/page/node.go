package page

import (
	"fmt"
	"slices"
	"strings"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/status"
)

// nodeView is all that is known of one node.
type nodeView struct {
	Card     card
	Error    string
	Erased   string      // when and how which of its disks were erased last
	Checks   []checkList // that were asked
	BMC      string      // its address
	Hardware []fact      // none before it was inspected
	Disks    []disk
	NICs     []nic
	Packets  packetsView
	Boots    []boot
	Offers   []offer
	Console  string // where its console is shown to this role; "": nowhere
	Logs     string // likewise
}

type checkList struct {
	ID, Title string
	Checks    []status.Check
}

// fact is one line of a list: "Memory", "256 GB".
type fact struct{ Name, Text string }

type disk struct {
	Name, Kind, Model, Serial string
	Bytes                     int64
}

type nic struct {
	Name, MAC, Address, Note string
}

// newNodeView puts together what is known of a node, by its name, and what a role may do to it.
func newNodeView(p *picture, by Role, name string) (nodeView, bool) {
	i := slices.IndexFunc(p.nodes, func(n status.Node) bool { return n.Name == name })
	if i < 0 {
		return nodeView{}, false
	}

	n := p.nodes[i]
	offers := append(newOffers(p, by, onMachine, name), newOffers(p, by, onNode, name)...)
	v := nodeView{Card: newCard(p, n), Error: n.Error, Erased: n.Erased, Offers: offers}
	for _, list := range []checkList{
		{"preflight", "Before it was switched on", n.Preflight},
		{"checks", "Of the installed system", n.Checks},
	} {
		if len(list.Checks) > 0 {
			v.Checks = append(v.Checks, list)
		}
	}

	if by.covers(Operator) {
		v.Logs = nodeLogsPath(name)
	}
	if host := p.hosts[name]; host != nil {
		v.addHost(host)
		if by.covers(Operator) && host.Spec.BMC.Address != "" && !p.noBMC[name] {
			v.Console = "/nodes/" + name + "/console"
		}
	}

	if u, ok := p.unknown[name]; ok {
		v.addUnknown(u)
	}

	return v, true
}

// addHost adds what the BareMetalHost says.
func (v *nodeView) addHost(host *metal3api.BareMetalHost) {
	v.BMC = host.Spec.BMC.Address
	h := host.Status.HardwareDetails
	if h == nil {
		return
	}

	v.addFact("Maker", h.SystemVendor.Manufacturer)
	v.addFact("Model", h.SystemVendor.ProductName)
	v.addFact("Serial number", h.SystemVendor.SerialNumber)
	v.addFact("Firmware", strings.TrimSpace(h.Firmware.BIOS.Vendor+" "+h.Firmware.BIOS.Version))
	v.addFact("Processor", strings.TrimSpace(fmt.Sprintf("%d threads, %s %s", h.CPU.Count, h.CPU.Model, h.CPU.Arch)))
	v.addFact("Memory", fmt.Sprintf("%d MiB", h.RAMMebibytes))
	for _, d := range h.Storage {
		v.Disks = append(v.Disks, disk{
			Name:   d.Name,
			Kind:   string(d.Type),
			Model:  strings.TrimSpace(d.Vendor + " " + d.Model),
			Serial: d.SerialNumber,
			Bytes:  int64(d.SizeBytes),
		})
	}

	for _, n := range h.NIC {
		note := ""
		if strings.EqualFold(n.MAC, host.Spec.BootMACAddress) {
			note = "it boots by this one"
		}
		v.NICs = append(v.NICs, nic{Name: n.Name, MAC: n.MAC, Address: n.IP, Note: note})
	}
}

// addUnknown adds what the ramdisk of a machine said that nobody named.
func (v *nodeView) addUnknown(u status.UnknownMachine) {
	v.BMC = u.BMC
	v.addFact("Model", u.Model)
	v.addFact("Serial number", u.Serial)
	v.addFact("Boot mode", u.Mode)
	v.addFact("Processor", strings.TrimSpace(fmt.Sprintf("%d threads, %s %s", u.CPUs, u.CPU, u.Arch)))
	v.addFact("Memory", fmt.Sprintf("%d MiB", u.Memory>>20))
	for _, d := range u.Disks {
		v.Disks = append(v.Disks, disk{Name: d.Name, Model: d.Model, Serial: d.Serial, Bytes: d.Bytes})
	}

	for _, n := range u.NICs {
		note := "no link"
		if n.Link {
			note = "link"
		}
		v.NICs = append(v.NICs, nic{Name: n.Name, MAC: n.MAC, Note: note})
	}
}

func (v *nodeView) addFact(name, text string) {
	if text != "" {
		v.Hardware = append(v.Hardware, fact{name, text})
	}
}
