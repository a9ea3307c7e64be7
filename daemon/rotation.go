package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/metal/bmcpassword"
	"firstlight.dev/firstlight/daemon/metal/ironic"
	"firstlight.dev/firstlight/daemon/metal/loginkey"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
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

// rotate begins to replace a secret; nodes are those whose BMCs are meant, all if there are none.
func (d *Daemon) rotate(secret string, nodes []string) (string, error) {
	switch secret {
	case "bmc":
		return d.rotateBMCs(nodes)
	case "nodes":
		err := d.loginKey.Keys.BeginRotation()
		if errors.Is(err, vault.ErrRotating) {
			return "", fmt.Errorf("%w; firstlightd status says what it waits for", err)
		}
		return "The next log-in is brought to every node, then used, then the former one is taken from every node. firstlightd status names nodes that are waited for.", err
	case "ironic":
		if err := ironic.RotateCredentials(vault.SecretDir); err != nil {
			return "", err
		}
		d.runner.Recheck()
		return "Ironic and its operator restart with another password. Servers notice nothing.", nil
	}
	return "", fmt.Errorf("nothing replaces %q on demand; firstlightd secrets says how each secret is replaced", secret)
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
// was in use when their installation began.
func (d *Daemon) loginNodes() ([]loginkey.Node, error) {
	hosts, current := d.metal.Hosts.List()
	if !current {
		return nil, errors.New("the hosts are being read")
	}

	known := map[string]status.Node{}
	for _, n := range d.verifier.Nodes() {
		known[n.Name] = n
	}

	var all []loginkey.Node
	for i := range hosts {
		h := &hosts[i]
		switch {
		case metal3.InService(h):
			all = append(all, d.loginNode(h.Name, known[h.Name].Address))
		case h.Status.Provisioning.State == metal3api.StateProvisioning:
			all = append(all, loginkey.Node{Name: h.Name, Busy: "it is being installed"})
		}
	}

	return all, nil
}

func (d *Daemon) loginNode(name, address string) loginkey.Node {
	n := loginkey.Node{Name: name}
	n.HostKey, _ = d.verifier.HostKeyOf(name)
	if a, err := netip.ParseAddr(address); err == nil {
		n.Addresses = []netip.Addr{a}
	}
	return n
}
