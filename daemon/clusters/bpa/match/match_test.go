package match

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func mac(n int) string { return fmt.Sprintf("52:54:00:00:%02x:%02x", n>>8, n&255) }

// host n has 2n CPUs, n GiB and two NICs.
func host(n int) Host {
	return Host{Name: fmt.Sprintf("metal3/h%d", n), CPU: 2 * n, Memory: int64(n) << 30, MACs: []string{mac(2 * n), mac(2*n + 1)}}
}

func changed(h Host, f func(*Host)) Host { f(&h); return h }

// names are the chosen hosts by label.
func names(h *Hosts, r Result) map[string]string {
	out := map[string]string{}
	for label, at := range r.Hosts {
		out[label] = h.All[at].Name
	}
	return out
}

func TestMatch(t *testing.T) {
	small, mid, big := host(1), host(2), host(4)
	nic := changed(host(3), func(h *Host) { h.SRIOV = true })
	for _, c := range []struct {
		name  string
		nodes []Node
		hosts []Host
		want  map[string]string
	}{
		{"by MAC of the second NIC", []Node{{Label: "m", MAC: big.MACs[1]}}, []Host{small, big}, map[string]string{"m": big.Name}},
		{"smallest that fits", []Node{{Label: "m", CPU: 3}}, []Host{big, small, mid}, map[string]string{"m": mid.Name}},
		{"of two alike the one without devices", []Node{{Label: "m", CPU: 3}}, []Host{changed(mid, func(h *Host) { h.Name, h.SRIOV = "metal3/a", true }), mid}, map[string]string{"m": mid.Name}},
		{"by name", []Node{{Label: "m", Host: "h4"}}, []Host{small, big}, map[string]string{"m": big.Name}},
		{"pinned first: a later node's host is not taken", []Node{{Label: "any", CPU: 1}, {Label: "pin", MAC: small.MACs[0]}}, []Host{small, mid}, map[string]string{"any": mid.Name, "pin": small.Name}},
		{"by MAC and resources", []Node{{Label: "m", MAC: nic.MACs[0], CPU: 6, SRIOV: true}}, []Host{nic, big}, map[string]string{"m": nic.Name}},
		{"an earlier one moves", []Node{{Label: "a", CPU: 6}, {Label: "b", SRIOV: true}}, []Host{nic, big}, map[string]string{"a": big.Name, "b": nic.Name}},
		{"what it holds it keeps", []Node{{Label: "a", CPU: 1}, {Label: "b", CPU: 1}},
			[]Host{small, mid, changed(big, func(h *Host) { h.Claim = Claim{"o", "a"} })}, map[string]string{"a": big.Name, "b": small.Name}},
		{"what it holds and does not fit it gives up", []Node{{Label: "a", CPU: 3}}, []Host{changed(small, func(h *Host) { h.Claim = Claim{"o", "a"} }), mid}, map[string]string{"a": mid.Name}},
		{"its own former cluster is no obstacle", []Node{{Label: "a", CPU: 1}}, []Host{changed(small, func(h *Host) { h.PreviousCluster = "c" })}, map[string]string{"a": small.Name}},
		{"a former cluster is no obstacle to who names the host", []Node{{Label: "a", MAC: small.MACs[0]}}, []Host{changed(small, func(h *Host) { h.PreviousCluster = "old" })}, map[string]string{"a": small.Name}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := NewHosts(c.hosts)
			r := h.Match(Want{Owner: "o", Cluster: "c", Nodes: c.nodes})
			assert.Empty(t, r.Problems)
			assert.Equal(t, c.want, names(h, r))
		})
	}
}

