package page

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/stickupdate"
	"firstlight.dev/firstlight/daemon/clusters/workload"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// Deeds are what actions do. The command line does the same by the same functions.
type Deeds struct {
	API        func() (*rest.Config, error) // of an administrator, who asks on behalf of people
	Approve    func(nodes []string) (approved []string, err error)
	Adopt      func(nodes []string) (adopted []string, err error)
	TrustBMC   func(node, fingerprint string) (before, now string, err error)
	Reload     func() error
	Kubeconfig func(ctx context.Context, c status.Cluster) ([]byte, error)
	Bundle     func(ctx context.Context, w io.Writer) error

	EndMaintenance func(ctx context.Context, node string) error // Ironic works with the node again

	// Erase has disks of a node erased, and Replace its server replaced by the one that the site names, if word is that of
	// what would be done; if it is "", the answer says what would be, with the word. Their errors are for people;
	// provisioning.ErrNotAsRead is among them.
	Erase   func(ctx context.Context, node string, disks []string, word string) (status.Erase, error)
	Replace func(node, word string) (status.Replace, error)

	// ReadSite is the document on the stick, with its secrets; nil if there is none. ReplaceSite has another one, of which
	// base is not the digest any more, left alone, and what it wrote read and in the history. PreviewSite is why nodes
	// would not be changed if a site with its defaults were applied, by their names. sitedocument.ErrNotRead is of one
	// that was written and could not be read.
	ReadSite    func() ([]byte, error)
	ReplaceSite func(text []byte, base, by string) error
	PreviewSite func(context.Context, *site.Site) (map[string]metal3.Block, error)

	// WatchConsole watches the serial console of a node, and opens it if it is not; TypeAtConsole types there. Their errors
	// are a *ConsoleEnd, or for people.
	WatchConsole  func(ctx context.Context, node string) (Console, error)
	TypeAtConsole func(node string, text []byte) error

	// ReadTenant, PutTenant and RemoveTenant read, create or change, and delete a Tenant of a cluster for a person, whose
	// rights there that cluster decides about. With dryRun nothing is changed. Their errors are for people.
	ReadTenant func(
		ctx context.Context, c status.Cluster, as rest.ImpersonationConfig, name string,
	) (workload.TenantSpec, error)
	PutTenant func(
		ctx context.Context, c status.Cluster, as rest.ImpersonationConfig, t workload.TenantSpec, dryRun bool,
	) error
	RemoveTenant func(ctx context.Context, c status.Cluster, as rest.ImpersonationConfig, t workload.TenantID) error

	// PreviewUpdate says what an uploaded image of that name would be written over, BeginUpdate begins that, and Restart
	// starts this machine again. Their errors are for people.
	PreviewUpdate func(image string) (stickupdate.Attempt, error)
	BeginUpdate   func(image string) error
	Restart       func(ctx context.Context) error

	// Rotate begins to replace a secret of vault.Rotations, and says what happens from then on; names are what it is of, all
	// if there are none. Both the text and the error are for people.
	Rotate func(secret string, names []string) (string, error)

	// Uploads is where the upload API is, and how the page reaches it as access.PageClient.
	Uploads func() (base *url.URL, transport http.RoundTripper, err error)
}

// subject is what actions are done to.
type subject struct {
	resource string // as RBAC names it
	pattern  string // of addresses
	shown    string // where its result is shown; %s is its name
}

var (
	onNode      = subject{"nodes", "/nodes/{name}", "/nodes/%s"}
	onCluster   = subject{"clusters", "/clusters/{name}", "/clusters/%s"}
	onAppliance = subject{"appliance", "/appliance", "/appliance"}
	onDraft     = subject{"site", "/site/drafts/{name}", "/site"}
	onMachine   = subject{"nodes", "/discovered/{name}", "/discovered"} // that is no node yet
	onDiscovery = subject{"discovery", "/discovered", "/discovered"}
)

func subjects() []subject {
	return []subject{onNode, onCluster, onAppliance, onDraft, onMachine, onDiscovery, onTenant, onUpdates, onNodeUpdate, onSecrets}
}

