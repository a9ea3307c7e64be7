package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/clusterapi/nodesetup"
	"firstlight.dev/firstlight/daemon/engine/remote"
	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/daemon/metal/authority"
	"firstlight.dev/firstlight/daemon/metal/bmcpassword"
	"firstlight.dev/firstlight/daemon/metal/ironic"
	"firstlight.dev/firstlight/daemon/metal/loginkey"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/mirror"
	"firstlight.dev/firstlight/daemon/metal/packages"
	"firstlight.dev/firstlight/daemon/metal/standinbmc"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
	"firstlight.dev/firstlight/daemon/uploads/serving"
)

// settle is longer than a round of the registration takes, in which a host may be given its image with the log-in that
// was in use before.
const settle = 3 * time.Minute

// passwordSettle is longer than BMCs take from saying that they have changed a password to taking it.
const passwordSettle = 5 * time.Second

// newLoginRotation wires what replaces the log-in to nodes.
func (d *Daemon) newLoginRotation(secrets *vault.Vault) *loginkey.Rotation {
	return &loginkey.Rotation{Keys: secrets.Keys, Nodes: d.loginNodes, Log: d.log, Settle: settle}
}

// newPasswordRotation wires what replaces the passwords of BMCs.
func (d *Daemon) newPasswordRotation() *bmcpassword.Rotation {
	return &bmcpassword.Rotation{
		Accounts: &vault.BMCAccounts{
			Dir:   vault.BMCAccountDir,
			Ready: func() bool { return d.runner != nil && d.stageReady("data-mounted")() },
		},
		BMC:     bmc.Client{Pins: d.metal.Pins},
		Named:   func() *site.Site { return d.finder.Site().WithoutClusterAPI() },
		Busy:    d.metal.BMCBusy,
		Given:   d.metal.BMCSecret,
		Changed: d.metal.Recheck,
		Settle:  passwordSettle,
		Log:     d.log.With("part", "passwords of BMCs"),
	}
}

// authoritySettle is longer than a ramdisk takes to load, to boot and to end its inspection, and than a certificate is
// kept in memory.
const authoritySettle = 20 * time.Minute

// authorityStages are those whose objects say whom to trust, or have certificates.
func authorityStages() []string {
	return []string{"supplies-served", "metal3-ready", "hosts-guarded", "ironic-ready", serving.StageName, "cluster-api-ready"}
}

// newAuthorityRotation wires what replaces the authority.
func (d *Daemon) newAuthorityRotation(secrets *vault.Vault) *authority.Rotation {
	return &authority.Rotation{
		What:  "authority",
		Trust: func() (authority.Trust, error) { return secrets.Authority() },
		Introduce: func() error {
			a, err := secrets.Authority()
			if err != nil {
				return err
			}
			return a.Introduce(secrets.Names()...)
		},
		File:       authority.File,
		Earlier:    authority.SystemFile,
		Installing: d.listInstalling,
		Nodes:      d.loginNodes,
		LogIn:      secrets.Keys.AccessSigner,
		Told: func(ctx context.Context, trusted, next []byte) ([]string, error) {
			return d.listTold(ctx, "authority", func(text []byte) bool {
				return authority.HasCertificate(text, trusted) && !authority.HasCertificate(text, next)
			})
		},
		Own:     d.checkAuthority,
		Changed: d.runner.Recheck,
		Settle:  authoritySettle,
		Log:     d.log.With("part", "authority"),
	}
}

// packagesKey is the key of packages as it is on DATA.
type packagesKey struct{ *packages.Key }

func (k packagesKey) PEM() []byte { return k.Public() }

func openPackagesKey() (authority.Trust, error) {
	key, err := packages.OpenKey(mirror.PackagesKey)
	return packagesKey{key}, err
}

// newPackagesRotation wires what replaces the key of packages. No ramdisk knows it.
func (d *Daemon) newPackagesRotation(secrets *vault.Vault) *authority.Rotation {
	return &authority.Rotation{
		What:       "key of packages",
		Trust:      openPackagesKey,
		File:       authority.PackagesFile,
		Installing: d.listChanging,
		Nodes:      d.loginNodes,
		LogIn:      secrets.Keys.AccessSigner,
		Told: func(ctx context.Context, trusted, next []byte) ([]string, error) {
			return d.listTold(ctx, "key of packages", func(text []byte) bool {
				return packages.HasKey(text, trusted) && !packages.HasKey(text, next)
			})
		},
		Own: func(ctx context.Context) error {
			return errors.Join(d.checkStages(ctx, "supplies-served"), d.mirror.CheckPackagesKey(ctx))
		},
		Changed: d.runner.Recheck,
		Settle:  settle,
		Log:     d.log.With("part", "key of packages"),
	}
}

// runPackages works on a rotation of the key of packages, from the moment that there may be one.
func (d *Daemon) runPackages(ctx context.Context) error {
	if !rerun.Await(ctx, d.stageReady(authorityMinted)) {
		return nil
	}
	return d.packagesKey.Run(ctx)
}

