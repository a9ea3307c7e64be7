package installer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/daemon/clusters/contract/inventory"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// shell is how a node is spoken to: remote.Node, or what a test puts in its place.
type shell interface {
	Run(ctx context.Context, stdin io.Reader, name string, args ...string) (string, error)
	RunScript(ctx context.Context, text string, args ...string) (string, error)
	RunSecret(ctx context.Context, name string, args ...string) (string, error)
	LocalAddr() netip.Addr
}

// node is one machine on its way into the cluster.
type node struct {
	inventory.Node
	*cluster
	shell  shell
	log    *slog.Logger
	leftBy string // the cluster that let go of it while it did not answer; usually ""

	mu    sync.Mutex
	known facts // as it was last looked at
}

// stages are a node's way, in order. All nodes go theirs at once; what one has to wait for at another
// is asked in its Done.
func (n *node) stages() []bringup.Stage {
	list := append(n.leftoverStages(), []bringup.Stage{
		{Name: "reached", Title: "The node is reached",
			Fact: "the node answers by SSH and may be made part of this cluster",
			Why:  "First: nothing is changed on a node that another cluster has, or that cannot do what it is meant for.",
			Done: n.reachedDone},
		{Name: "clock-agrees", Title: "The clock is set",
			Fact: "its clock is within half a minute of the appliance's, and something keeps it",
			Why:  "Before any certificate: one of the wrong year is refused in the right one.",
			Done: n.clockDone, Do: n.clockDo, Recheck: time.Minute},
		{
			Name:    "host-prepared",
			Title:   "The system is prepared",
			Fact:    "it trusts the appliance for images and packages, and says which cluster it is part of",
			Why:     "Before packages and images, which it takes from the appliance.",
			Done:    n.hostDone,
			Do:      n.hostDo,
			Recheck: time.Minute,
		},
		{Name: "address-kept", Title: "The address becomes permanent",
			Fact: "its address does not end with the appliance's lease",
			Why:  "Before the cluster, which is to live on when the appliance is switched off.",
			Done: n.leaseDone, Do: n.leaseDo, Recheck: time.Minute},
		{Name: "programs-installed", Title: "Packages of Kubernetes are installed",
			Fact: "the packages of Kubernetes are those of the stick, with what they need",
			Why:  "Before containerd, which is one of them.",
			Done: n.programsDone, Do: n.programsDo, Recheck: time.Minute},
		{Name: "runtime-ready", Title: "The container runtime starts",
			Fact: "containerd runs with our configuration",
			Why:  "Before images, which it keeps.",
			Done: n.runtimeDone, Do: n.runtimeDo, Recheck: time.Minute},
		{Name: "images-present", Title: "Container images are put in place",
			Fact: "the images of its role are in containerd, whole and on the disk",
			Why:  "Before Kubernetes, and so that the appliance may be switched off later.",
			Done: n.imagesDone, Do: n.imagesDo, Recheck: time.Minute},
		{Name: "endpoint-serving", Title: "A way to the API servers is set up",
			Fact: "the API servers are reached at one address on the node itself",
			Why:  "Before kubeadm, which writes that address everywhere.",
			Done: n.endpointDone, Do: n.endpointDo, Recheck: time.Minute},
	}...)
	if n.ControlPlane {
		list = append(list, bringup.Stage{
			Name:    "certificates-kept",
			Title:   "Renewal of certificates is set up",
			Fact:    "the node renews its certificates automatically before they end",
			Why:     "Before there are any: from here on nobody has to remember.",
			Done:    n.certificatesDone,
			Do:      n.certificatesDo,
			Recheck: time.Minute,
		})
	}

	if n == n.firstControlPlane() {
		return append(list, bringup.Stage{
			Name:  "control-plane-made",
			Title: "The control plane is made",
			Fact:  "kubeadm made the control plane, and it answers",
			Why:   "On one node: the others join what is here.",
			Done:  n.initDone,
			Do:    n.initDo,
		})
	}

	return append(list, bringup.Stage{
		Name:  "joined",
		Title: "The node joins the cluster",
		Fact:  "kubeadm joined it to the cluster, under its name and with its own certificate",
		Why:   "After the control plane of the first node; control planes one by one, workers at once.",
		Done:  n.joinDone,
		Do:    n.joinDo,
	})
}

// collectFacts asks the node how it is.
func (n *node) collectFacts(ctx context.Context) (facts, error) {
	out, err := n.shell.RunScript(ctx, factsScript)
	if err != nil {
		return facts{}, err
	}

	f, err := parseFacts(out)
	if err != nil {
		return facts{}, err
	}

	n.mu.Lock()
	n.known = f
	n.mu.Unlock()
	return f, nil
}

// facts are the node's as it was last looked at.
func (n *node) facts() facts {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known
}

func (n *node) reachedDone(ctx context.Context) error {
	f, err := n.collectFacts(ctx)
	if err != nil {
		return permanentIfChanged(err)
	}
	if err := checkFit(f, n.ControlPlane); err != nil {
		return err
	}

	var first *facts
	if n == n.firstControlPlane() {
		first = &f
	}

	r, err := n.loadIdentity(first)
	if err != nil {
		return err
	}

	n.cluster.mu.Lock()
	authority := n.cluster.api.authorityDigest()
	n.cluster.mu.Unlock()
	if err := checkOwner(f, n.marker(r), authority); err != nil {
		return err
	}

	return checkAddress(f, n.Addr, n.ControlPlane)
}

