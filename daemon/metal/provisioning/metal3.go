package provisioning

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/extent"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/metal/ironic"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/mirror"
	"firstlight.dev/firstlight/daemon/metal/netboot"
)

const (
	operatorImage = assets.ImageDomain + "/baremetal-operator:v0.6.0"
	operatorFile  = "/usr/share/firstlight/metal3/operator.yaml"
)

// operatorManifest is read once: to decode its definitions takes longer than to ask whether they are applied.
func (p *Provisioner) operatorManifest() (metal3.Manifest, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.manifest != nil {
		return p.manifest, nil
	}

	text, err := os.ReadFile(operatorFile)
	if err != nil {
		return nil, fmt.Errorf("read the operator's manifest: %w", err)
	}

	p.manifest, err = metal3.ReadManifest(text)
	return p.manifest, err
}

func (p *Provisioner) operator() (metal3.Operator, error) {
	authority, err := p.Vault.Authority()
	if err != nil {
		return metal3.Operator{}, err
	}

	names := ca.Names{Of: metal3.WebhookService, DNS: metal3.WebhookNames(metal3.WebhookService)}
	if p.isGuest() {
		names.DNS = append(names.DNS, metal3.WebhookNames(metal3.HoldService)...)
	}
	hook, _, err := authority.Issue("operator-webhook", names)
	if err != nil {
		return metal3.Operator{}, err
	}

	credentials, err := ironic.OpenCredentials(vault.SecretDir)
	if err != nil {
		return metal3.Operator{}, err
	}

	manifest, err := p.operatorManifest()
	if err != nil {
		return metal3.Operator{}, err
	}

	return metal3.Operator{
		Manifest:       manifest,
		Image:          operatorImage,
		IronicEndpoint: p.ironic().Gate(),
		KernelURL:      p.Boot.FileURL() + "/ramdisk/kernel",
		RamdiskURL:     p.Boot.FileURL() + "/ramdisk/initramfs",
		DiscURL:        p.Boot.DiscURL(),
		Username:       credentials.Username,
		Password:       credentials.Password,
		CA:             authority.PEM(),
		WebhookCert:    hook.Cert,
		WebhookKey:     hook.Key,
		Holds:          p.isGuest(),
		Limit:          100,
	}, nil
}

// isGuest reports whether Kubernetes is someone else's, of whatever version.
func (p *Provisioner) isGuest() bool { return p.Placement != nil }

// guard is by what the API server guards hosts. One of the appliance's own has all kinds.
func (p *Provisioner) guard() (metal3.Guard, error) {
	g := metal3.Guard{Daemon: p.Kube.User()}
	if !p.isGuest() {
		return g, nil
	}

	authority, err := p.Vault.Authority()
	if err != nil {
		return g, err
	}
	g.WebhookCA = authority.PEM()
	return g, nil
}

