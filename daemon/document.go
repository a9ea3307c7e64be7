package daemon

import (
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/carrier"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/console"
	"firstlight.dev/firstlight/daemon/appliance/devpush"
)

// Document is the appliance's status at this moment.
func (d *Daemon) Document() status.Document {
	s := d.runner.Snapshot()
	doc := status.Document{
		Name:      d.host.Hostname(),
		Version:   d.version,
		BootID:    d.bootID,
		MachineID: d.host.MachineID(),
		State:     s.State,
		Since:     s.Since,
		Started:   d.started,
		Stages:    s.Stages,
		Addresses: d.host.Addresses(),
		Notes:     d.host.Notes(),
		Nodes:     append([]status.Node{}, d.verifier.Nodes()...),
		Launch:    d.verifier.Launch(),
		Clusters:  d.cluster.Clusters(),

		Components: d.cluster.Components(),
		Artifacts:  d.uploads.status(s.Stages),
		Firewall:   d.firewall.Status(),
		AwayCopy:   d.copier.status(d.host.Site().AwayCopy),
		Source:     d.follower.Status(),
	}
	if d.isGuest() {
		doc.Firewall = nil // the node's owner filters its packets
	}
	d.networkDHCP.AddStatus(&doc)
	doc.Pushed = d.listPushed()
	for _, p := range doc.Pushed {
		doc.Notes = append(doc.Notes, p.Text)
	}
	doc.Notes = append(doc.Notes, d.boot.Notes()...)
	doc.Notes = append(doc.Notes, d.metal.UnknownNotes()...)
	if note := d.loginKey.Note(); note != "" {
		doc.Notes = append(doc.Notes, note)
	}
	if note := d.authority.Note(); note != "" {
		doc.Notes = append(doc.Notes, note)
	}
	if note := d.packagesKey.Note(); note != "" {
		doc.Notes = append(doc.Notes, note)
	}
	if note := d.kubeSigners.Note(); note != "" {
		doc.Notes = append(doc.Notes, note)
	}
	if note := d.metal.StandIn.Note(); note != "" {
		doc.Notes = append(doc.Notes, note)
	}
	if note := d.updater.Note(); note != "" {
		doc.Notes = append(doc.Notes, note)
	}
	doc.Notes = append(doc.Notes, d.passwords.Notes()...)
	doc.Notes = append(doc.Notes, d.copier.notes(d.host.Site().AwayCopy)...)
	doc.Notes = append(doc.Notes, sourceNotes(doc.Source)...)
	if doc.State == "" {
		doc.State, doc.Since = status.StateWorking, d.started
	}

	if urls := d.page.URLs(); len(urls) > 0 {
		doc.Page = urls[0]
	}
	doc.Summary, doc.Next = summary(doc), nextAction(doc, carrier.Read(d.host.Root), len(d.host.Site().Access.SSHKeys) > 0)
	return doc
}

// listPushed lists what runs in the place of the version's programs.
func (d *Daemon) listPushed() (all []status.Pushed) {
	pushes, err := devpush.List()
	if err != nil {
		d.log.Warn("what was pushed cannot be read", "error", err)
	}
	for _, p := range pushes {
		all = append(all, status.Pushed{
			Programs: p.Programs,
			Revision: p.Revision,
			Time:     p.Time,
			Text:     p.Describe(),
		})
	}
	return all
}

// summary is what the appliance does or waits for, in one sentence.
func summary(d status.Document) string {
	switch text, isAfterReady := console.Activity(d); {
	case text == "":
		return console.Headline(d)
	case isAfterReady:
		return console.Headline(d) + ". " + text
	default:
		return text
	}
}

// nextAction is what a person can do now.
func nextAction(d status.Document, on carrier.Carrier, hasKeys bool) string {
	switch d.State {
	case status.StateFailed:
		for _, s := range d.Stages {
			if s.State == status.StateFailed && s.Name == "site-read" {
				return "Correct site.yaml " + on.Site + ", then " + on.Restart
			}
		}
		return "Fix what is named above, then " + on.Restart
	case status.StateReady:
		login := ""
		if hasKeys {
			login = loginText(d)
		}

		if text := attentionText(d.Attention()); text != "" {
			return strings.TrimSpace(text + " " + login)
		}
		if login != "" {
			return login
		}

		switch d.Launch.State {
		case status.LaunchRunning:
			return "Nothing to do: the nodes come up by themselves."
		case status.LaunchSucceeded:
			return "All nodes of the site are proven."
		}
		return "Power on the servers on the provisioning network."
	default:
		return "Nothing to do: it comes up automatically."
	}
}

// loginText says where to log in, and where the page is if there is one; "" while there is no address.
func loginText(d status.Document) string {
	for _, a := range slices.Backward(d.Addresses) { // baremetal, the owner's network, is the last
		if len(a.Addresses) > 0 {
			addr, _, _ := strings.Cut(a.Addresses[0], "/")
			text := "Log in: ssh root@" + addr
			if d.Page != "" {
				text += "; page: " + d.Page
			}
			return text
		}
	}
	return ""
}

// attentionText is what to do about what needs a person; "" if nothing does.
func attentionText(a status.Attention) string {
	switch {
	case a.None():
		return ""
	case len(a.Nodes)+len(a.Clusters) == 0 && a.Launch:
		return "See what the nodes wait for: firstlightd why."
	case len(a.Nodes)+len(a.Clusters) == 0 && len(a.Components) > 0:
		return "See what is wrong with the components: firstlightd why."
	case len(a.Nodes)+len(a.Clusters) == 0 && len(a.Uploads) == 0:
		return "See what is wrong with the newest revision of the source: firstlightd why."
	case len(a.Nodes)+len(a.Clusters) == 0:
		return "Do what is written next to the artifacts."
	case len(a.Nodes) == 0:
		return "Do what is written next to the clusters; firstlightd why CLUSTER says more."
	}
	return "Do what is written next to the nodes; firstlightd why NODE says more."
}
