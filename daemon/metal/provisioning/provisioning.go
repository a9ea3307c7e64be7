// Package provisioning installs the nodes of the site: it puts Ironic, Metal3 and their verification together.
package provisioning

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/guest"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/daemon/metal/agentgate"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
	"firstlight.dev/firstlight/daemon/metal/ironic"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/netboot"
	"firstlight.dev/firstlight/daemon/metal/standinbmc"
	"firstlight.dev/firstlight/daemon/metal/unknown"
	"firstlight.dev/firstlight/daemon/metal/verify"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
)

// Records of hosts, and next to them what is known of their BMCs' certificates.
const (
	backupDir      = stick.DataDir + "/hosts"
	certificateDir = backupDir + "/bmc"
)

// UploadsFunc returns the OS images that were uploaded, by name and never nil, and the texts of all signatures that were.
type UploadsFunc func() (images map[string]metal3.Image, signatures []string, err error)

// Kubernetes is the cluster that the appliance's controllers are on.
type Kubernetes interface {
	REST() (*rest.Config, error)
	// User is who the appliance is for its API server.
	User() string
	// StartBeside has something started as soon as the cluster takes pods, before its own are ready.
	StartBeside(func(ctx context.Context, report bringup.Report))
}

// Deps is what a Provisioner works with.
type Deps struct {
	Log   *slog.Logger
	Site  func() *site.Site // with its defaults
	Vault *vault.Vault
	Kube  Kubernetes
	Boot  *netboot.Server

	// Placement is where pods run on a Kubernetes that is not the appliance's own; nil on its own.
	Placement *guest.Placement

	Kinds         func(*runtime.Scheme) error                // adds the kinds that Client knows besides Metal3's
	Uploads       UploadsFunc                                // what was uploaded
	PreflightGate func(node string) (ok bool, reason string) // asked before a node is first switched on
	HeldRunning   func(node site.Name) bool                  // it is not switched on because it may be in service
	FoundMAC      func(node string) string                   // MAC that a BMC names, of a node without any; "": none
	// DescribeUnknown adds what the site's policy says of unknown machines; nil: nothing.
	DescribeUnknown func([]status.UnknownMachine) []status.UnknownMachine
	// Login asks a BMC once; one that has refused the password is not asked again.
	Login func(ctx context.Context, node string, b site.BMC) bmc.Answer
	// ClusterLogin is the Secret with the default user of the images of a cluster's nodes, if a host is one of them.
	ClusterLogin func(ctx context.Context, h *metal3api.BareMetalHost) (namespace, secret string, err error)
}

// Provisioner takes the nodes of the site from their BMC to a system in service.
type Provisioner struct {
	Deps
	Hosts   *metal3.Hosts      // the picture of them, and what each boots
	Gate    *agentgate.Gate    // what their agents call
	Discs   *Discs             // what those that boot from one find on it
	StandIn *standinbmc.Server // for nodes without a BMC
	Pins    *bmctrust.Pins     // the certificates of their BMCs

	Forwarder *bmctrust.Forwarder // by which Ironic speaks to them
	Unknown   *unknown.Machines   // what machines said of themselves that no one names

	permits  *permits      // what may be written to hosts
	changed  chan struct{} // a host did, or what is known of one
	found    *metal3.Inspections
	api      *ironic.Client
	erasures *metal3.Ledger[metal3.Erasure]
	powers   powerChecks // of hosts whose disks are erased

	replacements *metal3.Ledger[metal3.Replacement]
	began        time.Time  // the daemon did
	asking       sync.Mutex // held while it is decided whether a node may be erased or replaced, and that is written down

	mu           sync.Mutex
	agentClient  *http.Client // by which Gate asks Ironic
	agentRoot    string       // that it trusts, PEM
	kubeClient   client.Client
	kubeConfig   *rest.Config    // that kubeClient was made from
	manifest     metal3.Manifest // of the operator
	progress     []metal3.Progress
	invalidNodes map[string]error // nodes that cannot become objects
	discovered   map[site.Name]site.MAC
	appliedNodes []site.Node     // hosts that someone applied, as a site would describe them
	fromSite     map[string]bool // hosts that a site once named
	nodesKnown   bool            // these two are of the API, not of backups
	savedAt      time.Time       // they were read from backups
	secrets      map[string]readSecret
	hostSecrets  metal3.SecretBackups
}

