// Package providerid decides the providerID of a Metal3Machine and of its Node. It is pure: Nodes in, what to write
// out. Cluster API compares the two as strings, and a Node's can be set once only.
package providerid

import (
	"fmt"
	"strings"
)

// scheme of all providerIDs of Metal3.
const scheme = "metal3://"

// Formats of a providerID that the provider gives a Node itself.
const (
	FormatName = "name" // metal3://NAMESPACE/HOST/METAL3MACHINE, which outlives a move to another appliance
	FormatUID  = "uid"  // metal3://UID of the host
)

// LabelUUID is the label by which a Node says the UID of its BareMetalHost: kubelet's --node-labels.
const LabelUUID = "metal3.io/uuid"

// Machine is what the IDs are made of.
type Machine struct {
	Namespace     string
	Host          string // name of the BareMetalHost
	HostUID       string
	Name          string // of the Metal3Machine
	ProviderID    string // that the Metal3Machine has; "": none yet
	Format        string // FormatName or FormatUID; "": FormatName
	CloudProvider bool   // an external one gives Nodes their providerID
	OwnData       bool   // the Machine has no bootstrap provider: its Node may have no label
	Hostnames     []string
}

// Node is what is looked at of a Node of the workload cluster.
type Node struct {
	Name       string
	ProviderID string
	UUID       string // its label LabelUUID
	Hostname   string // its label kubernetes.io/hostname
}

// Reason says why there is no providerID yet, for code.
type Reason string

// The reasons. The first two are waited for; the others need a person.
const (
	ReasonNoNode      Reason = "NoNode"
	ReasonNoCloud     Reason = "WaitingForCloudProvider"
	ReasonSeveral     Reason = "SeveralNodes"
	ReasonUnsupported Reason = "UnsupportedProviderID"
)

// Decision is what to write.
type Decision struct {
	ProviderID string // of the Metal3Machine; "": it waits
	Node       string // that is to get ProviderID first; "": none
	Reason     Reason // why it waits
	Sentence   string // the same for people
}

// ByName is the ID by names.
func (m Machine) ByName() string { return scheme + m.MetaData() }

// ByUID is the ID by the host's UID.
func (m Machine) ByUID() string { return scheme + m.HostUID }

// MetaData is what the metadata has under the key providerid: kubelet puts metal3:// before it.
func (m Machine) MetaData() string { return m.Namespace + "/" + m.Host + "/" + m.Name }

// isOurs reports whether an ID is one of this machine on this host.
func (m Machine) isOurs(id string) bool {
	return id == m.ByName() || m.HostUID != "" && id == m.ByUID()
}

func (m Machine) format() string {
	if m.Format == FormatUID {
		return m.ByUID()
	}
	return m.ByName()
}

// Decide finds the Node of a machine whose host is provisioned.
//
//  1. A Node that has one of the machine's IDs already: from an external cloud provider, or from its kubelet.
//  2. With a cloud provider nothing else is done.
//  3. A Node with the host's UID as its label, and without an ID: it gets one.
//  4. For bootstrap data of the owner's own, a Node with one of the host's names, and without an ID.
func Decide(m Machine, nodes []Node) Decision {
	byID := filter(nodes, func(n Node) bool { return m.isOurs(n.ProviderID) })
	byPlace := filter(nodes, func(n Node) bool { return strings.HasPrefix(n.ProviderID, scheme+m.Namespace+"/"+m.Host+"/") })
	switch {
	case len(byID) > 1:
		return wait(ReasonSeveral, "Nodes %s and %s have the providerID of one machine; delete the one that is gone",
			byID[0].Name, byID[1].Name)
	case len(byPlace) > 0 && (len(byID) == 0 || byPlace[0].Name != byID[0].Name || len(byPlace) > 1):
		return wait(ReasonSeveral, "Node %s has a providerID of an earlier machine of host %s: %s; delete that Node",
			byPlace[0].Name, m.Host, byPlace[0].ProviderID)
	case len(byID) == 1:
		return Decision{ProviderID: byID[0].ProviderID}
	case m.CloudProvider:
		return wait(ReasonNoCloud, "no Node has the providerID %s or %s, which the cloud provider gives", m.ByName(), m.ByUID())
	}

	found := filter(nodes, func(n Node) bool { return m.HostUID != "" && n.UUID == m.HostUID })
	if len(found) == 0 && m.OwnData {
		found = filter(nodes, func(n Node) bool {
			for _, name := range m.Hostnames {
				if name != "" && n.Hostname == name {
					return true
				}
			}
			return false
		})
	}

	return m.decideLabelled(found)
}

func (m Machine) decideLabelled(found []Node) Decision {
	switch {
	case len(found) == 0 && m.OwnData:
		return wait(ReasonNoNode, "no Node has the label %s=%s or one of the names %s", LabelUUID, m.HostUID,
			strings.Join(m.Hostnames, ", "))
	case len(found) == 0:
		return wait(ReasonNoNode, "no Node has the label %s=%s; its kubelet sets it with --node-labels", LabelUUID, m.HostUID)
	case len(found) > 1:
		return wait(ReasonSeveral, "Nodes %s and %s are one host by their labels; delete the one that is gone",
			found[0].Name, found[1].Name)
	case found[0].ProviderID != "":
		return wait(ReasonUnsupported, "Node %s has the providerID %q, which is neither %s nor %s; a Node's cannot be changed: "+
			"start its kubelet with one of them, or without", found[0].Name, found[0].ProviderID, m.ByName(), m.ByUID())
	case m.isOurs(m.ProviderID): // it was decided, and the Node not written
		return Decision{ProviderID: m.ProviderID, Node: found[0].Name}
	}
	return Decision{ProviderID: m.format(), Node: found[0].Name}
}

func wait(reason Reason, format string, args ...any) Decision {
	return Decision{Reason: reason, Sentence: fmt.Sprintf(format, args...)}
}

func filter(nodes []Node, keep func(Node) bool) (kept []Node) {
	for _, n := range nodes {
		if keep(n) {
			kept = append(kept, n)
		}
	}
	return kept
}