// listTold are the machines of Cluster API that were told what isStale.
func (d *Daemon) listTold(ctx context.Context, what string, isStale func(text []byte) bool) ([]string, error) {
	c, err := d.metal.Client()
	if err != nil {
		return nil, err
	}
	setup := client.ObjectKey{Namespace: metal3.Namespace, Name: nodesetup.SecretName}
	return authority.Machines(ctx, c, setup, what, isStale)
}

// runAuthority works on a rotation of the authority, from the moment that there may be one.
func (d *Daemon) runAuthority(ctx context.Context) error {
	if !rerun.Await(ctx, d.stageReady(authorityMinted)) {
		return nil
	}
	return d.authority.Run(ctx)
}

// authorityMinted is the stage after which the authority is minted: before, there is no DATA, no name and no time for it.
const authorityMinted = "clock-set"

// checkAuthority is nil if the appliance's own parts are as its authority says: what is asked is the world.
func (d *Daemon) checkAuthority(ctx context.Context) error {
	if err := d.checkStages(ctx, authorityStages()...); err != nil {
		return err
	}
	return d.mirror.CheckCertificate(ctx)
}

// checkStages is nil if stages of the plan hold now.
func (d *Daemon) checkStages(ctx context.Context, names ...string) error {
	for _, s := range d.runner.Plan {
		if !slices.Contains(names, s.Name) {
			continue
		}
		if err := s.Done(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}

// listInstalling are the hosts that boot a ramdisk, and the clusters that are being installed or changed: they have what
// was to be trusted when that began.
func (d *Daemon) listInstalling() (all []string, err error) {
	hosts, current := d.metal.Hosts.List()
	if !current {
		return nil, errors.New("the hosts are being read")
	}
	for i := range hosts {
		if what := metal3.DescribeRamdisk(&hosts[i]); what != "" {
			all = append(all, fmt.Sprintf("%s: it %s", hosts[i].Name, what))
		}
	}

	changing, err := d.listChanging()
	return append(all, changing...), err
}

// listChanging are the clusters that are being installed or changed.
func (d *Daemon) listChanging() (all []string, err error) {
	clusters, known := d.cluster.known()
	if !known {
		return nil, errors.New("the clusters are being read")
	}
	for _, c := range clusters {
		if isBeingChanged(c) {
			all = append(all, fmt.Sprintf("cluster %s: it is %s", c.Name, c.State))
		}
	}
	return all, nil
}

// isBeingChanged reports whether an installer works on a cluster.
func isBeingChanged(c status.Cluster) bool {
	switch c.State {
	case status.ClusterInstalling, status.ClusterDeleting, strings.ToLower(v1alpha1.PhaseChanging):
		return c.Kind == status.KindProvisioning
	}
	return slices.ContainsFunc(c.Updates, status.NodeUpdate.IsUnderway)
}

// rotations begin what vault.Rotations lists, by its names; names are what it is of, all if there are none.
func (d *Daemon) rotations() map[string]func(names []string) (string, error) {
	return map[string]func(names []string) (string, error){
		"authority":   func([]string) (string, error) { return d.rotateAuthority() },
		"packages":    func([]string) (string, error) { return d.rotatePackages() },
		"nodes":       func([]string) (string, error) { return d.rotateLogin() },
		"host-key":    func([]string) (string, error) { return d.rotateHostKey() },
		"kubernetes":  func([]string) (string, error) { return d.rotateKubernetes() },
		"ironic":      func([]string) (string, error) { return d.rotateIronic() },
		"standin-bmc": func([]string) (string, error) { return d.rotateStandIn() },
		"bmc":         d.rotateBMCs,
		"cluster":     d.rotateCluster,
	}
}

// rotate begins to replace a secret, and says what happens from then on, for people.
func (d *Daemon) rotate(secret string, names []string) (string, error) {
	begin, ok := d.rotations()[secret]
	if !ok {
		return "", fmt.Errorf("nothing replaces %q on demand; firstlightd secrets says how each secret is replaced", secret)
	}
	return begin(names)
}

// rotateLogin begins to replace the log-in to nodes.
func (d *Daemon) rotateLogin() (string, error) {
	err := d.loginKey.Keys.BeginRotation()
	if errors.Is(err, vault.ErrRotating) {
		return "", fmt.Errorf("%w; firstlightd status says what it waits for", err)
	}
	return "The next log-in is brought to every node, then used, then the former one is taken from every node. " +
		"firstlightd status names nodes that are waited for.", err
}

// rotateIronic replaces the password of Ironic's API.
func (d *Daemon) rotateIronic() (string, error) {
	if err := ironic.RotateCredentials(vault.SecretDir); err != nil {
		return "", err
	}
	d.runner.Recheck()
	return "Ironic and its operator restart with another password. Servers notice nothing.", nil
}

// rotateHostKey replaces the key that the appliance's sshd shows.
func (d *Daemon) rotateHostKey() (string, error) {
	if d.isGuest() {
		return "", errors.New("this appliance is a guest, whose node's owner runs sshd; replace the key there")
	}
	fingerprint, since, err := d.host.RotateHostKey()
	if err != nil {
		return "", err
	}
	d.runner.Recheck()
	return fmt.Sprintf("The appliance shows the host key %s from now on; sessions stay. Who has run firstlight login, or has "+
		"logged in with ssh (OpenSSH 8.5 or newer), since %s knows it. Others are told of a changed key: compare it with this "+
		"one. Make an away copy afterwards.", fingerprint, since.UTC().Format("2006-01-02 15:04 UTC")), nil
}

// rotateStandIn begins to replace the password of the stand-in BMC.
func (d *Daemon) rotateStandIn() (string, error) {
	if !d.stageReady(authorityMinted)() {
		return "", errors.New("the appliance is still starting; firstlightd status says how far it is")
	}
	err := d.metal.StandIn.BeginRotation()
	if errors.Is(err, standinbmc.ErrRotating) {
		return "", fmt.Errorf("%w; firstlightd status says what it waits for", err)
	}
	d.metal.Recheck()
	return "Ironic gets another password of the stand-in BMC for every node without a BMC, and the former one is taken until " +
		"it has. firstlightd status names nodes that are waited for. Servers notice nothing.", err
}

// rotateAuthority begins to replace the authority.
func (d *Daemon) rotateAuthority() (string, error) {
	if !d.stageReady(authorityMinted)() {
		return "", errors.New("the appliance is still starting; firstlightd status says how far it is")
	}
	a, err := d.metal.Vault.Authority()
	if err != nil {
		return "", err
	}
	err = a.BeginRotation()
	if errors.Is(err, ca.ErrRotating) {
		return "", fmt.Errorf("%w; firstlightd status says what it waits for", err)
	}
	return fmt.Sprintf("Everyone is brought to trust the next authority as well as the current one; when all do, the next one "+
		"signs, and then the former one is trusted no more. That is %d minutes at least, and firstlightd status names whom "+
		"it waits for. Ironic and its operator restart meanwhile; servers notice nothing. Workstations that upload and "+
		"browsers have the former one: bring them the next one (firstlightd uploader OWNER; docs/page.md). Make an away "+
		"copy afterwards.", int(2*authoritySettle.Minutes())), err
}

// rotatePackages begins to replace the key of packages.
func (d *Daemon) rotatePackages() (string, error) {
	if !d.stageReady(authorityMinted)() {
		return "", errors.New("the appliance is still starting; firstlightd status says how far it is")
	}
	key, err := packages.OpenKey(mirror.PackagesKey)
	if err != nil {
		return "", err
	}
	err = key.BeginRotation()
	if errors.Is(err, packages.ErrRotating) {
		return "", fmt.Errorf("%w; firstlightd status says what it waits for", err)
	}
	return fmt.Sprintf("Nodes are brought to trust the next key of packages as well as the current one; when all do, the "+
		"next one signs, and then the former one is taken from nodes. That is %d minutes at least, and firstlightd status "+
		"names whom it waits for. Images of yours that have the key need the next one (docs/clusters.md). Make an away copy "+
		"afterwards.", int(2*settle.Minutes())), err
}

// rotateBMCs begins to replace the passwords of BMCs.
func (d *Daemon) rotateBMCs(nodes []string) (string, error) {
	begun, err := d.passwords.Begin(nodes)
	if errors.Is(err, bmcpassword.ErrRotating) {
		return "", fmt.Errorf("%w; firstlightd status says what it waits for", err)
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d BMCs get another password each, and Ironic gets it when the BMC has taken a login with it. "+
		"firstlightd status names BMCs that are waited for, and those that refuse. Make an away copy afterwards: the "+
		"passwords are on this stick and in away copies alone.", begun), nil
}

// loginNodes are the nodes that the appliance logs in to, and those that are being installed: these have the log-in that
// was in use when their installation began. Machines of Cluster API are told otherwise.
func (d *Daemon) loginNodes() ([]remote.Installed, error) {
	hosts, current := d.metal.Hosts.List()
	if !current {
		return nil, errors.New("the hosts are being read")
	}

	known := map[string]status.Node{}
	for _, n := range d.verifier.Nodes() {
		known[n.Name] = n
	}

	var all []remote.Installed
	for i := range hosts {
		h := &hosts[i]
		switch {
		case metal3.IsMachines(h): // nobody logs in to it
		case metal3.InService(h):
			all = append(all, d.loginNode(h.Name, known[h.Name].Address))
		case h.Status.Provisioning.State == metal3api.StateProvisioning:
			all = append(all, remote.Installed{Name: h.Name, Busy: "it is being installed"})
		}
	}

	return all, nil
}

func (d *Daemon) loginNode(name, address string) remote.Installed {
	n := remote.Installed{Name: name}
	n.HostKey, _ = d.verifier.HostKeyOf(name)
	if a, err := netip.ParseAddr(address); err == nil {
		n.Addresses = []netip.Addr{a}
	}
	return n
}
