package match

import "fmt"

// tooSmall says what a host lacks of what a node needs; "" if it fits.
func tooSmall(n Node, h *Host) string {
	switch {
	case h.CPU < n.CPU:
		return fmt.Sprintf("has %d CPUs, %d are asked for", h.CPU, n.CPU)
	case h.Memory < n.Memory:
		return fmt.Sprintf("has %s of memory, %s is asked for", formatBytes(h.Memory), formatBytes(n.Memory))
	case n.SRIOV && !h.SRIOV:
		return "has no SR-IOV, which is asked for"
	case n.QAT && !h.QAT:
		return "has no QAT, which is asked for"
	}
	return ""
}

// verdict is how a host suits a node that does not name it, by nearness: what a change could
// make fit comes first.
type verdict int

const (
	fits verdict = iota
	unready
	small
	usedBefore
	others // belongs to others, or is named by them
)

// verdicts say of how many hosts each is true.
var verdicts = map[verdict]string{
	unready:    "are not ready",
	small:      "are too small",
	usedBefore: "hold a former cluster",
	others:     "belong to other clusters",
}

func (m *matcher) judge(n Node, at int) verdict {
	h := &m.All[at]
	switch {
	case h.isUninspected() && !m.inService(h, n):
		return unready
	case h.CPU < n.CPU || h.Memory < n.Memory || n.SRIOV && !h.SRIOV || n.QAT && !h.QAT:
		return small
	case h.Claim.Owner != "" && h.Claim.Owner != m.Owner || h.PinnedBy != "":
		return others
	case h.PreviousCluster != "" && h.PreviousCluster != m.Cluster, h.DirtyFrom != "" && h.Claim.Owner == "":
		return usedBefore
	case h.UnusableReason != "" && !m.inService(h, n):
		return unready
	}
	return fits
}

// verdictText is a verdict in words; "" if the host fits.
func (m *matcher) verdictText(n Node, at int) string {
	h := &m.All[at]
	switch v := m.judge(n, at); {
	case v == small:
		return tooSmall(n, h)
	case v == others && h.Claim.Owner != "" && h.Claim.Owner != m.Owner:
		return "belongs to " + h.Claim.Owner
	case v == others:
		return "is named in " + h.PinnedBy
	case v == usedBefore && h.DirtyFrom != "":
		return "was taken out of its cluster without being cleared (" + h.DirtyFrom + "); name it by its MAC to have it cleared and used"
	case v == usedBefore:
		return "still holds the cluster " + h.PreviousCluster + "; name it by its MAC to use it all the same"
	case v == unready:
		return h.UnusableReason
	}
	return ""
}