func TestHostRefusals(t *testing.T) {
	h, other := host(2), Claim{"default/other", "w"}
	pin := []Node{{Label: "m", MAC: h.MACs[0]}}
	for _, c := range []struct {
		name   string
		nodes  []Node
		hosts  []Host
		reason string
		says   string
		waits  bool
	}{
		{"unknown MAC", []Node{{Label: "m", MAC: mac(99)}}, []Host{h}, HostNotFound, "Host with MAC Address " + mac(99) + " not found: node m: none of 1 hosts", true},
		{"a MAC is no substring", []Node{{Label: "m", MAC: "52:54:00:00:00:0"}}, []Host{h}, HostNotFound, "not found", true},
		{"unknown name", []Node{{Label: "m", Host: "h9"}}, []Host{h}, HostNotFound, "Host h9 not found: node m", true},
		{"MAC of another host than the one named", []Node{{Label: "m", MAC: h.MACs[0], Host: "h9"}}, []Host{h}, HostNotFound, "that NIC is in host metal3/h2, not in h9", false},
		{"two hosts say they have it", pin, []Host{h, changed(host(3), func(o *Host) { o.MACs = h.MACs })}, HostAmbiguous, "node m: 2 hosts have the MAC " + h.MACs[0] + ": metal3/h2, metal3/h3", false},
		{"two NICs of one host under two labels", []Node{{Label: "m", MAC: h.MACs[0]}, {Label: "w", MAC: h.MACs[1]}}, []Host{h}, HostTwice, "node w: host metal3/h2, which has the MAC " + h.MACs[1] + ", is node m already", false},
		{"another's", pin, []Host{changed(h, func(h *Host) { h.Claim = other })}, HostClaimed, "MAC address " + h.MACs[0] + " has already been used, check and update provisioning CR: node m: host metal3/h2 belongs to default/other, as its node w", false},
		{"another's, by name", []Node{{Label: "m", Host: "h2"}}, []Host{changed(h, func(h *Host) { h.Claim = other })}, HostClaimed, "Host h2 has already been used", false},
		{"too few CPUs", []Node{{Label: "m", MAC: h.MACs[0], CPU: 5}}, []Host{h}, HostTooSmall, "has 4 CPUs, 5 are asked for", false},
		{"too little memory", []Node{{Label: "m", MAC: h.MACs[0], Memory: 3 << 30}}, []Host{h}, HostTooSmall, "has 2 GiB of memory, 3 GiB is asked for", false},
		{"no QAT", []Node{{Label: "m", MAC: h.MACs[0], QAT: true}}, []Host{h}, HostTooSmall, "has no QAT", false},
		{"not provisioned", pin, []Host{changed(h, func(h *Host) { h.UnusableReason = "is inspecting, not provisioned yet" })}, HostNotReady, "is inspecting, not provisioned yet", true},
		{"nothing fits", []Node{{Label: "m", CPU: 9, SRIOV: true}}, []Host{h, changed(host(8), func(h *Host) { h.Claim = other; h.SRIOV = true })}, NoHostFits, "no host is left with 9 CPUs, SR-IOV: of 2 hosts 1 are too small, 1 belong to other clusters", false},
		{"what would fit is not ready", []Node{{Label: "m", CPU: 1}}, []Host{changed(h, func(h *Host) { h.UnusableReason = "is inspecting" })}, NoHostFits, "node m: waits for a host with 1 CPUs to be ready: of 1 hosts 1 are not ready; it continues automatically", true},
		{"not inspected yet", []Node{{Label: "m", CPU: 1}}, []Host{{Name: "metal3/h2", MACs: h.MACs, UnusableReason: "is registering"}}, NoHostFits, "of 1 hosts 1 are not ready", true},
		{"not inspected yet, by MAC", []Node{{Label: "m", MAC: h.MACs[0], CPU: 1}}, []Host{{Name: "metal3/h2", MACs: h.MACs, UnusableReason: "is registering"}}, HostNotReady, "is registering", true},
		{"named elsewhere", []Node{{Label: "m", CPU: 1}}, []Host{changed(h, func(h *Host) { h.PinnedBy = "default/x" })}, NoHostFits, "1 belong to other clusters", false},
		{"former cluster", []Node{{Label: "m", CPU: 1}}, []Host{changed(h, func(h *Host) { h.PreviousCluster = "old" })}, NoHostFits, "1 hold a former cluster", false},
		{"too few", []Node{{Label: "a", CPU: 1}, {Label: "b", CPU: 1}}, []Host{h}, NoHostFits, "node b: no host is left with 1 CPUs: of 1 hosts 1 are other nodes of this cluster", false},
		{"none", []Node{{Label: "a", CPU: 1}}, nil, NoHostFits, "there are no hosts", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewHosts(c.hosts).Match(Want{Owner: "default/c", Cluster: "c", Nodes: c.nodes, Expected: len(c.hosts)})
			require.Len(t, r.Problems, 1)
			assert.Equal(t, c.reason, r.Problems[0].Reason)
			assert.Contains(t, r.Problems[0].Sentence, c.says)
			assert.Equal(t, c.waits, r.Problems[0].Waits)
		})
	}
}