// nodeObjects are the objects that the site's nodes become.
func (p *Provisioner) nodeObjects() ([]metal3.NodeObjects, error) {
	s := p.Site()
	a, err := p.newAppliance(s)
	if err != nil {
		return nil, err
	}

	hosts, records, err := p.knownHosts()
	if err != nil {
		return nil, err
	}

	applied, unfit, err := p.appliedHosts(context.Background(), p.Client, s, hosts, records)
	if err != nil {
		return nil, err
	}

	discovered := discoverMACs(s, hosts)
	all, wrong, err := p.siteObjects(s, a, discovered)
	if err != nil {
		return nil, err
	}

	maps.Copy(unfit, wrong) // they are told per node; the others go on
	var nodes []site.Node
	for _, host := range applied {
		nodes = append(nodes, host.Node())
		if unfit[host.Host.Name] != nil {
			continue
		}

		h, err := metal3.NewAppliedObjects(s, host, a)
		if err != nil {
			unfit[host.Host.Name] = err
			continue
		}
		all = append(all, h)
	}

	fromSite := map[string]bool{}
	for i := range hosts {
		h := &hosts[i]
		fromSite[h.Name] = records[h.Name].FromSite || h.Labels[metal3.LabelSite] != ""
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.fromSite = fromSite
	p.invalidNodes, p.discovered, p.appliedNodes, p.nodesKnown = unfit, discovered, nodes, p.Hosts.IsCurrent()
	return all, nil
}

// newAppliance is what nodes of a site are told of this appliance.
func (p *Provisioner) newAppliance(s *site.Site) (metal3.Appliance, error) {
	access, err := p.Vault.Keys.AccessPublicKey()
	if err != nil {
		return metal3.Appliance{}, err
	}

	own, err := stickImages(p.Boot.FileURL())
	if err != nil {
		return metal3.Appliance{}, err
	}

	images, signatures := p.withUploads(own)
	a := metal3.Appliance{
		Time:   mirror.Addrs(mirror.ServiceAddresses(s)),
		Images: images,
		Trust:  imageTrust(s.Images, own, signatures),
		Key:    access,
		Hash:   p.Vault.PasswordHash,
	}
	nics, err := net.Interfaces()
	if err != nil {
		return metal3.Appliance{}, fmt.Errorf("list this machine's NICs: %w", err)
	}

	for _, nic := range nics {
		a.MACs = append(a.MACs, nic.HardwareAddr.String())
	}
	return a, nil
}

// siteObjects are the objects that the nodes of a site become, and what is wrong with the others, by their names.
func (p *Provisioner) siteObjects(
	s *site.Site, a metal3.Appliance, discovered map[site.Name]site.MAC,
) (all []metal3.NodeObjects, unfit map[string]error, err error) {
	unfit = map[string]error{}
	for _, n := range s.Nodes {
		if mac := discovered[n.Name]; mac != "" {
			n.BootMAC, n.MACs = mac, []site.MAC{mac}
		} else if n.BootMAC == "" && len(n.MACs) == 0 && p.FoundMAC != nil {
			n.BootMAC = site.MAC(p.FoundMAC(string(n.Name))) // its pre-flight passed with it
		}

		if n.BMC == nil {
			if n.BMC, err = p.StandIn.BMC(n.Name); err != nil {
				return nil, nil, err
			}
		}

		h, err := metal3.NewNodeObjects(s, n, a)
		if err != nil {
			unfit[string(n.Name)] = err
			continue
		}
		all = append(all, h)
	}
	return all, unfit, nil
}

// nodeWithoutBMC is the node of the site that has a MAC and no BMC; "" if there is none.
func (p *Provisioner) nodeWithoutBMC(mac string) string {
	for _, n := range p.Site().Nodes {
		if n.BMC == nil && (string(n.BootMAC) == mac || slices.Contains(n.MACs, site.MAC(mac))) {
			return string(n.Name)
		}
	}
	return ""
}

// bootsSecurely reports whether the site says that a machine boots with Secure Boot: its node, or of a machine that is
// none, what the site says of nodes that do not say.
func (p *Provisioner) bootsSecurely(mac string) bool {
	s := p.Site()
	mode := s.NodeDefaults.BootMode
	for _, n := range s.Nodes {
		if string(n.BootMAC) == mac || slices.Contains(n.MACs, site.MAC(mac)) {
			mode = n.BootMode
		}
	}
	return mode == string(metal3api.UEFISecureBoot)
}

// knownHosts are the hosts of the API, and those in service that the API has lost, with their backups. Before the API
// was read they are those of the backups.
func (p *Provisioner) knownHosts() ([]metal3api.BareMetalHost, map[string]metal3.HostBackup, error) {
	records, err := p.Hosts.Backups.Read()
	if err != nil {
		return nil, nil, err
	}

	hosts, current := p.Hosts.List()
	named := map[string]bool{}
	for _, h := range hosts {
		named[h.Name] = true
	}

	for _, name := range slices.Sorted(maps.Keys(records)) {
		if rec := records[name]; !named[name] && !rec.Removed && (rec.IsLive() || !current) {
			hosts = append(hosts, rec.Host)
		}
	}

	return hosts, records, nil
}

// discoverMACs are the MACs from which nodes boot that the site gives none.
func discoverMACs(s *site.Site, hosts []metal3api.BareMetalHost) map[site.Name]site.MAC {
	byName := map[site.Name]*metal3api.BareMetalHost{}
	for i := range hosts {
		byName[site.Name(hosts[i].Name)] = &hosts[i]
	}

	found := map[site.Name]site.MAC{}
	for _, n := range s.Nodes {
		if h := byName[n.Name]; h != nil && n.BootMAC == "" && len(n.MACs) == 0 {
			if mac := metal3.BootMAC(h); mac != "" {
				found[n.Name] = site.MAC(mac)
			}
		}
	}
	return found
}

// stickImages are the operating systems on the stick, each with its digest beside it.
func stickImages(files string) (map[string]metal3.Image, error) {
	sums, err := filepath.Glob(netboot.ImageDir + "/*.sha256")
	if err != nil {
		return nil, err
	}

	images := map[string]metal3.Image{}
	for _, path := range sums {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read image digest: %w", err)
		}

		digest, _, _ := strings.Cut(string(text), " ")
		file := strings.TrimSuffix(filepath.Base(path), ".sha256")
		format := strings.TrimPrefix(filepath.Ext(file), ".")
		image := metal3.Image{URL: files + "/images/" + file, SHA256: digest, Format: format}
		if format == "raw" {
			// Without a size it is not compared with disks.
			image.Size, _ = extent.Size(
				os.DirFS(stick.LowerDir), strings.TrimPrefix(strings.TrimSuffix(path, ".sha256"), "/"),
			)
		}

		images[strings.TrimSuffix(file, "."+format)] = image
	}

	return images, nil
}

// images are the operating systems that nodes of the site can name.
func (p *Provisioner) images() (map[string]metal3.Image, error) {
	own, err := stickImages(p.Boot.FileURL())
	if err != nil {
		return nil, err
	}
	images, _ := p.withUploads(own)
	return images, nil
}

// withUploads adds what was brought to the appliance to the images of the stick, which keep their names, and returns the
// signatures that were brought.
func (p *Provisioner) withUploads(own map[string]metal3.Image) (images map[string]metal3.Image, signatures []string) {
	brought, signatures, err := p.Uploads()
	if err != nil {
		p.Log.Error("uploaded images are not offered", "error", err)
	}

	maps.Copy(brought, own)
	return brought, signatures
}

// FindImage is what a node is to be installed with, as this appliance serves it now.
func (p *Provisioner) FindImage(n site.Node) (metal3.Image, error) {
	images, err := p.images()
	if err != nil {
		return metal3.Image{}, err
	}
	return metal3.FindImage(n, images)
}

func (p *Provisioner) reconciler() (metal3.Reconciler, error) {
	c, err := p.Client()
	return metal3.Reconciler{
		Client:        c,
		Backups:       p.Hosts.Backups,
		Log:           p.Log,
		Contents:      p.found.Contents,
		BootMode:      p.found.BootMode,
		AgentsDue:     p.api.AgentsDue,
		PreflightGate: p.PreflightGate,
		PermitWipe:    p.permitWipe,
		Busy:          p.describeBusy,
	}, err
}