// action is something that people do by the page.
type action struct {
	name    string // in its address, and the verb of RBAC
	on      subject
	needs   Role
	title   string // of its link and button
	effect  string // what becomes of it, for whoever confirms it
	isFinal bool   // it cannot be undone: the name of what it is done to is typed

	read func(s *Server, r *http.Request) // has in the picture what offered looks at; nil: it is there
	// offered reports whether it makes sense now, and what more it is about, such as a fingerprint: that and nothing
	// else is confirmed.
	offered func(p *picture, name string) (about string, ok bool)
	do      func(ctx context.Context, s *Server, o order) (result, error)

	details func(p *picture, name string) []string // what becomes of it besides effect, a line each; nil: nothing
	typed   func(p *picture, name string) string   // what is typed where that is not final for all; nil: nothing
	choice  *choice                                // what is chosen before it is confirmed; nil: nothing is
}

// typedFor is what whoever confirms an action must type; "": nothing.
func (a action) typedFor(p *picture, name string) string {
	switch {
	case a.isFinal:
		return name
	case a.typed != nil:
		return a.typed(p, name)
	}
	return ""
}

// order is what a person has confirmed.
type order struct {
	by    Person
	name  string // of what it is done to; "" for the appliance
	about string // of the question
	asked string // all of the question's text

	chosen []string // values of the action's choice
}

// result is what became of an action.
type result struct {
	text  string // one sentence
	level level  // of the text; "": good

	// A file that the browser saves, instead of a text.
	file  string
	write func(w io.Writer) error
}

