package match

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Host is what is known of a server, or of a virtual machine.
type Host struct {
	Name            string // namespace/name, unique
	MACs            []string
	CPU             int
	Memory          int64 // bytes
	SRIOV, QAT      bool
	UnusableReason  string // why it cannot be used yet; "" if it can
	Claim           Claim  // who has it
	PinnedBy        string // the other cluster that names its MAC or the host itself; "" if none does
	PreviousCluster string // the cluster that was installed on its disk; "" if none is
	DirtyFrom       string // of whose cluster remains are on it since it was taken out of that without an answer, and why; "" if none
}

// isUninspected tells that the hardware was not inspected yet: what it lacks cannot be said.
func (h *Host) isUninspected() bool { return h.CPU == 0 && h.UnusableReason != "" }

// DeviceCount counts what not every host has: of two alike the plainer one is taken first.
func (h Host) DeviceCount() int {
	n := 0
	for _, has := range []bool{h.SRIOV, h.QAT} {
		if has {
			n++
		}
	}
	return n
}

// Claim is one cluster's hold of a host.
type Claim struct {
	Owner string // "Provisioning NAMESPACE/NAME", or what else has the host; "" if nobody has
	Node  string // label of the node that the host is
}

// Want is one cluster as it is asked for.
type Want struct {
	Owner     string // "Provisioning NAMESPACE/NAME"
	Cluster   string
	Nodes     []Node
	Installed bool // its hosts are in service: whether they are fit is not asked any more
	Expected  int  // how many hosts there are to be; as long as there are fewer, others may come
}

// Rejected is a host that was looked at for a node without MAC, and why it was not taken.
type Rejected struct{ Host, Reason string }

// Result is the choice. If there is a problem it may be incomplete, and nothing of it is to
// be claimed.
type Result struct {
	Hosts    map[string]int // node's label to index in the list of hosts
	Problems []Problem
	Rejected []Rejected // by nearness: what a change could make fit comes first
}

// Hosts are all hosts in an order that makes choices reproducible, with an index by MAC.
type Hosts struct {
	All     []Host // smallest first: CPUs, memory, devices, name
	byMAC   map[string][]int
	byClaim map[Claim][]int
}

// NewHosts sorts a copy of the list.
func NewHosts(all []Host) *Hosts {
	h := &Hosts{All: slices.Clone(all), byMAC: map[string][]int{}, byClaim: map[Claim][]int{}}
	slices.SortFunc(h.All, func(a, b Host) int {
		return cmp.Or(
			cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.Memory, b.Memory), a.DeviceCount()-b.DeviceCount(),
			cmp.Compare(a.Name, b.Name),
		)
	})
	for i := range h.All {
		if c := h.All[i].Claim; c.Owner != "" {
			h.byClaim[c] = append(h.byClaim[c], i)
		}
		for _, mac := range h.All[i].MACs {
			if at := h.byMAC[mac]; len(at) == 0 || at[len(at)-1] != i {
				h.byMAC[mac] = append(at, i)
			}
		}
	}

	return h
}

// Match chooses a host for each node: first those that name their host, then, for the
// others in their order, the smallest that fits, moving earlier ones to a larger host where
// a later one would otherwise have none. What the cluster holds already it keeps, as long
// as that fits.
func (h *Hosts) Match(w Want) Result {
	m := matcher{
		Hosts:  h,
		Want:   w,
		of:     map[int]int{},
		firm:   map[int]bool{},
		Result: Result{Hosts: map[string]int{}},
	}
	for i, n := range w.Nodes {
		if n.isPinned() {
			m.pin(i)
		}
	}

	var open, chosen []int
	for i, n := range w.Nodes {
		if n.isPinned() {
			continue
		}

		held := m.keepClaimed(i)
		if !held {
			open = append(open, i)
		}

		if !held || !w.Installed {
			chosen = append(chosen, i)
		}
	}

	var without []int
	for _, i := range open {
		if !m.place(i, map[int]bool{}) {
			without = append(without, i)
		}
	}

	for _, i := range without {
		m.reportUnplaced(i)
	}

	for host, node := range m.of {
		m.Result.Hosts[w.Nodes[node].Label] = host
	}

	m.listRejected(chosen, without)
	return m.Result
}

type matcher struct {
	*Hosts
	Want
	Result Result
	of     map[int]int  // host to node
	firm   map[int]bool // nodes that keep what they hold
}

func (m *matcher) addProblem(n Node, reason string, waits bool, format string, args ...any) {
	m.Result.Problems = append(
		m.Result.Problems, Problem{Reason: reason, Sentence: fmt.Sprintf(format, args...), Waits: waits, Node: n},
	)
}

