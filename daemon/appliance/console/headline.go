package console

import (
	"cmp"
	"fmt"
	"strings"

	"firstlight.dev/firstlight/assets/status"
)

// Headline is how the appliance stands in a few words, as Document.Level is in a colour: what needs a person first, then
// what is on its way. It is on the screen, on serial lines, in `firstlightd status` and, once all stages hold, what systemd
// is told.
func Headline(d status.Document) string {
	switch d.State {
	case status.StateReady:
		if text := attention(d); text != "" {
			return "Needs you: " + text
		}
		if text := underway(d); text != "" {
			return "Ready. On its way: " + text
		}
		return "Ready"
	case status.StateDegraded:
		return "Something broke and is being repaired"
	case status.StateFailed:
		return "Stopped: needs you"
	default:
		return "Coming up"
	}
}

// Activity is what the first stage that does not hold does or waits for; "" once all hold. isAfterReady reports whether
// it is one that Ready does not wait for.
func Activity(d status.Document) (text string, isAfterReady bool) {
	for _, s := range d.Stages {
		if s.State != status.StateReady {
			return StageText(s), s.AfterReady
		}
	}
	return "", false
}

// StageText is what a stage that does not hold does or waits for.
func StageText(s status.Stage) string {
	first, _, _ := strings.Cut(cmp.Or(s.Waiting, s.Error, "looking"), "\n")
	return s.TitleOrName() + ": " + first
}

// attention says what needs a person; "" if nothing does.
func attention(d status.Document) string {
	a := d.Attention()
	var all []string
	switch {
	case len(a.Nodes) > 0 && a.Launch:
		all = append(all, fmt.Sprintf("not launched, %s", share(a.Nodes, len(d.Nodes), "node")))
	case len(a.Nodes) > 0:
		all = append(all, share(a.Nodes, len(d.Nodes), "node"))
	case a.Launch:
		all = append(all, fmt.Sprintf("not launched, %d of %d nodes proven", d.Launch.Verified, d.Launch.Nodes))
	}

	if len(a.Clusters) > 0 {
		all = append(all, share(a.Clusters, len(d.Clusters), "cluster"))
	}

	if len(a.Components) > 0 {
		all = append(all, share(a.Components, len(d.Components), "component"))
	}

	if a.Source {
		all = append(all, "revision of the source refused")
	}

	if len(a.Uploads) > 0 {
		all = append(all, "uploads ("+strings.Join(a.Uploads, ", ")+")")
	}

	return strings.Join(all, "; ")
}

// underway says what is on its way; "" if nothing is.
func underway(d status.Document) string {
	u := d.Underway()
	var all []string
	if u.Launch {
		all = append(all, fmt.Sprintf("%d of %d nodes", d.Launch.Nodes-d.Launch.Verified, d.Launch.Nodes))
	}

	if len(u.Clusters) > 0 {
		all = append(all, share(u.Clusters, len(d.Clusters), "cluster"))
	}

	if len(u.Components) > 0 {
		all = append(all, share(u.Components, len(d.Components), "component"))
	}

	if u.Source {
		all = append(all, "revision of the source")
	}

	if len(u.Stages) > 0 {
		all = append(all, fmt.Sprintf("%d of %d stages", len(u.Stages), len(d.Stages)))
	}

	return strings.Join(all, "; ")
}

// share names it if it is one, else how many of how many.
func share(names []string, all int, what string) string {
	if len(names) == 1 {
		return what + " " + names[0]
	}
	return fmt.Sprintf("%d of %d %ss", len(names), all, what)
}
