// Package match decides which host becomes which node of a cluster. It is pure: what is
// asked and what there is go in, a choice and all that is wrong come out. The order in
// which hosts are listed changes nothing.
package match

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// Node is one node of a cluster, as it is asked for.
type Node struct {
	Label          string
	Master, Worker bool
	MAC            string // lower case with colons; "" is any
	Host           string // BareMetalHost by name; "" is any
	CPU            int    // fewest
	Memory         int64  // least, in bytes
	SRIOV, QAT     bool
}

// isPinned tells whether one certain host is asked for.
func (n Node) isPinned() bool { return n.MAC != "" || n.Host != "" }

// requirements says what is asked of a host besides who it is.
func (n Node) requirements() string {
	var all []string
	if n.CPU > 0 {
		all = append(all, fmt.Sprintf("%d CPUs", n.CPU))
	}

	if n.Memory > 0 {
		all = append(all, fmt.Sprintf("%s of memory", formatBytes(n.Memory)))
	}

	if n.SRIOV {
		all = append(all, "SR-IOV")
	}

	if n.QAT {
		all = append(all, "QAT")
	}

	if len(all) == 0 {
		return "nothing more"
	}

	return strings.Join(all, ", ")
}

// formatBytes is an amount of memory in MiB, or GiB if that is whole.
func formatBytes(bytes int64) string {
	if bytes%(1<<30) == 0 {
		return fmt.Sprintf("%d GiB", bytes>>30)
	}
	return fmt.Sprintf("%d MiB", (bytes+1<<20-1)>>20)
}

// Problem is something that keeps a cluster from being installed: a reason in one word and
// a sentence that names the node, the MAC and the way out. Where ICN had a text for it, the
// sentence begins with that.
type Problem struct {
	Reason   string
	Sentence string
	Waits    bool // it may go away by itself
	Node     Node // that it is about; zero if it is about none or about several
}

// Reasons of problems with what is asked, and with finding it.
const (
	NoMasters     = "NoMasters"
	NothingAsked  = "NothingAsked"
	InvalidMAC    = "InvalidMAC"
	InvalidMemory = "InvalidMemory"
	InvalidLabel  = "InvalidLabel"
	LabelTaken    = "LabelTaken"
	LabelMissing  = "LabelMissing"
	HostNotFound  = "HostNotFound"
	HostAmbiguous = "HostAmbiguous"
	HostTwice     = "HostTwice"
	HostClaimed   = "HostClaimed"
	HostTooSmall  = "HostTooSmall"
	HostNotReady  = "HostNotReady"
	NoHostFits    = "NoHostFits"
)

// Reasons lists all of them; docs/bpa.md explains each.
func Reasons() []string {
	return []string{NoMasters, NothingAsked, InvalidMAC, InvalidMemory, InvalidLabel, LabelTaken, LabelMissing, HostNotFound, HostAmbiguous,
		HostTwice, HostClaimed, HostTooSmall, HostNotReady, NoHostFits}
}

// label is what may stand at the beginning of a line of an inventory, as a host name.
var label = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// ParseNodes reads what is asked: masters in their order, then workers in theirs. A label in both
// lists is one node; without workers the masters work as well (ICN). Within an item with
// several labels their order is the alphabet's. An item of workers without a label was one of a master with a null
// body, which kubectl apply removes before it sends the list (RFC 7386): as many of them as there are masters that
// are not workers yet are those masters; any other number is not clear.
func ParseNodes(s v1alpha1.ProvisioningSpec) ([]Node, []Problem) {
	var nodes []Node
	var problems []Problem
	add := func(items []map[string]*v1alpha1.Body, master bool) {
		for _, item := range items {
			for _, name := range slices.Sorted(maps.Keys(item)) {
				n, wrong := readNode(name, item[name], master)
				problems = append(problems, wrong...)
				i := slices.IndexFunc(nodes, func(o Node) bool { return o.Label == name })
				switch {
				case i < 0:
					nodes = append(nodes, n)
				case master || nodes[i].Worker || n.MAC != "" && nodes[i].MAC != "" && n.MAC != nodes[i].MAC || n.Host != "" && nodes[i].Host != "" && n.Host != nodes[i].Host:
					problems = append(problems, labelTakenProblem(name, n.MAC))
				default:
					nodes[i] = mergeRoles(nodes[i], n)
				}
			}
		}
	}
	add(s.Masters, true)
	add(s.Workers, false)
	problems = append(problems, assignUnlabelled(s, nodes)...)
	if len(s.Masters) == 0 {
		problems = append(problems, Problem{Reason: NoMasters,
			Sentence: "spec.masters is empty: a cluster needs a node for its control plane; list one, such as `- master-1: {mac-address: 52:54:00:12:34:01}`"})
	}

	byMAC := map[string]string{}
	for i, n := range nodes {
		if len(s.Workers) == 0 {
			nodes[i].Worker = true
		}

		if !n.isPinned() && n.CPU == 0 && n.Memory == 0 && !n.SRIOV && !n.QAT && !slices.ContainsFunc(
			problems, IsAbout(n.Label),
		) {
			problems = append(problems, nothingAskedProblem(n))
		}

		if first, twice := byMAC[n.MAC]; twice && n.MAC != "" {
			problems = append(problems, Problem{
				Reason: LabelTaken,
				Sentence: fmt.Sprintf("A node with label %s already exists, modify resource and "+
					"assign the same label or another MAC to node %s with MACAddress %s", first, n.Label, n.MAC),
			})
		}

		byMAC[n.MAC] = n.Label
	}

	return nodes, problems
}