// find returns the hosts that a node names.
func (m *matcher) find(n Node) []int {
	var found []int
	if n.MAC != "" {
		found = m.byMAC[n.MAC]
	} else {
		for i := range m.All {
			found = append(found, i)
		}
	}

	if n.Host == "" {
		return found
	}

	return slices.DeleteFunc(slices.Clone(found), func(i int) bool {
		_, name, _ := strings.Cut(m.All[i].Name, "/")
		return name != n.Host
	})
}

// pin gives a node the host that it names, or says why not.
func (m *matcher) pin(i int) {
	n := m.Nodes[i]
	found := m.find(n)
	if len(found) == 0 {
		m.reportMissing(n)
		return
	}
	if len(found) > 1 {
		names := make([]string, len(found))
		for k, at := range found {
			names[k] = m.All[at].Name
		}

		slices.Sort(names)
		m.addProblem(
			n, HostAmbiguous, false, "node %s: %d hosts have the %s: %s; correct the BareMetalHost that is wrong",
			n.Label, len(found), pinText(n), strings.Join(names, ", "),
		)
		return
	}

	at := found[0]
	host := &m.All[at]
	if other, twice := m.of[at]; twice {
		m.addProblem(n, HostTwice, false, "node %s: host %s, which has the %s, is node %s already; name another host, or give one label both roles",
			n.Label, host.Name, pinText(n), m.Nodes[other].Label)
		return
	}

	switch small := tooSmall(n, host); {
	case host.Claim.Owner != "" && host.Claim.Owner != m.Owner:
		m.addProblem(n, HostClaimed, false, "%s: node %s: host %s belongs to %s, as its node %s; name another host, or take it out there",
			alreadyUsedText(n), n.Label, host.Name, host.Claim.Owner, host.Claim.Node)
	case small != "" && !host.isUninspected():
		m.addProblem(
			n, HostTooSmall, false, "node %s: host %s, which has the %s, %s; ask for less, or name another host",
			n.Label, host.Name, pinText(n), small,
		)
	case host.UnusableReason != "" && !m.inService(host, n):
		m.addProblem(
			n, HostNotReady, true, "node %s: host %s, which has the %s, %s", n.Label, host.Name, pinText(n),
			host.UnusableReason,
		)
	default:
		m.of[at] = i
	}
}

// inService tells whether a host is that node of an installed cluster.
func (m *matcher) inService(h *Host, n Node) bool {
	return m.Installed && h.Claim == (Claim{m.Owner, n.Label})
}

func (m *matcher) reportMissing(n Node) {
	if n.MAC == "" {
		m.addProblem(
			n, HostNotFound, true,
			"Host %s not found: node %s: there is no such BareMetalHost among %d; see kubectl get bmh -A", n.Host,
			n.Label, len(m.All),
		)
		return
	}
	if at := m.byMAC[n.MAC]; n.Host != "" && len(at) > 0 {
		m.addProblem(
			n, HostNotFound, false,
			"Host with MAC Address %s not found: node %s: that NIC is in host %s, not in %s; correct one of the two",
			n.MAC, n.Label, m.All[at[0]].Name, n.Host,
		)
		return
	}
	m.addProblem(n, HostNotFound, true, "Host with MAC Address %s not found: node %s: none of %d hosts has this NIC; correct the MAC, or wait until its server was inspected (kubectl get bmh -A)",
		n.MAC, n.Label, len(m.All))
}

func alreadyUsedText(n Node) string {
	if n.MAC == "" {
		return "Host " + n.Host + " has already been used, check and update provisioning CR"
	}
	return "MAC address " + n.MAC + " has already been used, check and update provisioning CR"
}

func pinText(n Node) string {
	if n.MAC == "" {
		return "name " + n.Host
	}
	return "MAC " + n.MAC
}

// keepClaimed gives a node the host that it holds, if that still fits.
func (m *matcher) keepClaimed(i int) bool {
	n := m.Nodes[i]
	for _, at := range m.byClaim[Claim{m.Owner, n.Label}] {
		if _, used := m.of[at]; !used && m.judge(n, at) == fits {
			m.of[at], m.firm[i] = i, true
			return true
		}
	}
	return false
}

// place finds a host for a node, smallest first, and moves others if it must (augmenting
// paths, H. W. Kuhn 1955). Nodes that name a host or hold one are not moved.
func (m *matcher) place(i int, tried map[int]bool) bool {
	n := m.Nodes[i]
	for at := range m.All {
		if _, used := m.of[at]; !used && m.judge(n, at) == fits {
			m.of[at] = i
			return true
		}
	}

	for at := range m.All {
		other, used := m.of[at]
		if !used || tried[at] || m.Nodes[other].isPinned() || m.firm[other] || m.judge(n, at) != fits {
			continue
		}

		tried[at] = true
		if m.place(other, tried) {
			m.of[at] = i
			return true
		}
	}

	return false
}
