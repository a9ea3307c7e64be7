package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/metal/ironic"
	"firstlight.dev/firstlight/daemon/metal/loginkey"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// settle is longer than a round of the registration takes, in which a host may be given its image with the log-in that
// was in use before.
const settle = 3 * time.Minute

// newLoginRotation wires what replaces the log-in to nodes.
func (d *Daemon) newLoginRotation(secrets *vault.Vault) *loginkey.Rotation {
	return &loginkey.Rotation{Keys: secrets.Keys, Nodes: d.loginNodes, Log: d.log, Settle: settle}
}

// rotate begins to replace a secret.
func (d *Daemon) rotate(secret string) (string, error) {
	switch secret {
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
