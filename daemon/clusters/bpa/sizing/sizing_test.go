package sizing

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
)

func rack(n int) []match.Host {
	var all []match.Host
	for i := range n {
		all = append(all, match.Host{Name: fmt.Sprintf("metal3/h%03d", i), CPU: 4 + i%5, Memory: int64(8+i%3) << 30, MACs: []string{fmt.Sprintf("52:54:00:00:%02x:%02x", i>>8, i&255)}})
	}
	return all
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		hosts                    int
		clusters, masters, extra int // of the first cluster; extra: workers that are no masters
		says                     string
	}{
		{0, 0, 0, 0, "of 0 hosts: no cluster; 0 are waited for, 0 are left out"},
		{1, 1, 1, 0, "of 1 hosts: cluster rack with 1 control plane, which work as well; "},
		{2, 1, 1, 1, "cluster rack with 1 control plane, and 1 workers; "},
		{3, 1, 3, 0, "cluster rack with 3 control planes, which work as well; "},
		{5, 1, 3, 2, "cluster rack with 3 control planes, which work as well, and 2 workers; "},
		{6, 1, 3, 3, "cluster rack with 3 control planes, and 3 workers; "},
		{100, 1, 3, 97, ""},
		{101, 2, 3, 47, "cluster rack-1 with 3 control planes, and 47 workers; cluster rack-2 with 3 control planes, and 48 workers; "},
		{1000, 10, 3, 97, ""},
	} {
		t.Run(fmt.Sprint(c.hosts), func(t *testing.T) {
			p := Propose("rack", "default", rack(c.hosts))
			require.Len(t, p.Provisionings, c.clusters)
			assert.Contains(t, p.Sentence, c.says)
			assert.Empty(t, p.Waiting)
			if c.clusters > 0 {
				first := p.Provisionings[0]
				assert.Len(t, first.Spec.Masters, c.masters)
				assert.Equal(t, c.extra, len(first.Spec.Workers)-countDoubleRoles(first))
			}
		})
	}
}

// TestProposalsCanBeInstalled: whatever the rack, each proposal matches as it stands, no
// host is used twice, every host is used, left out or waited for, and the order in which
// hosts are listed changes nothing.
func TestProposalsCanBeInstalled(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 3))
		hosts := rack(r.IntN(230))
		for i := range hosts {
			switch r.IntN(12) {
			case 0:
				hosts[i].Claim.Owner = "default/x"
			case 1:
				hosts[i].UnusableReason = "is preparing"
			case 2:
				hosts[i].PreviousCluster = "old"
			case 3:
				hosts[i].CPU = 1
			case 4:
				hosts[i].SRIOV = true
			}
		}
		p := Propose("s", "default", hosts)
		shuffled := slices.Clone(hosts)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		require.Equal(t, p, Propose("s", "default", shuffled), "seed %d", seed)
		used := 0
		h := match.NewHosts(hosts)
		taken := map[int]bool{}
		for _, c := range p.Provisionings {
			nodes, problems := match.ParseNodes(c.Spec)
			require.Empty(t, problems, "seed %d", seed)
			got := h.Match(match.Want{Owner: "default/" + c.Name, Cluster: c.Name, Nodes: nodes})
			require.Empty(t, got.Problems, "seed %d", seed)
			for _, at := range got.Hosts {
				require.False(t, taken[at])
				taken[at] = true
				used++
			}
		}
		if len(p.Provisionings) > 0 {
			assert.Equal(t, len(hosts), used+len(p.Left)+len(p.Waiting), "seed %d", seed)
		}
	}
}

func TestWhoBecomesControlPlane(t *testing.T) {
	hosts := []match.Host{
		{Name: "m/tiny", CPU: 1, Memory: 4 << 30}, {Name: "m/nic", CPU: 4, Memory: 8 << 30, SRIOV: true},
		{Name: "m/small", CPU: 8, Memory: 16 << 30}, {Name: "m/large", CPU: 64, Memory: 512 << 30},
	}
	p := Propose("rack", "default", hosts[:2])
	assert.Equal(t, "nic", p.Provisionings[0].Spec.Masters[0]["master-1"].Host, "a host that is too small must not be one")
	p = Propose("rack", "default", hosts)
	var masters []string
	for i, m := range p.Provisionings[0].Spec.Masters {
		masters = append(masters, m[fmt.Sprintf("master-%d", i+1)].Host)
	}
	assert.Equal(t, []string{"small", "large", "nic"}, masters, "devices are for workers")
	p = Propose("rack", "default", hosts[:1])
	assert.Empty(t, p.Provisionings)
	assert.Contains(t, p.Left[0], "none of them has 2 CPUs")
}
