package match

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// reportUnplaced says why there is no host for a node: how many hosts there are for each reason.
func (m *matcher) reportUnplaced(i int) {
	n := m.Nodes[i]
	counts, own := map[verdict]int{}, 0
	for at := range m.All {
		if v := m.judge(n, at); v == fits {
			own++ // another node has it
		} else {
			counts[v]++
		}
	}

	var parts []string
	for _, v := range []verdict{small, others, usedBefore, unready} {
		if counts[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[v], verdicts[v]))
		}
	}

	if own > 0 {
		parts = append(parts, fmt.Sprintf("%d are other nodes of this cluster", own))
	}

	of := "there are no hosts"
	if len(m.All) > 0 {
		of = fmt.Sprintf("of %d hosts %s", len(m.All), strings.Join(parts, ", "))
	}

	if counts[unready] > 0 {
		m.addProblem(
			n, NoHostFits, true,
			"node %s: waits for a host with %s to be ready: %s; it continues automatically, see status.rejected", n.Label,
			n.requirements(), of,
		)
		return
	}

	if len(m.All) < m.Expected {
		m.addProblem(
			n, NoHostFits, true,
			"node %s: waits for a host with %s to be discovered: %s, up to %d may come; see firstlightd discovered", n.Label,
			n.requirements(), of, m.Expected-len(m.All),
		)
		return
	}

	m.addProblem(
		n, NoHostFits, false,
		"node %s: no host is left with %s: %s; ask for less, add a server, or see status.rejected", n.Label,
		n.requirements(), of,
	)
}

// MaxRejected is how many hosts are listed; the rest is counted.
const MaxRejected = 32

// listRejected lists the hosts that none of the nodes got, for which one was to be chosen, each
// with what the first of these nodes that it does not suit has against it. If some are
// without a host, it is about them alone, and every host is listed.
func (m *matcher) listRejected(chosen, without []int) {
	if len(chosen) == 0 {
		return
	}

	if len(without) > 0 {
		chosen = without
	}

	type rejection struct {
		at, node int
		verdict  verdict
	}
	var all []rejection
	for at := range m.All {
		if _, used := m.of[at]; used && len(without) == 0 {
			continue
		}

		r := rejection{at: at}
		for _, i := range chosen {
			if v := m.judge(m.Nodes[i], at); v != fits {
				r.node, r.verdict = i, v
				break
			}
		}

		all = append(all, r)
	}

	slices.SortFunc(all, func(a, b rejection) int {
		return cmp.Or(cmp.Compare(a.verdict, b.verdict), cmp.Compare(m.All[a.at].Name, m.All[b.at].Name))
	})
	for i, r := range all {
		name, n := m.All[r.at].Name, m.Nodes[r.node]
		switch {
		case i == MaxRejected:
			m.Result.Rejected = append(m.Result.Rejected, Rejected{fmt.Sprintf("%d more", len(all)-i), "not listed"})
			return
		case r.verdict == fits && len(without) > 0:
			m.Result.Rejected = append(m.Result.Rejected, Rejected{name, "is another node of this cluster"})
		case r.verdict == fits:
			m.Result.Rejected = append(m.Result.Rejected, Rejected{name, "fits, but a smaller one was taken"})
		default:
			m.Result.Rejected = append(
				m.Result.Rejected, Rejected{name, "for " + n.Label + ": " + m.verdictText(n, r.at)},
			)
		}
	}
}
