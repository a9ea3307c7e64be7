package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/guest"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/api"
	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/appliance/console"
	"firstlight.dev/firstlight/daemon/appliance/firewall"
	"firstlight.dev/firstlight/daemon/appliance/host"
	"firstlight.dev/firstlight/daemon/appliance/joined"
	"firstlight.dev/firstlight/daemon/appliance/kube"
	"firstlight.dev/firstlight/daemon/appliance/metrics"
	"firstlight.dev/firstlight/daemon/appliance/sitedocument"
	"firstlight.dev/firstlight/daemon/appliance/sitesource"
	"firstlight.dev/firstlight/daemon/appliance/stickupdate"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/clusterapi"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/daemon/metal/authority"
	"firstlight.dev/firstlight/daemon/metal/bmcpassword"
	"firstlight.dev/firstlight/daemon/metal/discovery"
	"firstlight.dev/firstlight/daemon/metal/ironic"
	"firstlight.dev/firstlight/daemon/metal/loginkey"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/mirror"
	"firstlight.dev/firstlight/daemon/metal/netboot"
	"firstlight.dev/firstlight/daemon/metal/provisioning"
	"firstlight.dev/firstlight/daemon/metal/registry"
	"firstlight.dev/firstlight/daemon/metal/serialconsole"
	"firstlight.dev/firstlight/daemon/metal/verify"
	"firstlight.dev/firstlight/daemon/page"
	"firstlight.dev/firstlight/daemon/uploads/serving"
	"firstlight.dev/firstlight/pxe"
)

// JournalName is the history of the plan, on DATA.
const JournalName = "journal.json"

// Daemon is everything that runs on the appliance under one name.
type Daemon struct {
	log         *slog.Logger
	host        *host.Host
	firewall    *firewall.Firewall
	kube        *kube.Cluster           // the appliance's own; nil of a guest
	kubernetes  provisioning.Kubernetes // that its controllers are on
	boot        *netboot.Server
	mirror      *mirror.Mirror
	metal       *provisioning.Provisioner
	networkDHCP *netboot.NetworkDHCP
	finder      *discovery.Finder
	verifier    *verify.Engine
	cluster     *clusters
	uploads     *artifacts
	page        *page.Server
	consoles    *serialconsole.Consoles // of nodes
	copier      *Copier
	siteStore   sitedocument.Store
	siteHistory *sitedocument.History
	follower    *sitesource.Follower
	updater     *stickupdate.Updater
	updates     *uploadedUpdates
	history     *metrics.History
	loginKey    *loginkey.Rotation
	passwords   *bmcpassword.Rotation // of BMCs
	authority   *authority.Rotation
	packagesKey *authority.Rotation
	kubeSigners *authority.Rotation // of the appliance's own Kubernetes
	runner      *bringup.Runner
	journal     *bringup.Journal
	started     time.Time
	bootID      string
	version     string        // of the image
	metricParts metrics.Parts // counters of what serves the site

	drawn    chan struct{} // kicks the console
	notified chan struct{} // kicks sd_notify
}

// New wires the daemon of an appliance that has its machine to itself.
func New(log *slog.Logger) *Daemon {
	return newDaemon(log, nil, nil)
}