// TestHostsThatAreStillToBeDiscoveredAreAwaited: what is refused once all are there waits until then.
func TestHostsThatAreStillToBeDiscoveredAreAwaited(t *testing.T) {
	want := Want{Owner: "default/c", Cluster: "c", Nodes: []Node{{Label: "a", CPU: 1}, {Label: "b", CPU: 1}}}
	for hosts, says := range map[int]string{
		0: "node a: waits for a host with 1 CPUs to be discovered: there are no hosts, up to 2 may come; see firstlightd discovered",
		1: "node b: waits for a host with 1 CPUs to be discovered: of 1 hosts 1 are other nodes of this cluster, up to 1 may come; " +
			"see firstlightd discovered",
	} {
		all := NewHosts([]Host{host(1)}[:hosts])
		want.Expected = 2
		problems := all.Match(want).Problems
		require.NotEmpty(t, problems)
		assert.Equal(t, says, problems[0].Sentence)
		assert.True(t, problems[0].Waits)

		want.Expected = hosts
		for _, p := range all.Match(want).Problems {
			assert.False(t, p.Waits, p.Sentence)
		}
	}
}

func TestHostsInServiceAreNotAskedAgain(t *testing.T) {
	h := changed(host(2), func(h *Host) { h.UnusableReason = "is not proven any more"; h.Claim = Claim{"o", "m"} })
	w := Want{Owner: "o", Cluster: "c", Nodes: []Node{{Label: "m", MAC: h.MACs[0]}}, Installed: true}
	assert.Empty(t, NewHosts([]Host{h}).Match(w).Problems)
	w.Nodes[0] = Node{Label: "m", CPU: 1}
	assert.Empty(t, NewHosts([]Host{h}).Match(w).Problems)
	w.Installed = false
	assert.Len(t, NewHosts([]Host{h}).Match(w).Problems, 1)
}

func TestRejectedHostsAreListedNearestFirst(t *testing.T) {
	hosts := []Host{host(1), changed(host(5), func(h *Host) { h.Claim.Owner = "default/o" }), host(3), host(4), changed(host(6), func(h *Host) { h.UnusableReason = "is preparing" })}
	r := NewHosts(hosts).Match(Want{Owner: "default/c", Nodes: []Node{{Label: "w", CPU: 4}}})
	assert.Equal(t, []Rejected{
		{"metal3/h4", "fits, but a smaller one was taken"},
		{"metal3/h6", "for w: is preparing"},
		{"metal3/h1", "for w: has 2 CPUs, 4 are asked for"},
		{"metal3/h5", "for w: belongs to default/o"},
	}, r.Rejected)
	r = NewHosts(hosts[:2]).Match(Want{Owner: "default/c", Nodes: []Node{{Label: "m", CPU: 2}, {Label: "w", CPU: 2}}})
	assert.Equal(t, []Rejected{{"metal3/h1", "is another node of this cluster"}, {"metal3/h5", "for w: belongs to default/o"}}, r.Rejected, "it is about the node that has no host")
	var many []Host
	for n := range 100 {
		many = append(many, host(n))
	}
	r = NewHosts(many).Match(Want{Nodes: []Node{{Label: "w", CPU: 4}}})
	require.Len(t, r.Rejected, MaxRejected+1)
	assert.Equal(t, Rejected{"67 more", "not listed"}, r.Rejected[MaxRejected])
}

