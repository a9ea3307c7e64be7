// Package bench_test measures what the operator of clusters decides: the hosts of a hundred clusters chosen among a
// thousand. Its rows are build/bench/match.json.
package bench_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/daemon/clusters/bpa/address"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
)

// What is measured, and how often.
const (
	hosts    = 1000
	clusters = 100
	runs     = 9
)

func BenchmarkMatch(b *testing.B) {
	bench.Run(b, "match", func(context.Context) ([]bench.Row, error) {
		repeated := fmt.Sprintf("median of %d", runs)
		choice, err := measureMatch()
		if err != nil {
			return nil, err
		}
		leases, err := measureLeases()
		if err != nil {
			return nil, err
		}
		inventory, err := measureInventory()
		return []bench.Row{
			bench.Row{
				Name: "bpa/match-1000-hosts-100-clusters",
				Unit: "ms",
				Ours: choice,
				Note: repeated + "; all 1,000 hosts chosen for 1,000 nodes, half by MAC, 40 with SR-IOV; one sorting, " +
					"100 choices, each with its list of rejected hosts",
			}.Less("bar", 100, 1),
			{Name: "bpa/read-1000-leases", Unit: "ms", Ours: leases, Note: repeated},
			{Name: "bpa/inventory-of-1000-nodes", Unit: "ms", Ours: inventory, Note: repeated},
		}, err
	})
}

// medianMilliseconds is how long do takes.
func medianMilliseconds(do func() error) (float64, error) {
	var ms []float64
	for range runs {
		seconds, err := bench.MeasureSeconds(do)
		if err != nil {
			return 0, err
		}
		ms = append(ms, seconds*1000)
	}
	return bench.Median(ms), nil
}

func mac(n, nic int) string {
	return fmt.Sprintf("52:54:%02x:%02x:%02x:%02x", nic, n>>16&255, n>>8&255, n&255)
}

// rackHosts is a thousand hosts of eight sizes with four NICs, every fifth with SR-IOV.
func rackHosts() []match.Host {
	var all []match.Host
	for n := range hosts {
		h := match.Host{
			Name:   fmt.Sprintf("metal3/node-%04d", n),
			CPU:    8 << (n % 4),
			Memory: int64(16<<(n%8)) << 30,
			SRIOV:  n%5 == 0,
			QAT:    n%50 == 0,
		}
		for nic := range 4 {
			h.MACs = append(h.MACs, mac(n, nic))
		}
		all = append(all, h)
	}
	return all
}

// wantedClusters are a hundred clusters of ten nodes that between them need every host: half of the
// nodes name a MAC, forty ask for SR-IOV, the rest for resources alone.
func wantedClusters() []match.Want {
	var all []match.Want
	for c := range clusters {
		w := match.Want{Owner: fmt.Sprintf("Provisioning default/c%d", c), Cluster: fmt.Sprintf("c%d", c)}
		for i := range hosts / clusters {
			n := match.Node{Label: fmt.Sprintf("n%d", i), Master: i < 3, Worker: i >= 3}
			switch {
			case i%2 == 0:
				n.MAC = mac(c*10+i, 2)
			case i == 5 && c < 40:
				n.SRIOV, n.CPU = true, 8
			default:
				n.CPU, n.Memory = 8, 16<<30
			}
			w.Nodes = append(w.Nodes, n)
		}
		all = append(all, w)
	}
	return all
}

// choose matches all clusters, one after the other, each with what those before it left.
func choose(all []match.Host, wanted []match.Want) error {
	h, chosen := match.NewHosts(all), 0
	for _, w := range wanted {
		r := h.Match(w)
		if len(r.Problems) > 0 {
			return fmt.Errorf("%s: %s", w.Owner, r.Problems[0].Sentence)
		}
		for label, at := range r.Hosts {
			h.All[at].Claim = match.Claim{Owner: w.Owner, Node: label}
			chosen++
		}
	}
	if chosen != hosts {
		return fmt.Errorf("%d of %d hosts were chosen", chosen, hosts)
	}
	return nil
}

func measureMatch() (float64, error) {
	all, wanted := rackHosts(), wantedClusters()
	pinned := map[string]string{}
	for _, w := range wanted {
		for _, n := range w.Nodes {
			if n.MAC != "" {
				pinned[n.MAC] = w.Owner
			}
		}
	}
	for i := range all {
		all[i].PinnedBy = pinned[all[i].MACs[2]]
	}
	return medianMilliseconds(func() error { return choose(all, wanted) })
}

func measureLeases() (float64, error) {
	var text []byte
	for n := range hosts {
		text = fmt.Appendf(text, "lease 10.0.%d.%d {\n  starts 5 2026/11/20 12:00:00;\n  ends never;\n  binding state active;\n"+
			"  next binding state free;\n  hardware ethernet %s;\n}\n", n>>8, n&255, mac(n, 0))
	}
	return medianMilliseconds(func() error {
		if n := len(address.ParseISC(text)); n != hosts {
			return fmt.Errorf("%d of %d leases were read", n, hosts)
		}
		return nil
	})
}

func measureInventory() (float64, error) {
	var nodes []kud.Node
	for n := range hosts {
		at := netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
		nodes = append(nodes, kud.Node{Label: fmt.Sprintf("n%d", n), Master: n < 3, Worker: n >= 3, Address: at})
	}
	return medianMilliseconds(func() error { kud.Inventory(nodes); return nil })
}
