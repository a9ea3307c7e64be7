package status

// Attention is what of an appliance needs a person. Where it is shown, it comes before anything else.
type Attention struct {
	Nodes      []string // that say what a person can do
	Clusters   []string // that failed or are refused
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
		if c.Error != "" {
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

// Level is how something stands, for its colour.
type Level string

const (
	LevelBad  Level = "bad"  // it needs a person
	LevelBusy Level = "busy" // it is on its way
	LevelGood Level = "good"
)

// Level is how the whole appliance stands: what needs a person comes first.
func (d Document) Level() Level {
	switch {
	case d.State == StateFailed, !d.Attention().None():
		return LevelBad
	case d.State != StateReady, d.Launch.State == LaunchRunning:
		return LevelBusy
	}
	return LevelGood
}
