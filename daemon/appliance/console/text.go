package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/assets/status"
)

// stateMark stands before a stage; plain ASCII, for a serial line and a text-mode font.
func stateMark(s status.State) string {
	switch s {
	case status.StateReady:
		return " ok "
	case status.StateWorking:
		return " .. "
	case status.StateDegraded:
		return " !! "
	case status.StateFailed:
		return "STOP"
	default:
		return "    "
	}
}

// RenderText is the whole status for a person at a screen, at the moment now.
func RenderText(d status.Document, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Firstlight %s   %s   %s\n\n", d.Version, d.Name, Headline(d))
	for _, a := range d.Addresses {
		writeAddress(&b, a)
	}

	if d.Firewall != nil {
		writeFirewall(&b, d.Firewall)
	}

	if len(d.Addresses) > 0 {
		b.WriteByte('\n')
	}

	for _, s := range d.Stages {
		writeStage(&b, s, now)
	}

	writeLaunch(&b, d.Launch)
	for _, n := range sortByNeed(d.Nodes) {
		writeNode(&b, n, now)
	}

	for _, c := range d.Clusters {
		writeCluster(&b, c)
	}

	for _, c := range d.Components {
		fmt.Fprintf(&b, "%s\n", ComponentText(c))
	}

	if d.Artifacts != nil {
		writeArtifacts(&b, d.Artifacts)
	}

	if c := d.AwayCopy; c != nil && !c.Made.IsZero() {
		fmt.Fprintf(&b, "away copy     %s to %s\n", c.Made.UTC().Format("2006-01-02 15:04 UTC"), c.To)
	}

	if d.Source != nil {
		fmt.Fprintf(&b, "%s\n", SourceText(d.Source))
	}

	if len(d.Notes) > 0 {
		b.WriteByte('\n')
	}

	for _, n := range d.Notes {
		fmt.Fprintf(&b, "Note: %s\n", n)
	}

	if d.Next != "" {
		fmt.Fprintf(&b, "\n%s\n", d.Next)
	}

	return b.String()
}

// sortByNeed has the nodes that need a person before the others, each in the site's order.
func sortByNeed(nodes []status.Node) []status.Node {
	rank := map[bool]int{true: 0, false: 1}
	sorted := slices.Clone(nodes)
	slices.SortStableFunc(sorted, func(x, y status.Node) int { return rank[x.Next != ""] - rank[y.Next != ""] })
	return sorted
}

func writeAddress(b *strings.Builder, a status.Address) {
	addresses := strings.Join(a.Addresses, " ")
	if addresses == "" {
		addresses = "no address yet"
	}

	var nics []string
	for _, n := range a.NICs {
		link := "link"
		if !n.Link {
			link = "no link"
		}
		nics = append(nics, fmt.Sprintf("%s %s, %s", n.Name, n.MAC, link))
	}

	if len(nics) == 0 {
		nics = []string{"no NIC"}
	}

	fmt.Fprintf(b, "%-13s %-18s (%s)%s\n", a.Role, addresses, strings.Join(nics, "; "), prefixIfSet(" DHCP ", a.DHCP))
}

// writeFirewall names the packet filter where a person looks at the networks.
func writeFirewall(b *strings.Builder, f *status.Firewall) {
	state := "table " + f.Table
	if !f.Loaded {
		state += ", not loaded"
	}

	if len(f.Allowed) > 0 {
		state += "; the site also allows " + strings.Join(f.Allowed, ", ")
	}

	fmt.Fprintf(b, "%-13s %s\n", "packet filter", state)
}

func writeStage(b *strings.Builder, s status.Stage, now time.Time) {
	fmt.Fprintf(b, "[%s] %s", stateMark(s.State), s.TitleOrName())
	if s.AfterReady && s.State != status.StateReady {
		b.WriteString(", after Ready")
	}

	indent := "\n         "
	switch s.State {
	case status.StateWaiting:
	case status.StateReady:
		if s.Attempts > 0 {
			fmt.Fprintf(b, ", %s", formatSeconds(s.Seconds))
		}
	default:
		if s.State != status.StateFailed {
			fmt.Fprintf(b, ", for %s", FormatDuration(now.Sub(s.Since)))
		}
		if s.Waiting != "" {
			b.WriteString(indent + oneBlock(s.Waiting, indent))
		}
		if s.Error != "" {
			b.WriteString(indent + oneBlock(s.Error, indent))
		}
	}

	b.WriteByte('\n')
}

