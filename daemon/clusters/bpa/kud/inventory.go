// Package kud is the contract with the installer of a cluster, docs/kud.md as code: the
// inventory that it reads, the Job that it runs in, what a run did, and which run is needed
// next. It decides and describes; nothing here talks to anything.
package kud

import (
	"bytes"
	"fmt"
	"net/netip"
)

// Node is one node of a cluster with the host that it is.
type Node struct {
	Label   string     `json:"label"`
	Master  bool       `json:"master,omitempty"`
	Worker  bool       `json:"worker,omitempty"`
	Host    string     `json:"host"` // namespace/name of the BareMetalHost, or of a virtual machine's pod
	MAC     string     `json:"mac,omitempty"`
	Address netip.Addr `json:"address"`
	From    string     `json:"from,omitempty"` // where the address is known from
}

// Roles are ICN's words for what a member is.
func (m Node) Roles() []string {
	var all []string
	if m.Master {
		all = append(all, "master")
	}

	if m.Worker {
		all = append(all, "worker")
	}

	return all
}

// Inventory is hosts.ini: ICN's groups, which KUD and kubespray up to 2.16 read, and those of
// kubespray today as groups of these. The same members give the same bytes.
func Inventory(members []Node) []byte {
	var ini inventory
	masters, workers := ini.writeNodes(members, "")
	ini.group("ovn-central", masters...)
	ini.group("ovn-controller", workers...)
	ini.group("virtlet", workers...)
	return ini.writeGroups()
}

// VirtualInventory is that of virtual machines: they are logged in to with ICN's password and have no groups
// of network add-ons.
func VirtualInventory(members []Node) []byte {
	var ini inventory
	ini.writeNodes(members, " ansible_ssh_user=root ansible_ssh_pass=root")
	return ini.writeGroups()
}

type inventory struct{ bytes.Buffer }

func (ini *inventory) group(name string, lines ...string) {
	fmt.Fprintf(ini, "\n[%s]\n", name)
	for _, l := range lines {
		ini.WriteString(l + "\n")
	}
}

// writeNodes writes the members and their roles.
func (ini *inventory) writeNodes(members []Node, login string) (masters, workers []string) {
	ini.WriteString("[all]\n")
	for _, m := range members {
		fmt.Fprintf(ini, "%s  ansible_ssh_host=%s ansible_ssh_port=22%s\n", m.Label, m.Address, login)
		if m.Master {
			masters = append(masters, m.Label)
		}
		if m.Worker {
			workers = append(workers, m.Label)
		}
	}

	ini.group("kube-master", masters...)
	ini.group("kube-node", workers...)
	ini.group("etcd", masters...)
	return masters, workers
}

// writeGroups writes the groups of groups.
func (ini *inventory) writeGroups() []byte {
	ini.group("k8s-cluster:children", "kube-node", "kube-master")
	ini.group("kube_control_plane:children", "kube-master")
	ini.group("kube_node:children", "kube-node")
	ini.group("k8s_cluster:children", "kube_control_plane", "kube_node")
	return ini.Bytes()
}