// New returns a Provisioner that has done nothing yet.
func New(d Deps) *Provisioner {
	p := &Provisioner{Deps: d, changed: make(chan struct{}, 1), began: time.Now()}
	p.Hosts = &metal3.Hosts{Files: netboot.HTTPRoot, Backups: metal3.Backups{Dir: backupDir, Log: d.Log}, Log: d.Log}
	p.hostSecrets = metal3.SecretBackups{Dir: vault.SecretDir + "/hosts"}
	p.StandIn = &standinbmc.Server{Dir: vault.SecretDir + "/standinbmc", Log: d.Log, Waiting: p.standInWaiting}
	p.Pins = &bmctrust.Pins{Dir: certificateDir, CA: func() site.Certificates { return p.Site().BMC.CA }, Log: d.Log}
	p.Forwarder, p.Unknown = p.newForwarder(), p.newUnknown()
	p.Hosts.WithoutBMC = p.nodeWithoutBMC
	p.Hosts.BootsSecurely = p.bootsSecurely
	p.Hosts.Torn = p.isTorn
	p.api = &ironic.Client{Access: p.ironicAccess}
	p.Gate, p.permits = p.newGate(), &permits{path: permitFile}
	p.Discs = p.newDiscs()
	p.erasures = &metal3.Ledger[metal3.Erasure]{Dir: erasureDir}
	p.replacements = &metal3.Ledger[metal3.Replacement]{Dir: replacementDir}
	p.found = &metal3.Inspections{Ask: p.api.Inspection}
	return p
}

// Stages are the part of the plan from Metal3 to the nodes' hosts.
func (p *Provisioner) Stages() []bringup.Stage {
	return []bringup.Stage{
		metal3.OperatorStage(p.operator, p.Client),
		metal3.GuardStage(p.guard, p.Client),
		p.ironicStage(),
		verify.Stage(p.AllNodes, p.Client),
		metal3.RegistrationStage(p.nodeObjects, p.reconciler),
	}
}

// Recheck has the next step of every node looked at again, soon.
func (p *Provisioner) Recheck() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// LabelDevices makes hosts say what their inspections found of their devices (assets/label).
func (p *Provisioner) LabelDevices(ctx context.Context, api client.Client, hosts []metal3api.BareMetalHost) error {
	return p.found.LabelDevices(ctx, api, hosts)
}

// Client speaks to the API and knows Metal3's kinds, and those of Kinds.
func (p *Provisioner) Client() (client.Client, error) {
	config, err := p.Kube.REST()
	if err != nil {
		return nil, err
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kubeClient != nil && p.kubeConfig == config {
		return p.kubeClient, nil
	}

	scheme, err := metal3.Scheme()
	if err != nil {
		return nil, err
	}
	if err := p.Kinds(scheme); err != nil {
		return nil, err
	}

	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}

	if p.Placement != nil {
		c = apply.Guest{Client: c, Placement: *p.Placement}
	}

	p.kubeClient, p.kubeConfig = c, config
	return c, nil
}

// Watch keeps the picture of the hosts as the API has it, once there are such kinds.
func (p *Provisioner) Watch(ctx context.Context, up func() bool) error {
	if !rerun.Await(ctx, up) {
		return nil
	}

	config, err := p.Kube.REST()
	if err != nil {
		return err
	}
	if err := p.Hosts.Watch(ctx, config, p.changed); err != nil {
		return fmt.Errorf("watch hosts: %w", err)
	}

	return nil
}

// Reconcile takes every node from step to step.
func (p *Provisioner) Reconcile(ctx context.Context, up func() bool) error {
	if !rerun.Await(ctx, up) {
		return nil
	}

	s, err := p.reconciler()
	if err != nil {
		return err
	}

	return s.Run(ctx, p.changed, p.nodeObjects, p.setProgress)
}

// Ramdisk is what a machine that nobody named boots, to be looked at.
func (p *Provisioner) Ramdisk() metal3.Ramdisk {
	return metal3.Ramdisk{
		Kernel: "ramdisk/kernel",
		Initrd: []string{"ramdisk/initramfs"},
		Args:   append(p.ironic().InspectionArgs(), strings.Fields(ramdiskArgs(p.Site()))...),
	}
}

// setProgress keeps how the hand-over stands, for the status, after each round.
func (p *Provisioner) setProgress(all []metal3.Progress) {
	p.forgetPermits()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress = all
}
