package status

import "slices"

// Attention is what of an appliance needs a person. Where it is shown, it comes before anything else.
type Attention struct {
	Nodes      []string // that say what a person can do
	Clusters   []string // that failed or are refused, or whose update did or is
	Components []string // that failed, are refused, or broke after they were ready
	Launch     bool     // the launch failed
	Uploads    []string // checks of the uploads that failed
	Source     bool     // the newest revision of the source is refused
}

// None reports whether nothing needs a person.
func (a Attention) None() bool {
	return !a.Launch && !a.Source && len(a.Nodes)+len(a.Clusters)+len(a.Components)+len(a.Uploads) == 0
}

// Attention finds in a document what needs a person. A stage that failed is not in it: State says that.
func (d Document) Attention() (a Attention) {
	for _, n := range d.Nodes {
		if n.Next != "" {
			a.Nodes = append(a.Nodes, n.Name)
		}
	}

	for _, c := range d.Clusters {
		if c.Error != "" || slices.ContainsFunc(c.Updates, NodeUpdate.IsStuck) {
			a.Clusters = append(a.Clusters, c.Name)
		}
	}

	for _, c := range d.Components {
		if ComponentNeedsPerson(c.State) {
			a.Components = append(a.Components, c.Name)
		}
	}

	if d.Artifacts != nil {
		for _, c := range d.Artifacts.Conditions {
			if c.State == CheckFailed {
				a.Uploads = append(a.Uploads, c.Name)
			}
		}
	}

	a.Launch = d.Launch.State == LaunchFailed
	a.Source = d.Source != nil && d.Source.State == SourceRefused
	return a
}

// Underway is what of an appliance is on its way, and needs no person for that.
type Underway struct {
	Launch     bool     // nodes are
	Clusters   []string // that are not ready, or whose nodes are being updated
	Components []string // that are not ready, and neither skipped nor suspended
	Source     bool     // it is being read or applied
	Stages     []string // of those that follow Ready
}

// None reports whether nothing is on its way.
func (u Underway) None() bool {
	return !u.Launch && !u.Source && len(u.Clusters)+len(u.Components)+len(u.Stages) == 0
}

// Underway finds in a document what is on its way. A stage that the appliance needs to be Ready is not in it: State
// says that.
func (d Document) Underway() (u Underway) {
	for _, c := range d.Clusters {
		isUpdated := slices.ContainsFunc(c.Updates, NodeUpdate.IsUnderway)
		if c.Error == "" && (c.State != ClusterReady || isUpdated) {
			u.Clusters = append(u.Clusters, c.Name)
		}
	}

	for _, c := range d.Components {
		if ComponentUnderway(c.State) {
			u.Components = append(u.Components, c.Name)
		}
	}

	for _, s := range d.Stages {
		if s.AfterReady && s.State != StateReady {
			u.Stages = append(u.Stages, s.Name)
		}
	}

	u.Launch = d.Launch.State == LaunchRunning
	u.Source = d.Source != nil && d.Source.State == SourceWorking
	return u
}

// Level is how something stands, for its colour.
type Level string

const (
	LevelBad  Level = "bad"  // it needs a person
	LevelBusy Level = "busy" // it is on its way
	LevelGood Level = "good"
)

// Level is how the whole appliance stands: what needs a person comes first. It is for people: whether the appliance is
// ready for work is State, and whether a launch is over is Launch.
func (d Document) Level() Level {
	switch {
	case d.State == StateFailed, !d.Attention().None():
		return LevelBad
	case d.State != StateReady, !d.Underway().None():
		return LevelBusy
	}
	return LevelGood
}
