package provisioning

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
	"firstlight.dev/firstlight/daemon/metal/ironic"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/netboot"
	"firstlight.dev/firstlight/daemon/metal/verify/fact"
	"firstlight.dev/firstlight/pxe/scripttext"
)

const (
	ironicImage = assets.ImageDomain + "/ironic:29.0.5"
	ironicState = "/var/lib/ironic"
)

// kernelArgs are what every ramdisk's kernel is started with; docs/decisions/0009 says why the TSC is not
// watched.
const kernelArgs = "console=tty0 console=ttyS0,115200 tsc=nowatchdog"

func (p *Provisioner) ironic() ironic.Config {
	return ironic.Config{
		Addr:       p.Site().Networks.Provisioning.Address,
		Inner:      p.Site().InnerAddress(),
		HTTPPort:   netboot.HTTPPort,
		Boot:       15 * time.Minute,
		Forwarder:  bmctrust.Address,
		KernelArgs: ramdiskArgs(p.Site()),
	}
}

// ramdiskArgs are kernelArgs, and the address for the ramdisk where it can lease none, since its udhcpc knows IPv4 alone:
// the one that the machine loads its script from.
func ramdiskArgs(s *site.Site) string {
	if n := s.Networks.Provisioning; n.Address.Is6() {
		return fmt.Sprintf("%s firstlight.address=%s/%d", kernelArgs, scripttext.AddressPlace, n.CIDR.Bits())
	}
	return kernelArgs
}

func (p *Provisioner) pod() (ironic.Pod, error) {
	authority, err := p.Vault.Authority()
	if err != nil {
		return ironic.Pod{}, err
	}

	forBMCs, err := p.Vault.BMCAuthority()
	if err != nil {
		return ironic.Pod{}, err
	}

	conf := p.ironic()
	pair, _, err := authority.Issue("ironic", ca.Names{Of: "ironic", Addrs: []netip.Addr{ironic.Loopback()}})
	if err != nil {
		return ironic.Pod{}, err
	}

	credentials, err := ironic.OpenCredentials(vault.SecretDir)
	if err != nil {
		return ironic.Pod{}, err
	}

	return ironic.Pod{
		Namespace:   metal3.Namespace,
		Image:       ironicImage,
		Config:      conf,
		Credentials: credentials,
		Cert:        pair.Cert,
		Key:         pair.Key,
		CA:          slices.Concat(authority.PEM(), forBMCs.PEM()),
		StateDir:    ironicState,
		FilesDir:    netboot.HTTPRoot,
	}, nil
}

// ironicStage is begun beside the system's pods: Ironic is on the appliance's own network and asks neither the
// API nor the name server, and it takes as long to start as they do.
func (p *Provisioner) ironicStage() bringup.Stage {
	stage := ironic.Stage(p.pod, p.Client)
	p.Kube.StartBeside(func(ctx context.Context, report bringup.Report) {
		if err := bringup.Begin(ctx, stage, report); err != nil {
			p.Log.Info("Ironic cannot be started yet", "error", err)
		}
	})
	return stage
}

// ironicAccess is how Ironic is asked.
func (p *Provisioner) ironicAccess() (ironic.Access, error) {
	authority, err := p.Vault.Authority()
	if err != nil {
		return ironic.Access{}, err
	}

	credentials, err := ironic.OpenCredentials(vault.SecretDir)
	return ironic.Access{
		Endpoint: ironic.Endpoint(),
		Username: credentials.Username,
		Password: credentials.Password,
		CA:       string(authority.PEM()),
	}, err
}

// IronicNodes are Ironic's nodes, by the name of their host.
func (p *Provisioner) IronicNodes(ctx context.Context) (map[string]fact.Ironic, error) {
	all, err := p.api.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	return fact.IronicNodes(all), nil
}

// EndMaintenance has Ironic work with a node again that somebody took out.
func (p *Provisioner) EndMaintenance(ctx context.Context, node string) error {
	id := p.IronicID(node)
	if id == "" {
		return fmt.Errorf("node %s is not known to Ironic yet; firstlightd why %[1]s says what it does", node)
	}
	return p.api.EndMaintenance(ctx, id)
}

// logLimits is what DATA has to spare. An agent may send more than it should once in a round.
func logLimits() ironic.LogLimits {
	return ironic.LogLimits{Files: 100, File: 32 << 20, All: 512 << 20}
}

// PruneDeployLogs keeps the logs of failed deployments from filling DATA.
func (p *Provisioner) PruneDeployLogs(ctx context.Context) error {
	for ctx.Err() == nil {
		tooLarge, err := ironic.PruneLogs(filepath.Join(ironicState, ironic.LogDir), logLimits())
		for _, name := range tooLarge {
			p.Log.Warn("an agent's log was larger than any is, and is not kept", "file", name)
		}
		if err != nil {
			return err
		}

		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
		}
	}
	return nil
}