// random makes a small rack and a cluster for it.
func random(r *rand.Rand) ([]Host, Want) {
	w := Want{Owner: "default/c", Cluster: "c", Installed: r.IntN(2) == 0}
	var hosts []Host
	for i := range r.IntN(7) {
		h := Host{Name: fmt.Sprintf("metal3/h%d", i), CPU: r.IntN(4), Memory: int64(r.IntN(3)), SRIOV: r.IntN(2) == 0, QAT: r.IntN(3) == 0, MACs: []string{mac(i)}}
		switch r.IntN(8) {
		case 0:
			h.Claim = Claim{"default/other", "x"}
		case 1:
			h.Claim = Claim{w.Owner, fmt.Sprint(r.IntN(6))}
		case 2:
			h.UnusableReason = "is preparing"
		case 3:
			h.PinnedBy = "default/third"
		case 4:
			h.PreviousCluster = []string{"c", "old"}[r.IntN(2)]
		}
		hosts = append(hosts, h)
	}
	for i := range r.IntN(6) {
		n := Node{Label: fmt.Sprint(i), CPU: r.IntN(4), Memory: int64(r.IntN(3)), SRIOV: r.IntN(3) == 0, QAT: r.IntN(4) == 0}
		if r.IntN(4) == 0 {
			n.MAC = mac(r.IntN(7))
		}
		w.Nodes = append(w.Nodes, n)
	}
	return hosts, w
}

// possible is the slow truth: whether nodes from i on can all be given a host.
func possible(m *matcher, i int, used map[int]bool) bool {
	if i == len(m.Nodes) {
		return true
	}
	if m.Nodes[i].isPinned() {
		return possible(m, i+1, used)
	}
	for at := range m.All {
		if !used[at] && m.judge(m.Nodes[i], at) == fits {
			used[at] = true
			if possible(m, i+1, used) {
				return true
			}
			delete(used, at)
		}
	}
	return false
}

func TestMatchProperties(t *testing.T) {
	complete := 0
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 7))
		hosts, w := random(r)
		h := NewHosts(hosts)
		got := h.Match(w)

		shuffled := slices.Clone(hosts)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		again := NewHosts(shuffled).Match(w)
		require.Equal(t, got, again, "seed %d: the order of hosts matters", seed)

		used := map[int]bool{}
		m := &matcher{Hosts: h, Want: w}
		kept := map[int]bool{} // hosts that nodes held, or name
		for _, n := range w.Nodes {
			at, chosen := got.Hosts[n.Label]
			if !chosen {
				require.NotEmpty(t, got.Problems, "seed %d: node %s has no host and no reason", seed, n.Label)
				continue
			}
			require.False(t, used[at], "seed %d: host twice", seed)
			used[at] = true
			if n.isPinned() {
				require.Contains(t, h.All[at].MACs, n.MAC, "seed %d", seed)
				kept[at] = true
			} else {
				require.True(t, m.judge(n, at) == fits, "seed %d: node %s got %s", seed, n.Label, h.All[at].Name)
			}
		}
		for at := range h.All {
			for _, n := range w.Nodes {
				require.Equal(t, m.verdictText(n, at) == "", m.judge(n, at) == fits, "seed %d: %s", seed, m.verdictText(n, at))
			}
		}
		holds := slices.ContainsFunc(hosts, func(h Host) bool { return h.Claim.Owner == w.Owner })
		if can := possible(m, 0, kept); !holds {
			unplaced := slices.ContainsFunc(got.Problems, func(p Problem) bool { return p.Reason == NoHostFits })
			require.Equal(t, can, !unplaced, "seed %d: %+v", seed, got)
			if can && len(w.Nodes) > 2 {
				complete++
			}
		}
	}
	assert.Greater(t, complete, 200, "the cases are too hard to say anything")
}
