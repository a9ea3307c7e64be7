package provisioning

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/metal/ironic"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/verify"
	"firstlight.dev/firstlight/daemon/metal/verify/fact"
	"firstlight.dev/firstlight/daemon/metal/verify/netprobe"
)

// RefusalsFile remembers which BMC refused which password, on DATA.
const RefusalsFile = vault.SecretDir + "/bmc-refusals.json"

// Sources are what the verification looks at, but for Appliance and Clock.
func (p *Provisioner) Sources() verify.Sources {
	logs := p.RamdiskLogs()
	return verify.Sources{
		Site:     p.AllNodes,
		Applied:  p.IsApplied,
		FromSite: p.isFromSite,
		Hosts:    p.Hosts.List,
		Silent:   p.Hosts.SilentSince,
		Blocked:  p.blockedNodes,
		Recorded: func(node site.Name) bool { return p.Hosts.Backups.Names(string(node)) },
		Records:  p.Boot.Traces,
		Leases:   p.Boot.Leases,
		DHCP:     p.dhcpFacts,
		Access:   p.Vault.Keys.AccessSigner,
		HostKey:  p.Vault.Keys.HostPublicKey,
		Image:    p.imageFacts,
		Disk:     rootDiskSize,
		Ironic:   p.IronicNodes,
		Log:      logs.LastError,
		Refusal:  p.Gate.LastRefusal,
		Claim:    p.Gate.LastClaim,
		Erasure:  p.Erasure,
	}
}

// RamdiskLogs are those that Ironic fetched after failures.
func (p *Provisioner) RamdiskLogs() *fact.RamdiskLogs {
	return &fact.RamdiskLogs{Dir: filepath.Join(ironicState, ironic.LogDir)}
}

// IronicID is Ironic's UUID of a node; "" if it does not know the node.
func (p *Provisioner) IronicID(node string) string {
	h := p.Hosts.FindHost(func(h *metal3api.BareMetalHost) bool { return h.Name == node })
	if h == nil {
		return ""
	}
	return h.Status.Provisioning.ID
}

// blockedNodes are the nodes that the hand-over holds back, with the reason.
func (p *Provisioner) blockedNodes() map[string]metal3.Block {
	p.mu.Lock()
	defer p.mu.Unlock()
	return metal3.Blocks(p.invalidNodes, p.progress)
}

// LosableData is the fingerprint of the data that keeps a node from being installed until its owner consents to losing
// it, "" if that is not what blocks it.
func (p *Provisioner) LosableData(node string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.progress {
		if one.Node == node && one.Err == nil {
			return one.Fingerprint
		}
	}
	return ""
}

func (p *Provisioner) dhcpFacts() verify.DHCP {
	status := p.Boot.DHCPStatus()
	return verify.DHCP{
		Enabled: p.Site().Networks.Provisioning.DHCP.Mode != "none",
		Phase:   string(status.Phase),
		Text:    status.Text,
	}
}

// imageFacts looks for a node's operating system where the node will load it from.
func (p *Provisioner) imageFacts(ctx context.Context, n site.Node) verify.Image {
	name := cmp.Or(string(n.OS.URL), n.OS.Image)
	if name == "" {
		return verify.Image{None: true}
	}

	images, err := p.images()
	if err != nil && n.OS.URL == "" {
		return verify.Image{
			Name:    name,
			Problem: "the images cannot be read: " + err.Error(),
			Fix:     "write the stick again",
		}
	}

	image, err := metal3.FindImage(n, images)
	if err != nil {
		return verify.Image{
			Name:    name,
			Problem: err.Error(),
			Fix:     "use an image that is there in site.yaml, or give os.url",
		}
	}

	size, err := netprobe.ProbeImage(ctx, image.URL, image.Format)
	if err != nil {
		return verify.Image{
			Name:    name,
			Problem: fmt.Sprintf("image %s cannot be had: %v", name, err),
			Fix:     "check whether its server answers, or correct os in site.yaml",
		}
	}

	return verify.Image{Name: name, Bytes: size}
}

// rootDiskSize is the size of the disk that a host's hints name; 0 while that is not exactly one.
func rootDiskSize(_ site.Node, h metal3api.BareMetalHost) int64 {
	if h.Status.HardwareDetails == nil {
		return 0
	}

	d, err := metal3.OneDisk(h.Spec.RootDeviceHints, h.Status.HardwareDetails.Storage)
	if err != nil {
		return 0
	}

	return int64(d.SizeBytes)
}