// marker is what the node is to say of itself.
func (n *node) marker(r *clusterIdentity) marker {
	return marker{Cluster: n.Cluster, ID: r.ID, Label: n.Label}
}

const clockTolerance = 30 * time.Second

// clockSkew is how far a clock is off, as a sentence; "" if it is not.
func clockSkew(theirs, ours time.Time) string {
	switch d := theirs.Sub(ours).Round(time.Second); {
	case d > clockTolerance:
		return fmt.Sprintf("its clock is %s ahead of the appliance's", d)
	case d < -clockTolerance:
		return fmt.Sprintf("its clock is %s behind the appliance's", -d)
	}
	return ""
}

// values are what the templates may say of this node; supplied adds the way to the appliance.
func (n *node) values() values {
	v := newValues(n.Settings, n.inv)
	v.Node, v.facts = n.Node, n.facts()
	return v
}

func (n *node) hostFiles(ctx context.Context) ([]file, error) {
	v, supply, err := n.applianceValues(ctx)
	if err != nil {
		return nil, err
	}

	files, err := hostFiles(v, supply)
	if err != nil {
		return nil, bringup.Permanent(err)
	}

	return files, nil
}

func (n *node) hostDone(ctx context.Context) error {
	files, err := n.hostFiles(ctx)
	if err != nil {
		return err
	}
	if err := n.checkFiles(ctx, files); err != nil {
		return err
	}

	f := n.facts()
	switch {
	case f.Marker == nil: // it was taken out of a cluster, which leaves everything else
		return errors.New("it does not say which cluster it is part of")
	case f.SystemAuthority:
		return errors.New("all of its programs trust the appliance's authority")
	}

	weight, err := n.shell.RunScript(
		ctx, `test -z "$1" || systemctl show --property CPUWeight --value system.slice`, systemWeight(f),
	)
	if err != nil {
		return err
	}
	if strings.TrimSpace(weight) != systemWeight(f) {
		return errors.New("its services go before its pods")
	}

	return nil
}

func (n *node) hostDo(ctx context.Context, report bringup.Report) error {
	files, err := n.hostFiles(ctx)
	if err != nil {
		return err
	}

	report("writing its settings")
	if err := n.put(ctx, files); err != nil {
		return err
	}

	r, err := n.loadIdentity(nil)
	if err != nil {
		return err
	}
	// Before anything of Kubernetes: a node that was begun with is this cluster's.
	if err := n.writeMarker(ctx, n.marker(r)); err != nil {
		return err
	}

	if _, err := n.runLocked(ctx, distrust, systemAuthority, systemCertificates); err != nil {
		return fmt.Errorf("take the authority from what the system trusts: %w", err)
	}

	_, err = n.runLocked(
		ctx, `test -z "$1" || systemctl set-property system.slice CPUWeight="$1"`, systemWeight(n.facts()),
	)
	if err != nil {
		return err
	}

	_, err = n.collectFacts(ctx)
	return err
}

// systemWeight is the weight of a node's services, the kubelet's and containerd's among them, against that
// of its pods where all of them want a processor (CPUWeight, systemd.resource-control(5)); "" where it is
// left as it is. The kubelet gives all pods together 39 for each processor and systemd its services 100. On a
// small node an API server that starts beside services that always find something to do gets a quarter
// of a processor, does not meet its own deadlines, and begins anew.
func systemWeight(f facts) string {
	if !f.Systemd || f.CPUs < 1 || f.CPUs > manifest.SmallNode {
		return ""
	}
	return manifest.ServiceWeight
}

func (n *node) runtimeDone(ctx context.Context) error {
	u, err := containerdUnit(n.values())
	if err != nil {
		return bringup.Permanent(err)
	}
	return n.checkRunning(ctx, u)
}

func (n *node) runtimeDo(ctx context.Context, report bringup.Report) error {
	u, err := containerdUnit(n.values())
	if err != nil {
		return bringup.Permanent(err)
	}

	report("starting containerd")
	return n.start(ctx, u)
}

func (n *node) certificatesDone(ctx context.Context) error {
	files, err := certificateFiles(n.values())
	if err != nil {
		return err
	}
	if err := n.checkFiles(ctx, files); err != nil {
		return err
	}
	if _, err := n.shell.Run(ctx, nil, "systemctl", "is-enabled", certificatesTimer); err != nil {
		return answerOf(err, certificatesTimer+" is not enabled")
	}

	return nil
}

func (n *node) certificatesDo(ctx context.Context, _ bringup.Report) error {
	files, err := certificateFiles(n.values())
	if err != nil {
		return err
	}
	if err := n.put(ctx, files); err != nil {
		return err
	}

	_, err = n.runLocked(ctx, `systemctl enable --quiet "$1"; systemctl start "$1"`, certificatesTimer)
	return err
}

func (n *node) endpointDone(ctx context.Context) error {
	u, err := endpointUnit(n.values())
	if err != nil {
		return err
	}
	return n.checkRunning(ctx, u)
}

func (n *node) endpointDo(ctx context.Context, _ bringup.Report) error {
	u, err := endpointUnit(n.values())
	if err != nil {
		return err
	}
	return n.start(ctx, u)
}
