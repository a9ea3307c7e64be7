package page

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/status"
)

// addOnsView is the page of what runs on clusters besides Kubernetes.
type addOnsView struct {
	IsKnown  bool          // there is the kind of Components
	Clusters []addOnTarget // those with something that needs a person first
	Orders   []addOnOrder  // of each namespace that has Components
}

// addOnTarget is a cluster with its components.
type addOnTarget struct {
	ID, Title string
	Path      string // of the cluster's page; "" of one that is not there, and of the appliance
	Level     level
	Rows      []addOnRow
}

// addOnRow is one component on one cluster.
type addOnRow struct {
	Name     string // namespace/name
	Level    level
	State    string
	Revision string
	Objects  string
	Text     string
}

// addOnOrder is which components of a namespace come after which.
type addOnOrder struct {
	Namespace string
	Drawing   *graph // nil if none comes after another one, or there are too many
	Items     []addOnItem
}

// addOnItem is one component in that order.
type addOnItem struct {
	Name  string
	Level level
	State string
	Text  string
	After []string
}

// showAddOns is the page of add-ons.
func showAddOns(p *picture, _ Role, _ *http.Request) (any, string, bool) {
	return newAddOnsView(p), "Add-ons", true
}

func newAddOnsView(p *picture) addOnsView {
	v := addOnsView{IsKnown: p.doc.Components != nil}
	targets, orders := map[string]*addOnTarget{}, map[string]*addOnOrder{}
	for _, c := range p.doc.Components {
		namespace, name, _ := strings.Cut(c.Name, "/")
		order := orders[namespace]
		if order == nil {
			order = &addOnOrder{Namespace: namespace}
			orders[namespace] = order
		}
		order.Items = append(order.Items, addOnItem{name, componentLevel(c.State), c.State, c.Text, c.After})

		for _, on := range c.On {
			key := namespace + "/" + on.Cluster
			if targets[key] == nil {
				targets[key] = newAddOnTarget(p.doc.Clusters, namespace, on.Cluster)
			}
			targets[key].add(c, on)
		}
	}

	for _, t := range targets {
		v.Clusters = append(v.Clusters, *t)
	}
	slices.SortFunc(v.Clusters, func(a, b addOnTarget) int {
		return cmp.Or(cmp.Compare(severity(b.Level), severity(a.Level)), cmp.Compare(a.ID, b.ID))
	})
	for _, o := range orders {
		v.Orders = append(v.Orders, o.arrange())
	}
	slices.SortFunc(v.Orders, func(a, b addOnOrder) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return v
}

// newAddOnTarget is a cluster as a Component of a namespace names it.
func newAddOnTarget(all []status.Cluster, namespace, name string) *addOnTarget {
	ref := namespace + "/" + name
	t := &addOnTarget{ID: ref, Title: ref, Level: idle}
	if name == status.ComponentTarget {
		t.Title = "The appliance, for " + namespace
		return t
	}
	if c, ok := status.FindCluster(all, ref); ok {
		t.Title = status.ClusterRef(all, c)
		t.Path = clusterPath(t.Title)
	}
	return t
}

func (t *addOnTarget) add(c status.Component, on status.ComponentOn) {
	row := addOnRow{
		Name:     c.Name,
		Level:    componentLevel(on.State),
		State:    on.State,
		Revision: on.Revision,
		Objects:  on.Objects,
		Text:     on.Text,
	}
	if on.Reason != "" {
		row.Text = strings.TrimSuffix(on.Reason+": "+on.Text, ": ")
	}
	t.Rows = append(t.Rows, row)
	if severity(row.Level) > severity(t.Level) {
		t.Level = row.Level
	}
	slices.SortStableFunc(t.Rows, func(a, b addOnRow) int {
		return cmp.Or(cmp.Compare(severity(b.Level), severity(a.Level)), cmp.Compare(a.Name, b.Name))
	})
}

// arrange puts what comes first first, and draws it.
func (o *addOnOrder) arrange() addOnOrder {
	vertices, columns := make([]vertex, 0, len(o.Items)), map[string]int{}
	for _, i := range o.Items {
		vertices = append(vertices, vertex{i.Name, i.State, i.Level, i.After})
	}
	o.Drawing = newGraph(vertices)
	if o.Drawing != nil {
		for _, b := range o.Drawing.Boxes {
			columns[b.Name] = b.Column
		}
	}
	slices.SortFunc(o.Items, func(a, b addOnItem) int {
		return cmp.Or(cmp.Compare(columns[a.Name], columns[b.Name]), cmp.Compare(a.Name, b.Name))
	})
	return *o
}

// componentLevel is how a phase of a Component stands, in lower case (docs/addons.md).
func componentLevel(state string) level {
	switch {
	case state == status.ComponentReady:
		return good
	case status.ComponentNeedsPerson(state):
		return bad
	case status.ComponentUnderway(state):
		return busy
	}
	return idle
}

// severity orders levels: what needs a person is the most severe.
func severity(l level) int { return slices.Index([]level{idle, good, busy, bad}, l) }

// Check is the state of a check that has the colour of a level.
func (l level) Check() status.CheckState {
	return map[level]status.CheckState{
		bad: status.CheckFailed, busy: status.CheckWaiting, good: status.CheckOK, idle: status.CheckSkipped,
	}[l]
}