// IsAbout returns what reports whether a problem is about the node with a label.
func IsAbout(label string) func(Problem) bool {
	return func(p Problem) bool { return p.Node.Label == label }
}

func labelTakenProblem(name, mac string) Problem {
	with := ""
	if mac != "" {
		with = " with MACAddress " + mac
	}
	return Problem{
		Reason: LabelTaken,
		Sentence: fmt.Sprintf("A node with label %s already exists, modify resource and assign a different label to node%s; "+
			"a label stands once under masters and once under workers, for one host", name, with),
	}
}

// nothingAskedProblem is ICN's refusal of a node without MAC, which here has more ways out.
func nothingAskedProblem(n Node) Problem {
	role, more := "worker", "; only a label of masters may have an empty body under workers"
	if n.Master {
		role, more = "masterNode", ""
	}
	return Problem{Reason: NothingAsked, Sentence: fmt.Sprintf("MAC address for %s %s not provided: "+
		"give mac-address, or what its host must have: cpu, memory, sriov, qat%s", role, n.Label, more)}
}

func readNode(name string, b *v1alpha1.Body, master bool) (Node, []Problem) {
	n := Node{Label: name, Master: master, Worker: !master}
	var problems []Problem
	wrong := func(reason, format string, args ...any) {
		problems = append(
			problems, Problem{Reason: reason, Sentence: "node " + name + ": " + fmt.Sprintf(format, args...), Node: n},
		)
	}
	if !label.MatchString(name) {
		n.Label = strings.ToValidUTF8(name, "?")
		problems = append(problems, Problem{
			Reason: InvalidLabel,
			Sentence: fmt.Sprintf("the label %q cannot be a host name: "+
				"use up to 63 letters, digits, '-', '.' and '_', beginning and ending with a letter or digit", name),
		})
	}

	if b == nil {
		return n, problems
	}

	n.CPU, n.SRIOV, n.QAT, n.Host = int(b.CPU), b.SRIOV, b.QAT, b.Host
	if b.MACAddress != "" {
		mac, err := site.ParseMAC(b.MACAddress)
		if err != nil {
			wrong(InvalidMAC, "mac-address %v", err)
		}
		n.MAC = string(mac)
	}

	if b.Memory != "" {
		q, err := resource.ParseQuantity(b.Memory)
		if err != nil || q.Sign() <= 0 {
			wrong(
				InvalidMemory, "memory %q is not an amount of memory; write a number with a unit such as 16Gi",
				b.Memory,
			)
		}
		n.Memory = q.Value()
	}

	return n, problems
}

// mergeRoles is one node in two roles: all that either asks must hold.
func mergeRoles(a, b Node) Node {
	a.Worker = true
	if a.MAC == "" {
		a.MAC = b.MAC
	}

	if a.Host == "" {
		a.Host = b.Host
	}

	a.CPU, a.Memory = max(a.CPU, b.CPU), max(a.Memory, b.Memory)
	a.SRIOV, a.QAT = a.SRIOV || b.SRIOV, a.QAT || b.QAT
	return a
}