// writeLaunch says how the launch stands, once it is known whether there is one.
func writeLaunch(b *strings.Builder, l status.Launch) {
	switch {
	case l.Nodes > 0:
		fmt.Fprintf(b, "launch                 %s\n", launchLine(l))
	case l.State == status.LaunchNothing:
		fmt.Fprintf(b, "launch                 %s\n", oneBlock(l.Text, " "))
	}
}

func writeCluster(b *strings.Builder, c status.Cluster) {
	fmt.Fprintf(
		b, "cluster %-14s %s%s%s\n", c.Name, c.State, prefixIfSet(", nodes ", c.Nodes),
		prefixIfSet(": ", cmp.Or(c.Error, c.Text)),
	)
	for _, m := range c.Members {
		if c.State != "ready" {
			fmt.Fprintf(b, "  %s\n", ClusterNodeText(m))
		}
	}
	for _, text := range c.Warnings {
		fmt.Fprintf(b, "  %s\n", oneBlock(text, " "))
	}
}

// ComponentText says how a component stands; of one that clusters have, that alone.
func ComponentText(c status.Component) string {
	text := c.Text
	if c.State == "ready" {
		text = ""
	}
	return fmt.Sprintf(
		"component %-12s %s%s%s", c.Name, c.State, prefixIfSet(", clusters ", c.Clusters),
		prefixIfSet(": ", oneBlock(text, " ")),
	)
}

// ClusterNodeText says which server a node of a cluster is, and how it stands.
func ClusterNodeText(m status.ClusterNode) string {
	_, host, _ := strings.Cut(m.Host, "/")
	return fmt.Sprintf(
		"%-20s %s%s%s%s", m.Name, m.State, prefixIfSet(", host ", host), prefixIfSet(", ", m.Address),
		prefixIfSet(": ", oneBlock(m.Reason, " ")),
	)
}

// launchLine is the launch with the time it took, or has left.
func launchLine(l status.Launch) string {
	return fmt.Sprintf(
		"%s; %s of %s", oneBlock(l.Text, " "), FormatDuration(time.Duration(l.Elapsed*float64(time.Second))),
		FormatDuration(time.Duration(l.Limit*float64(time.Second))),
	)
}

// writeNode says what a node does, for how long, and below it what a person can do.
func writeNode(b *strings.Builder, n status.Node, now time.Time) {
	fmt.Fprintf(b, "node %-17s %s", n.Name, nodeText(n))
	if !n.Since.IsZero() && !n.Verified {
		fmt.Fprintf(b, ", for %s", FormatDuration(now.Sub(n.Since)))
	}

	b.WriteByte('\n')
	if n.Next != "" {
		fmt.Fprintf(b, "%23s-> %s\n", "", oneBlock(n.Next, " "))
	}
}

func nodeText(n status.Node) string {
	if n.Why != "" {
		return oneBlock(n.Why, " ")
	}
	return n.State + prefixIfSet(": ", n.Error)
}

// writeArtifacts says where uploads go and what there is of them, and what does not hold.
func writeArtifacts(b *strings.Builder, a *status.Artifacts) {
	var held []string
	for _, c := range a.Collections {
		if c.Artifacts > 0 {
			held = append(held, fmt.Sprintf("%d of %d %s complete", c.Complete, c.Artifacts, c.Name))
		}
	}

	if len(held) == 0 {
		held = []string{"none yet"}
	}

	fmt.Fprintf(
		b, "artifacts              %s: %s, %d MiB; %d MiB free\n", a.URL, strings.Join(held, ", "), a.Stored>>20,
		a.Free>>20,
	)
	for _, c := range a.Conditions {
		if c.State != status.CheckOK {
			fmt.Fprintf(b, "%23s%s: %s%s\n", "", c.Name, oneBlock(c.Text, " "), prefixIfSet(" -> ", c.Fix))
		}
	}
}