// actions are all that people can do by the page. An operator does what can be undone. What loses data, or tells a
// secret to someone, needs an owner.
func actions() []action {
	return slices.Concat(approvals(), []action{
		{
			name: "adopt", on: onNode, needs: Operator, title: "Take it into service as it is",
			effect:  "It counts as installed. Neither its BMC nor its disks are written to.",
			offered: mayBeInService,
			do: func(_ context.Context, s *Server, o order) (result, error) {
				_, err := s.deeds.Adopt([]string{o.name})
				return result{text: o.name + " is in service as it is."}, err
			},
		},
		{
			name: "power-on", on: onNode, needs: Operator, title: "Switch on",
			effect:  "Its BMC switches it on.",
			offered: isOff,
			do:      hostRequest("is switched on.", func(order) metal3.Patch { return metal3.PowerPatch(true) }),
		},
		{
			name: "power-off", on: onNode, needs: Operator, title: "Switch off",
			effect: "Its system is asked to shut down, then its BMC switches it off. " +
				"What runs on it ends, and it stays off until someone switches it on.",
			offered: isOn,
			do:      hostRequest("is switched off.", func(order) metal3.Patch { return metal3.PowerPatch(false) }),
		},
		{
			name: "reboot", on: onNode, needs: Operator, title: "Restart",
			effect:  "Its system is asked to shut down, then its BMC switches it off and on again. What runs on it ends.",
			offered: isOn,
			do:      hostRequest("is restarted.", func(order) metal3.Patch { return metal3.RebootPatch() }),
		},
		{
			name: "inspect", on: onNode, needs: Operator, title: "Inspect again",
			effect:  "It boots the ramdisk, which examines its hardware and disks again. Nothing is written to its disks.",
			offered: canInspect,
			do:      hostRequest("is inspected again.", func(order) metal3.Patch { return metal3.InspectPatch() }),
		},
		{
			name: "resume", on: onNode, needs: Operator, title: "Resume",
			effect:  "Somebody paused it. Metal3 continues with it as its BareMetalHost says.",
			offered: isPaused,
			do:      hostRequest("is resumed.", func(order) metal3.Patch { return metal3.ResumePatch() }),
		},
		{
			name: "end-maintenance", on: onNode, needs: Operator, title: "End its maintenance",
			effect:  "Somebody took it out of Ironic's hands. Ironic works with it again.",
			offered: isInMaintenance,
			do: func(ctx context.Context, s *Server, o order) (result, error) {
				return result{text: o.name + " is not in maintenance any more."}, s.deeds.EndMaintenance(ctx, o.name)
			},
		},
		{
			name: "overwrite", on: onNode, needs: Owner, title: "Install over its data",
			effect: "Its image is written over what is on its disk. All data with this fingerprint is lost, and " +
				"nothing brings it back. Data that inspection has not seen stays protected.",
			isFinal: true,
			offered: hasData,
			do:      hostRequest("is installed over its data.", func(o order) metal3.Patch { return metal3.ConsentPatch(o.about) }),
		},
		{
			name: "trust", on: onNode, needs: Owner, title: "Trust its BMC's new certificate",
			effect: "Whoever has this certificate gets the BMC's password from now on. Compare the fingerprint with " +
				"what the BMC's own web page or console shows.",
			isFinal: true,
			offered: hasNewCertificate,
			do: func(_ context.Context, s *Server, o order) (result, error) {
				_, now, err := s.deeds.TrustBMC(o.name, o.about)
				return result{text: "The BMC of " + o.name + " is trusted with sha256 " + now + "."}, err
			},
		},
		newEraseAction(),
		newReplaceServerAction(),
		{
			name: "kubeconfig", on: onCluster, needs: Owner, title: "Download the kubeconfig",
			effect:  "Whoever has this file is administrator of the cluster. Keep it like a key.",
			offered: isInstalled,
			do: func(ctx context.Context, s *Server, o order) (result, error) {
				return s.newKubeconfig(ctx, o.name)
			},
		},
		{
			name: "reload", on: onAppliance, needs: Operator, title: "Reload the site",
			effect:  "site.yaml is read again, and every stage is checked again. Nodes follow what has changed in it.",
			offered: always,
			do: func(_ context.Context, s *Server, _ order) (result, error) {
				return result{text: "The site was read again."}, s.deeds.Reload()
			},
		},
		{
			name: "bundle", on: onAppliance, needs: Operator, title: "Download the support bundle",
			effect:  "Logs and states of the appliance and its nodes are collected in one archive, without secrets.",
			offered: always,
			do: func(ctx context.Context, s *Server, _ order) (result, error) {
				return s.newBundle(ctx)
			},
		},
		newReplaceAction(),
	}, newTenantActions(), newUpdateActions(), newNodeUpdateActions(), newRotationActions())
}

// hostRequest is a deed that patches the BareMetalHost of a node as the person who confirmed it.
func hostRequest(done string, patch func(order) metal3.Patch) func(context.Context, *Server, order) (result, error) {
	return func(ctx context.Context, s *Server, o order) (result, error) {
		api, err := s.deeds.API()
		if err != nil {
			return result{}, fmt.Errorf("%w: %w", errNoAPI, err)
		}
		return result{text: o.name + " " + done}, patchHost(ctx, api, o.by, o.name, patch(o))
	}
}

// newBundle is the support bundle, if no other one is being collected.
func (s *Server) newBundle(ctx context.Context) (result, error) {
	select {
	case s.bundles <- struct{}{}:
	default:
		return result{}, errors.New("another support bundle is being collected; try again when it is complete")
	}

	name := "firstlight-" + s.logins.now().UTC().Format("20060102T150405Z") + ".tar.gz"
	return result{file: name, write: func(w io.Writer) error {
		defer func() { <-s.bundles }()
		return s.deeds.Bundle(ctx, w)
	}}, nil
}

// path is where an action is confirmed and done.
func (a action) path(name string) string {
	return strings.ReplaceAll(a.on.pattern, "{name}", url.PathEscape(name)) + "/" + a.name
}

// back is the page that shows what became of an action.
func (a action) back(name string) string {
	return strings.ReplaceAll(a.on.shown, "%s", url.PathEscape(name))
}

// describe names an action with what it is done to: "Switch off: node-1".
func (a action) describe(name string) string {
	return strings.TrimSuffix(a.title+": "+name, ": ")
}
