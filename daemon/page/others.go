package page

import "firstlight.dev/firstlight/assets/status"

// clusterView is one cluster.
type clusterView struct {
	status.Cluster
	Ref    string // status.ClusterRef
	Path   string
	Level  level
	Offers []offer
}

// clustersView is the page of clusters: those that failed first.
type clustersView struct{ Clusters []clusterView }

func newClustersView(p *picture, by Role) clustersView {
	var failed, others []clusterView
	for _, c := range p.doc.Clusters {
		v := newClusterView(p, by, c)
		if v.Level == bad {
			failed = append(failed, v)
		} else {
			others = append(others, v)
		}
	}
	return clustersView{append(failed, others...)}
}

func newClusterView(p *picture, by Role, c status.Cluster) clusterView {
	ref := status.ClusterRef(p.doc.Clusters, c)
	v := clusterView{c, ref, clusterPath(ref), busy, newOffers(p, by, onCluster, ref)}
	switch {
	case c.Error != "":
		v.Level = bad
	case c.State == status.ClusterReady:
		v.Level = good
	}
	return v
}

// stageView is one stage of the bring-up.
type stageView struct {
	status.Stage
	Level level
}

// applianceView is the page of the appliance itself.
type applianceView struct {
	Document status.Document
	Open     []stageView // that do not hold
	Ready    []stageView
	Offers   []offer
}

func newApplianceView(p *picture, by Role) applianceView {
	v := applianceView{Document: p.doc, Offers: newOffers(p, by, onAppliance, "")}
	for _, s := range p.doc.Stages {
		switch s.State {
		case status.StateReady:
			v.Ready = append(v.Ready, stageView{s, good})
		case status.StateFailed:
			v.Open = append(v.Open, stageView{s, bad})
		case status.StateWaiting:
			v.Open = append(v.Open, stageView{s, idle})
		default:
			v.Open = append(v.Open, stageView{s, busy})
		}
	}

	return v
}