// RenderChanges is what a serial console is told when the status goes from before to after: one
// line per stage that moved, nothing when nothing did.
func RenderChanges(before, after status.Document) string {
	var b strings.Builder
	old := map[string]status.Stage{}
	for _, s := range before.Stages {
		old[s.Name] = s
	}

	if before.Version == "" || before.Name != after.Name {
		fmt.Fprintf(&b, "firstlight %s: %s, boot %s\n", after.Version, after.Name, after.BootID)
	}

	for _, s := range after.Stages {
		o := old[s.Name]
		switch {
		case s.State == status.StateWaiting:
		case s.State == status.StateReady:
			if o.State == status.StateReady && o.Attempts == s.Attempts {
				continue
			}
			fmt.Fprintf(&b, "firstlight: %s: ok, %s\n", s.Name, formatSeconds(s.Seconds))
		case s.Error != "" && (s.Error != o.Error || s.State != o.State):
			fmt.Fprintf(&b, "firstlight: %s: %s\n", s.Name, oneBlock(s.Error, "\nfirstlight: "+s.Name+": "))
		case s.Waiting != "" && s.Waiting != o.Waiting:
			fmt.Fprintf(&b, "firstlight: %s: %s\n", s.Name, oneBlock(s.Waiting, "\nfirstlight: "+s.Name+": "))
		}
	}

	for _, a := range after.Addresses {
		if line := addressLine(a); !containsLine(before.Addresses, line) {
			fmt.Fprintf(&b, "firstlight: %s\n", line)
		}
	}

	for _, n := range after.Notes {
		if !slices.Contains(before.Notes, n) {
			fmt.Fprintf(&b, "firstlight: note: %s\n", n)
		}
	}

	nodeChanges(&b, before.Nodes, after.Nodes)
	clusterChanges(&b, before.Clusters, after.Clusters)
	if (after.Launch.Nodes > 0 || after.Launch.State == status.LaunchNothing) && (before.Launch.State != after.Launch.State || before.Launch.Text != after.Launch.Text) {
		fmt.Fprintf(&b, "firstlight: launch: %s\n", oneBlock(after.Launch.Text, " "))
	}

	// What is on its way has lines of its own.
	if before.State != after.State || before.Level() != after.Level() || attention(before) != attention(after) {
		fmt.Fprintf(&b, "firstlight: %s. %s\n", Headline(after), after.Next)
	}

	return b.String()
}

// clusterChanges tells of clusters whose state or error is another one.
func clusterChanges(b *strings.Builder, before, after []status.Cluster) {
	for _, c := range after {
		i := slices.IndexFunc(before, func(o status.Cluster) bool { return o.Name == c.Name })
		if i < 0 || before[i].State != c.State || before[i].Error != c.Error {
			fmt.Fprintf(
				b, "firstlight: cluster %s: %s%s\n", c.Name, c.State,
				prefixIfSet(": ", oneBlock(cmp.Or(c.Error, c.Text), " ")),
			)
		}
	}
}

// nodeChanges tells of nodes whose situation or error is another one. What a sentence says
// of progress (42 %) passes by too often for a serial line.
func nodeChanges(b *strings.Builder, before, after []status.Node) {
	old := map[string]status.Node{}
	for _, n := range before {
		old[n.Name] = n
	}
	for _, n := range after {
		o, known := old[n.Name]
		if known && o.Rule == n.Rule && o.State == n.State && o.Error == n.Error && o.Next == n.Next {
			continue
		}

		fmt.Fprintf(b, "firstlight: node %s: %s\n", n.Name, nodeText(n))
		if n.Next != "" {
			fmt.Fprintf(b, "firstlight: node %s: -> %s\n", n.Name, oneBlock(n.Next, " "))
		}
	}
}

func addressLine(a status.Address) string {
	var b strings.Builder
	writeAddress(&b, a)
	return excerpt.Line(b.String())
}

func containsLine(as []status.Address, line string) bool {
	return slices.ContainsFunc(as, func(a status.Address) bool { return addressLine(a) == line })
}

// oneBlock keeps the lines of a text that has several (all mistakes of a site) under each
// other, and takes out what could move the cursor.
func oneBlock(s, separator string) string {
	clean := strings.Map(func(r rune) rune {
		if r != '\n' && (r < ' ' || r >= 0x7f && r < 0xa0) {
			return '?'
		}
		return r
	}, commandline.StripEscapes(strings.TrimRight(s, "\n")))
	return strings.ReplaceAll(clean, "\n", separator)
}

func prefixIfSet(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + oneBlock(s, " ")
}

func formatSeconds(s float64) string { return fmt.Sprintf("%.1f s", s) }

// FormatDuration is a length of time as people say it.
func FormatDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s" // the clock was set back meanwhile
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	default:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
}
