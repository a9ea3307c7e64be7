package page

import (
	"fmt"
	"slices"

	"firstlight.dev/firstlight/assets/carrier"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
)

// checklistStep is one step from no site to a cluster.
type checklistStep struct {
	ID    string
	Title string
	Level level  // good: it is done; idle: it comes after what is not done
	Text  string // how far it is, or what to do
	Path  string // the page that says more; "" without one
	Link  string // what that is called
}

// State says in a word what the level says.
func (s checklistStep) State() string {
	return map[level]string{good: "done", busy: "now", bad: "needs you", idle: "then"}[s.Level]
}

// IsNow reports whether it is its turn.
func (s checklistStep) IsNow() bool { return s.Level == busy || s.Level == bad }

// newChecklist is the way from no site to a cluster; none once a cluster is in service, or the site wants none.
func newChecklist(p *picture) []checklistStep {
	inService := slices.ContainsFunc(p.doc.Clusters, func(c status.Cluster) bool { return c.State == status.ClusterReady })
	if inService || p.wantsNoCluster {
		return nil
	}

	steps := []checklistStep{applianceStep(p.doc), siteStep(p.doc), inspectedStep(p), verifiedStep(p.doc)}
	steps = append(steps, clusterSteps(p)...)
	reached := true
	for i := range steps {
		if !reached && steps[i].Level != good {
			steps[i].Level = idle
		}
		reached = reached && steps[i].Level == good
	}
	return steps
}

// wantsNoCluster reports whether a site says on purpose that it has no cluster.
func wantsNoCluster(s *site.Site) bool { return s.Clusters != nil && len(s.Clusters) == 0 }

func applianceStep(d status.Document) checklistStep {
	s := checklistStep{
		ID: "appliance", Title: "The appliance is ready", Level: busy, Path: "/appliance", Link: "its stages",
		Text: "It comes up automatically.",
	}
	switch d.State {
	case status.StateReady:
		s.Level, s.Text = good, ""
	case status.StateFailed:
		s.Level, s.Text = bad, d.Next
	}
	return s
}

func siteStep(d status.Document) checklistStep {
	s := checklistStep{
		ID: "site", Title: "The site names its servers", Level: busy,
		Text: "firstlight site init prints a first site.yaml. Put it " + carrier.Read("").Site +
			", then run firstlightd reload; or an owner edits it here. A server that boots from the provisioning network is shown below.",
		Path: "/site", Link: "site.yaml",
	}
	if n := len(d.Nodes); n > 0 {
		s.Level, s.Text = good, formatCount(n, "node")
	}
	return s
}

// inspectedStep is whether the hardware of all nodes is known, for which their BMCs have to work.
func inspectedStep(p *picture) checklistStep {
	s := checklistStep{ID: "inspected", Title: "All servers are reached and inspected", Level: busy}
	inspected := 0
	for _, n := range p.doc.Nodes {
		host := p.hosts[n.Name]
		if n.Verified || host != nil && host.Status.HardwareDetails != nil {
			inspected++
		}
	}
	return s.count(p.doc, inspected)
}

func verifiedStep(d status.Document) checklistStep {
	s := checklistStep{ID: "verified", Title: "All servers are installed and verified", Level: busy}
	verified := 0
	for _, n := range d.Nodes {
		if n.Verified {
			verified++
		}
	}
	return s.count(d, verified)
}

// count says how many nodes have done a step. It needs a person while a node does that has not.
func (s checklistStep) count(d status.Document, done int) checklistStep {
	if len(d.Nodes) == 0 {
		return s
	}
	s.Text = fmt.Sprintf("%d of %s", done, formatCount(len(d.Nodes), "node"))
	if done == len(d.Nodes) {
		s.Level = good
		return s
	}
	if needs := len(d.Attention().Nodes); needs > 0 {
		s.Level = bad
		s.Path, s.Link = "#needs-you", "what to do"
	}
	return s
}

// clusterSteps are that a cluster is asked for, and that it is in service.
func clusterSteps(p *picture) []checklistStep {
	d := p.doc
	asked := checklistStep{
		ID: "asked", Title: "A cluster is asked for", Level: busy,
		Text: "Name one under clusters in site.yaml, or apply a Provisioning or a Cluster.",
	}
	runs := checklistStep{ID: "in-service", Title: "A cluster is in service", Level: busy}
	if n := p.namedClusters; n > 0 {
		asked.Level, asked.Text = good, formatCount(n, "cluster")
	}
	if len(d.Clusters) == 0 { // they are not known before the operator of clusters runs
		return []checklistStep{asked, runs}
	}

	c := d.Clusters[0]
	ref := status.ClusterRef(d.Clusters, c)
	asked.Level, asked.Text = good, formatCount(len(d.Clusters), "cluster")
	runs.Path, runs.Link = clusterPath(ref), "cluster "+ref
	runs.Text = fmt.Sprintf("%s is %s, %d %%", ref, c.State, c.Percent)
	if c.Error != "" {
		runs.Level, runs.Text = bad, ref+": "+c.Error
	}
	return []checklistStep{asked, runs}
}

// formatCount is a number of things.
func formatCount(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
