// Package kube is the appliance's own Kubernetes: one node, made by kubeadm from what the image
// carries, without a network. Its stages follow one another in the plan:
//
//	container-runtime   containerd runs with our configuration
//	images-present      containerd has every image that the appliance runs
//	control-plane       certificates, static pods and the kubelet are as wanted; the API answers
//	node-ready          pods can be given addresses, the node says Ready
//	system-pods         kube-proxy and CoreDNS run
//
// What is written is decided by pure functions of Config and World (render.go, certificates.go,
// objects.go); every Done compares the world with them, so that a changed site, a new image and a
// power cut are all the same thing: a difference.
package kube

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// NodeName is the node's name for ever: a site may change the host's name, and a node renamed is a
// node lost with all its pods.
const NodeName = "appliance"

// AdminConfig is where kubectl on the appliance finds the cluster.
const AdminConfig = "/etc/kubernetes/admin.conf"

// AdminUser is who it is for: root on the appliance. People from afar have names of their own.
const AdminUser = "kubernetes-admin"

// DaemonUser is the daemon in the API: what it alone says of objects is known by that. No person has the name, theirs
// have an @ (CheckPersonName).
const DaemonUser = PersonPrefix + "daemon"

// Config is what a site may decide.
type Config struct {
	Address     netip.Addr   // where the API server listens: an address of this box that needs no link
	PodCIDR     netip.Prefix // pods' addresses
	ServiceCIDR netip.Prefix // Services' addresses; the tenth is the name server
	Nameservers []netip.Addr // asked for names that are not the cluster's; none: such names do not exist
	Images      string       // OCI layout with all images
	OIDC        *site.OIDC   // whose people the API server answers, with its defaults; nil: nobody's
}

// Defaults is the cluster of an appliance whose site says nothing.
func Defaults() Config {
	return Config{
		Address:     netip.MustParseAddr("172.22.0.1"),
		PodCIDR:     netip.MustParsePrefix("10.244.0.0/16"),
		ServiceCIDR: netip.MustParsePrefix("10.96.0.0/16"),
		Images:      "/usr/share/firstlight/images",
	}
}

// Command runs a program and returns what it printed; stdin may be nil. Its error holds the command
// and the end of what it said.
type Command func(ctx context.Context, stdin io.Reader, name string, args ...string) (string, error)

// Cluster makes the stages. New makes that of the real box; tests give the rest.
type Cluster struct {
	Root       string            // where the file system begins: "" on the box
	Run        Command           // runs systemctl, kubeadm
	Now        func() time.Time  // the clock that certificates are judged by
	HostTraits func() HostTraits // what kind of box this is

	// beside starts what takes as long as the system's pods and does not need them, once those are asked
	// for; nil: nothing. What goes wrong is told at its own stage.
	beside func(ctx context.Context, report bringup.Report)

	memory apply.Cache // of the system's objects
	seen   time.Time   // when etcd and the API server ran last, or were looked for first (KeepRestartable)

	mu      sync.Mutex
	desired Config
	api     *apiClient
}

// New returns the appliance's cluster as it is on the box.
func New(c Config) *Cluster {
	return &Cluster{desired: c, Run: runCommand, Now: time.Now, HostTraits: sync.OnceValue(detectTraits)}
}

// Configure gives the cluster what another site decided; the stages find the difference. Clients are asked
// for beside the plan, at any time.
func (c *Cluster) Configure(wanted Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.desired = wanted
}

func (c *Cluster) config() Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.desired
}

// Stages are the cluster's part of the plan, in order.
func (c *Cluster) Stages() []bringup.Stage {
	return []bringup.Stage{
		{
			Name:  "container-runtime",
			Title: "The container runtime starts",
			Fact:  "containerd runs with the appliance's configuration",
			Why:   "The kubelet does not start without it, and images are given to it.",
			Done:  c.runtimeDone,
			Do:    c.runtimeDo,
		},
		{
			Name:    "images-present",
			Title:   "Container images are put in place",
			Fact:    "containerd has every container image that the appliance runs, as the stick has it",
			Why:     "Nothing is ever pulled: an image that is not there now will not come. Before anything is made from one, so that none is replaced below a container.",
			Done:    c.imagesDone,
			Do:      c.imagesDo,
			Recheck: time.Minute,
		},
		{
			Name:    "control-plane",
			Title:   "Kubernetes starts",
			Fact:    "certificates are valid, the kubelet runs the control plane, its API answers",
			Why:     "After the links, because the API server listens on the provisioning bridge's address.",
			Done:    c.controlPlaneDone,
			Do:      c.controlPlaneDo,
			Recheck: 30 * time.Second,
		},
		{
			Name:    "node-ready",
			Title:   "The appliance's node becomes ready",
			Fact:    "pods can be given addresses and the node says Ready",
			Why:     "The pods' network follows from the node object, which the control plane makes.",
			Done:    c.nodeDone,
			Do:      c.nodeDo,
			Recheck: 30 * time.Second,
		},
		{
			Name:    "system-pods",
			Title:   "Kubernetes' network and names start",
			Fact:    "kube-proxy and CoreDNS are Running and ready, and no pod of the control plane has failed",
			Why:     "Services and names are what every later pod relies on.",
			Done:    c.podsDone,
			Do:      c.podsDo,
			Recheck: 30 * time.Second,
		},
	}
}

// REST is how the cluster's API is reached with the administrator's rights. It is another
// one after the administrator's certificate was made anew or the site's address edited.
func (c *Cluster) REST() (*rest.Config, error) {
	api, err := c.connect()
	if err != nil {
		return nil, err
	}
	return api.config, nil
}

// User is who the appliance is for the API server.
func (c *Cluster) User() string { return DaemonUser }

// StartBeside has something started together with the system's pods. It is called before the stages run.
func (c *Cluster) StartBeside(start func(ctx context.Context, report bringup.Report)) {
	c.beside = start
}

func (c *Cluster) path(p string) string { return c.Root + p }

func runCommand(ctx context.Context, stdin io.Reader, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &out
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("run %s %s: %w: %s", name, strings.Join(args, " "), err, excerpt.End(excerpt.Line(out.String()), 400))
	}

	return out.String(), nil
}
