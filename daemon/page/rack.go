package page

import (
	"net/url"
	"time"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/console"
)

// level is how something stands, for its colour and its mark: one of status.Level, or idle.
type level string

const (
	bad  = level(status.LevelBad)
	busy = level(status.LevelBusy)
	good = level(status.LevelGood)
	idle = level("idle") // it waits its turn, or no one asked for it
)

// Word says in words what the colour says.
func (l level) Word() string {
	return map[level]string{bad: "Needs you", busy: "On its way", good: "Good", idle: "Not named by the site"}[l]
}

// headline is how the appliance stands.
type headline struct {
	Level   level
	Text    string
	Summary string // what it does or waits for; "": nothing
	Next    string // what a person can do
	Pushed  []string
}

func newHeadline(d status.Document) headline {
	h := headline{Level: level(d.Level()), Text: console.Headline(d), Next: d.Next}
	h.Summary, _ = console.Activity(d)
	for _, p := range d.Pushed {
		h.Pushed = append(h.Pushed, p.Text)
	}
	return h
}

// card is one node in the rack.
type card struct {
	Name    string
	Path    string
	Level   level
	State   string // of its BareMetalHost
	Why     string
	Next    string
	Since   time.Time
	Age     string // of Since
	Percent int
	Power   string // "on", "off" or "" while nobody knows
	Address string
}

// group is nodes that stand alike.
type group struct {
	ID    string
	Title string
	Cards []card
}

// rackView is the first page.
type rackView struct {
	Launch     status.Launch
	LaunchAge  string // for how long it runs
	LaunchTime string // that it may take
	Nodes      int
	Groups     []group        // without empty ones
	Bringup    []status.Stage // that do not hold yet, without those that follow Ready
	IsKnown    bool           // whether the site names nodes is known
	Checklist  []checklistStep
}

func newRackView(p *picture) rackView {
	v := rackView{
		Launch:     p.doc.Launch,
		LaunchAge:  formatSeconds(p.doc.Launch.Elapsed),
		LaunchTime: formatSeconds(p.doc.Launch.Limit),
		Nodes:      len(p.doc.Nodes),
		IsKnown:    p.doc.Launch.State != "",
		Checklist:  newChecklist(p),
	}
	for _, s := range p.doc.Stages {
		if s.State != status.StateReady && !s.AfterReady {
			v.Bringup = append(v.Bringup, s)
		}
	}

	groups := []group{
		{ID: "needs-you", Title: "Need you"},
		{ID: "on-their-way", Title: "On their way"},
		{ID: "in-service", Title: "In service"},
		{ID: "unknown", Title: "Not named by the site"},
	}
	for _, n := range p.nodes {
		c := newCard(p, n)
		at := 1
		switch {
		case c.Level == idle:
			at = 3
		case c.Level == bad:
			at = 0
		case c.Level == good:
			at = 2
		}
		groups[at].Cards = append(groups[at].Cards, c)
	}

	for _, g := range groups {
		if len(g.Cards) > 0 {
			v.Groups = append(v.Groups, g)
		}
	}

	return v
}

func newCard(p *picture, n status.Node) card {
	c := card{
		Name:    n.Name,
		Path:    "/nodes/" + url.PathEscape(n.Name),
		Level:   busy,
		State:   n.State,
		Why:     n.Why,
		Next:    n.Next,
		Since:   n.Since,
		Percent: n.Percent,
		Address: n.Address,
	}
	if c.Why == "" {
		c.Why = n.Error
	}

	if !n.Since.IsZero() {
		c.Age = console.FormatDuration(p.time.Sub(n.Since))
	}

	switch {
	case !p.named[n.Name]:
		c.Level = idle // the headline does not count it either
	case n.Next != "":
		c.Level = bad
	case n.Verified:
		c.Level = good
	}

	if host := p.hosts[n.Name]; host != nil {
		c.Power = "off"
		if host.Status.PoweredOn {
			c.Power = "on"
		}
	}

	return c
}