// newDaemon wires the daemon of an appliance, or of a guest on a cluster.
func newDaemon(log *slog.Logger, cluster *joined.Cluster, placement *guest.Placement) *Daemon {
	d := &Daemon{
		log:      log,
		host:     &host.Host{Log: log, Guest: cluster != nil},
		copier:   NewCopier(),
		started:  time.Now(),
		bootID:   BootID(),
		version:  stick.ImageVersion(stick.BootInfoFile),
		drawn:    make(chan struct{}, 1),
		notified: make(chan struct{}, 1),

		siteStore:   NewSiteStore(),
		siteHistory: NewSiteHistory(),
	}
	if cluster != nil {
		d.kubernetes = cluster
	} else {
		d.kube = kube.New(kube.Defaults())
		d.kubernetes = d.kube
	}
	d.journal = &bringup.Journal{
		Path:  filepath.Join(stick.DataDir, JournalName),
		Log:   log,
		Ready: d.stageReady("data-mounted"),
	}
	d.updater = stickupdate.New(log, d.bootID, UpdateKeys)
	d.history = d.newHistory()
	d.updates = &uploadedUpdates{Background: stickupdate.Background{Updater: d.updater}, dir: artifact.Dir}
	d.host.OnSite = d.applySite
	d.firewall = &firewall.Firewall{Site: d.host.Site}
	d.finder = d.newFinder()
	secrets := vault.New(d.host.MachineID)
	secrets.Names = func() []string { return authorityNames(d.host.Hostname()) }
	d.wireMetal(secrets, placement)
	d.passwords = d.newPasswordRotation()
	d.networkDHCP = &netboot.NetworkDHCP{Log: log, Site: d.host.Site, Interface: d.host.Interface}
	d.verifier = d.newVerifier()
	d.metal.PreflightGate, d.metal.HeldRunning = d.verifier.Gate, d.verifier.IsHeldRunning
	d.metal.FoundMAC, d.metal.Login = d.verifier.FoundMAC, d.logInToBMC
	d.metal.Pins.Changed = d.metal.ReportCertificate
	d.metal.Forwarder.Register(d.metricParts.NewRegistry("bmc"))
	d.cluster = &clusters{
		log:     d.log,
		site:    d.finder.Site,
		metal:   d.metal,
		mirror:  d.mirror,
		nodes:   d.verifier.Nodes,
		hostKey: d.verifier.HostKeyOf,

		verifier: clusterapi.Verifier{Log: d.log.With("part", "clusters")},
	}
	d.metal.ClusterLogin = d.cluster.loginSecret
	d.mirror.Owners, d.mirror.OwnersAt = d.cluster.Owners, d.cluster.OwnersAt
	d.uploads = &artifacts{metal: d.metal, mirror: d.mirror, hostname: d.host.Hostname, addresses: d.host.Addresses}
	d.consoles = d.newConsoles()
	d.page = d.newPage(secrets)
	d.loginKey = d.newLoginRotation(secrets)
	d.follower = d.newFollower()
	d.journal.Begin(d.bootID, d.version, d.started)
	d.runner = &bringup.Runner{
		Plan:       d.plan(cluster),
		Log:        log,
		Changed:    d.notifyChange,
		Unanswered: apply.IsUnanswered,
	}
	d.authority = d.newAuthorityRotation(secrets)
	d.kubeSigners = d.newKubernetesRotation(secrets)
	d.packagesKey = d.newPackagesRotation(secrets)
	return d
}

// wireMetal wires what serves and installs nodes.
func (d *Daemon) wireMetal(secrets *vault.Vault, placement *guest.Placement) {
	d.mirror = &mirror.Mirror{
		Log:        d.log,
		Site:       d.host.Site,
		Vault:      secrets,
		Kubernetes: mirror.KubernetesPool(),
	}
	if !d.isGuest() { // there it is another container of the pod
		d.mirror.StartRegistry = mirror.StartUnit
	}
	d.metricParts.Set("registry", metrics.Remote{Socket: registry.MetricsSocket})
	d.boot = &netboot.Server{
		Log:     d.log,
		Site:    d.finder.Site,
		Metrics: &d.metricParts,

		Interface: d.host.Interface,

		Mounts: append(d.mirror.Mounts(), uploadMount()),
		RamdiskTail: func(size int64) ([]byte, error) {
			authority, err := secrets.Authority()
			if err != nil {
				return nil, err
			}
			return ironic.RamdiskTail(authority.PEM(), size)
		},
		Booter: func() pxe.Booter { return d.metal.Booter() },
	}
	d.mirror.Known, d.mirror.KnownAddrs = d.boot.IsKnown, d.boot.KnownAddrs
	d.metal = provisioning.New(provisioning.Deps{
		Log: d.log,
		// Nodes of Cluster API are hosts like those that someone applies: it decides when they are installed.
		Site:  func() *site.Site { return d.passwords.Site(d.passwords.Named()) },
		Vault: secrets,
		Kube:  d.kubernetes,
		Boot:  d.boot,
		Kinds: v1alpha1.AddToScheme,

		Placement: placement,

		Uploads: func() (map[string]metal3.Image, []string, error) { return uploadedImages(d.boot.FileURL()) },
	})
	d.boot.Minter, d.boot.Discs = d.metal.Gate, d.metal.Discs
	d.metal.DescribeUnknown = d.finder.Describe
}

