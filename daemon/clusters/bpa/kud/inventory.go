// Package kud is the contract with the installer of a cluster, docs/kud.md as code: the
// inventory that it reads, the Job that it runs in, what a run did, and which run is needed
// next. It decides and describes; nothing here talks to anything.
package kud

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
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

// KnownHosts is a file for ssh's UserKnownHostsFile (sshd(8)): host keys, each as in
// authorized_keys, by address.
func KnownHosts(keys map[netip.Addr]string) []byte {
	var b bytes.Buffer
	for _, addr := range slices.SortedFunc(maps.Keys(keys), netip.Addr.Compare) {
		fields := strings.Fields(keys[addr])
		if len(fields) >= 2 {
			fmt.Fprintf(&b, "%s %s %s\n", addr, fields[0], fields[1])
		}
	}
	return b.Bytes()
}

// ReadKnownHosts reads such a file; names that are no addresses are passed over.
func ReadKnownHosts(text []byte) map[netip.Addr]string {
	keys := map[netip.Addr]string{}
	for line := range strings.Lines(string(text)) {
		if addr, key := knownHost(line); addr.IsValid() {
			keys[addr] = key
		}
	}
	return keys
}

// WithoutHosts is such a file without the lines of some addresses.
func WithoutHosts(text []byte, gone []netip.Addr) []byte {
	var b bytes.Buffer
	for line := range strings.Lines(string(text)) {
		if addr, _ := knownHost(line); !addr.IsValid() || !slices.Contains(gone, addr) {
			b.WriteString(line)
		}
	}
	return b.Bytes()
}

// knownHost is one line: the address, in brackets if it is of IPv6 or has a port (sshd(8)), and its key.
func knownHost(line string) (netip.Addr, string) {
	fields := strings.Fields(line)
	if len(fields) < 3 {
		return netip.Addr{}, ""
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(fields[0], "["), "]")
	addr, err := netip.ParseAddr(name)
	if err != nil {
		return netip.Addr{}, ""
	}
	return addr, fields[1] + " " + fields[2]
}
