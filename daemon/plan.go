// Package daemon is the appliance's plan and its wiring: the one place where the parts
// below it meet.
package daemon

import (
	"slices"
	"time"

	"firstlight.dev/firstlight/daemon/appliance/joined"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/page"
)

// plan is all that happens between power and serving, in order. docs/bringup.md walks
// through it; a test holds the two together. cluster is that of a guest, nil otherwise.
func (d *Daemon) plan(cluster *joined.Cluster) []bringup.Stage {
	ground := d.groundStages
	if cluster != nil {
		ground = func() []bringup.Stage { return d.guestStages(cluster) }
	}
	return slices.Concat(
		ground(),
		[]bringup.Stage{
			page.Stage(d.metal.Client, d.host.Site), // roles-bound
			d.boot.Stage(),                          // wire-serving
			d.mirror.Stage(),                        // supplies-served
		},
		d.metal.Stages(),                          // metal3-ready, hosts-guarded, ironic-ready, launch-declared, site-handed-over
		d.uploads.stages(),                        // artifacts-ready
		d.cluster.stages(),                        // bpa-ready, clusters-handed-over, cluster-hosts-applied
		[]bringup.Stage{d.mirror.PackagesStage()}, // packages-ready
		// kpa-ready, cluster-api-ready, cluster-class-ready, site-clusters-applied
		holdFollowers(d.cluster.followers(), d.precedesFollowers),
	)
}

// groundStages are those of machine and Kubernetes, which an appliance owns.
func (d *Daemon) groundStages() []bringup.Stage {
	h := d.host
	return slices.Concat([]bringup.Stage{
		{Name: "data-mounted", Title: "Storage is mounted",
			Fact: "State has its place, and what is written there reaches the medium.",
			Why:  "First: every secret and decision below is kept there, and SITE is mounted with it.",
			Done: h.DataDone, Recheck: 5 * time.Minute}, // each look is a write to the stick
		{Name: "site-read", Title: "The site document is read",
			Fact: "What the owner wants is known: the site document, or its absence.",
			Why:  "Before all that it can change. A wrong one stops here, before anything is done by it.",
			Done: h.SiteDone, Do: h.SiteDo},
		{Name: "identity", Title: "Machine-id and host name are set",
			Fact: "The machine-id is the one kept on DATA, the host name is the site's.",
			Why:  "Before a lease is asked for or a certificate minted: both carry the name.",
			Done: h.IdentityDone, Do: h.IdentityDo},
		{Name: "packets-filtered", Title: "The packet filter is loaded",
			Fact: "Packets enter and cross the appliance only as its list of listeners and the site allow.",
			Why:  "Before any network has an address: whatever listens or forwards later is behind it.",
			Done: d.firewall.CheckLoaded, Do: d.firewall.Load},
		{Name: "links-up", Title: "Networks get their addresses",
			Fact: "Every network role has a bridge with its address, and its NIC if there is one.",
			Why:  "Before the clock, which may come over the network, and before whatever listens.",
			Done: h.LinksDone, Do: h.LinksDo},
		{Name: "clock-set", Title: "The clock is set",
			Fact: "The clock is not before the image was made, and the site's time servers were asked.",
			Why:  "Before the first certificate: one minted in the wrong year is refused in the right one.",
			Done: h.ClockDone, Do: h.ClockDo, Recheck: time.Minute},
		{
			Name:    "ssh-ready",
			Title:   "Log-in by SSH is set up",
			Fact:    "Root can log in with the site's SSH keys, and on the second screen if the site says so; nobody else can.",
			Why:     "Before Kubernetes, so that a person can look while it comes up.",
			Done:    h.SSHDone,
			Do:      h.SSHDo,
			Recheck: time.Minute,
		},
	},
		d.kube.Stages(), // container-runtime, images-present, control-plane, node-ready, system-pods
	)
}