// applySite hands the site to the parts that follow it. It runs within the stage site-read, so
// that no later stage sees half of it.
func (d *Daemon) applySite(s *site.Site) {
	if d.isGuest() {
		return // its Kubernetes is as it is
	}

	c := kube.Defaults()
	c.Address = s.InnerAddress()
	c.PodCIDR, c.ServiceCIDR = s.Appliance.PodCIDR, s.Appliance.ServiceCIDR
	c.OIDC = s.Appliance.OIDC
	for _, role := range []string{host.Baremetal, host.Provisioning, host.BMC} {
		if n := s.Networks.Role(role); n != nil {
			c.Nameservers = append(c.Nameservers, n.DNS...)
		}
	}

	c.Nameservers = c.Nameservers[:min(len(c.Nameservers), 3)] // resolv.conf(5): at most three
	d.kube.Configure(c)
}

// Run brings the appliance up and serves until ctx ends. What only shows or serves is
// started again when it fails; it never takes the plan down with it.
func (d *Daemon) Run(ctx context.Context) error {
	lock, err := acquireLock(filepath.Join(stick.RunDir, "firstlightd.lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := d.resume(); err != nil {
		return err
	}

	linksUp := d.stageReady("links-up")
	parts := []struct {
		name string
		run  func(context.Context) error
	}{
		{"console", (&console.Console{
			Document: d.Document,
			Changed:  d.drawn,
			Hidden:   d.consoleHidden,
			Log:      d.log,
		}).Run},
		{"api", (&api.Server{
			Socket:   status.SocketPath,
			Document: d.Document,
			Reload:   d.reload,
			Adopt:    d.metal.Adopt,
			Approve:  d.finder.Approve,
			TrustBMC: d.metal.TrustBMC,
			Login:    d.page.Login,
			Rotate:   d.rotate,
			Erase:    d.metal.Erase,
			Replace:  d.metal.Replace,

			BMCCertificate: d.metal.BMCCertificate,
			Kubeconfig:     d.findKubeconfig,
			CancelErase:    d.metal.CancelErase,

			AttachConsole: d.attachConsole,
			TypeAtConsole: d.consoles.Type,

			Audit:   newCommandAudit(audit.NewLog(audit.CommandFile, d.log)),
			Unknown: d.metal.UnknownMachines,
			Ready:   d.notifyReady,
			Log:     d.log,
			Why:     d.verifier.Why,
			Records: d.boot.Traces,
		}).Run},
		{"systemd", d.runNotifier},
		{"journal", d.journal.Run},
		{"plan", d.runner.Run},
		{"lease", d.host.MaintainLeases},
		{"devices", d.host.WatchDevices},
		{"time", func(ctx context.Context) error { return d.mirror.ServeTime(ctx, linksUp, d.host.TimeSource) }},
		{"pxe", d.serveBoot},
		{"discs", func(ctx context.Context) error { return d.boot.ServeDiscs(ctx, linksUp) }},
		{"boots of agents", d.metal.Gate.Boots.Run},
		{"agents", func(ctx context.Context) error { return d.metal.ServeAgents(ctx, linksUp) }},
		{"dhcp bmc", func(ctx context.Context) error { return d.networkDHCP.Serve(ctx, host.BMC, linksUp) }},
		{"dhcp baremetal", func(ctx context.Context) error {
			return d.networkDHCP.Serve(ctx, host.Baremetal, linksUp)
		}},
		{"packages", func(ctx context.Context) error { return d.mirror.ServePackages(ctx, linksUp) }},
		{"registry", func(ctx context.Context) error { return d.mirror.ServeImages(ctx, d.stageReady("clock-set")) }},
		{"hosts", func(ctx context.Context) error { return d.metal.Watch(ctx, d.stageReady("metal3-ready")) }},
		{"verify", d.verifier.Run},
		{"records", d.writeTraces},
		{"handover", func(ctx context.Context) error {
			return d.metal.Reconcile(ctx, d.stageReady("site-handed-over"))
		}},
		{"erasures", func(ctx context.Context) error {
			return d.metal.EraseHosts(ctx, d.stageReady("site-handed-over"))
		}},
		{"replacements", func(ctx context.Context) error {
			return d.metal.ReplaceHosts(ctx, d.stageReady("site-handed-over"))
		}},
		{"clusters", func(ctx context.Context) error { return d.cluster.watch(ctx, d.stageReady("bpa-ready")) }},
		{"keys of uploads", func(ctx context.Context) error {
			return d.uploads.mintKeys(ctx, d.stageReady(serving.StageName))
		}},
		{"stand-in BMC", d.metal.StandIn.Serve},
		{"forwarder to BMCs", d.metal.Forwarder.Serve},
		{"unknown machines", func(ctx context.Context) error {
			return d.metal.ShowUnknown(ctx, d.stageReady("metal3-ready"))
		}},
		{"discovery", d.finder.Run},
		{"agent", func(ctx context.Context) error { return d.metal.Vault.Keys.ServeAgent(ctx, vault.AgentSocket) }},
		{"tidy", d.metal.PruneDeployLogs},
		{"weights", d.kube.KeepRestartable},
		{"away copies", d.awayCopies},
		{"history of the site", d.recordSite},
		{"source of the site", d.followSource},
		{"update", func(ctx context.Context) error {
			return d.updater.Follow(ctx, d.stageReady("data-mounted"), d.readiness)
		}},
		{"log-in to nodes", d.loginKey.Run},
		{"passwords of BMCs", d.passwords.Run},
		{"password of the stand-in BMC", d.metal.StandIn.Run},
		{"authority", d.runAuthority},
		{"key of packages", d.runPackages},
		{kubernetesPart, func(ctx context.Context) error { return d.kubeSigners.Run(ctx) }},
		{"consoles", d.consoles.Run},
		{"page", func(ctx context.Context) error { return d.page.Serve(ctx, d.stageReady("clock-set")) }},
		{"metrics", func(ctx context.Context) error {
			return metrics.Serve(ctx, d.metricsHandler(), d.log)
		}},
		{"history of numbers", d.history.Run},
		{"metrics for networks", d.serveMetricsToNetworks},
	}
	var wg sync.WaitGroup
	for _, p := range parts {
		if d.isGuest() && slices.Contains(ofMachine(), p.name) {
			continue
		}
		wg.Go(func() { d.supervise(ctx, p.name, p.run) })
	}

	wg.Wait()
	return nil
}

// readiness is whether the appliance is ready, and what it does or waits for.
func (d *Daemon) readiness() (ready bool, summary string) {
	doc := d.Document()
	return doc.State == status.StateReady, doc.Summary
}

// reload takes up an edited site and whatever a person has mended. The error is what is wrong with the site.
func (d *Daemon) reload() error {
	err := d.host.Reload()
	d.runner.Recheck()
	d.verifier.Recheck()
	d.follower.Recheck()
	return err
}

func (d *Daemon) consoleHidden() bool { return d.host.Site().Access.Console == "none" }

// stageReady tells whether a stage's fact holds.
func (d *Daemon) stageReady(name string) func() bool {
	return func() bool {
		for _, s := range d.runner.Snapshot().Stages {
			if s.Name == name {
				return s.State == status.StateReady
			}
		}
		return false
	}
}

// stageBegun reports whether all before a stage holds, so that it is its turn or was.
func (d *Daemon) stageBegun(name string) func() bool {
	return func() bool {
		stages := d.runner.Snapshot().Stages
		i := slices.IndexFunc(stages, func(s status.Stage) bool { return s.Name == name })
		return i >= 0 && stages[i].State != status.StateWaiting
	}
}

// serveBoot serves machines that boot. Hosts in service boot their disks by their backups before the API answers, and
// even if it never does.
func (d *Daemon) serveBoot(ctx context.Context) error {
	linksUp := d.stageReady("links-up")
	if !rerun.Await(ctx, linksUp) {
		return nil
	}
	if err := d.metal.Hosts.LoadBackups(); err != nil {
		return err
	}

	return d.boot.Run(ctx, linksUp)
}

// BootID tells one boot from another; "" on a system without one.
func BootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}
