package provisioning

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/extent"
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

	names := ca.Names{CommonName: metal3.WebhookService, DNS: metal3.WebhookNames()}
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
		Username:       credentials.Username,
		Password:       credentials.Password,
		CA:             authority.PEM(),
		WebhookCert:    hook.Cert,
		WebhookKey:     hook.Key,
		Limit:          100,
	}, nil
}

// nodeObjects are the objects that the site's nodes become.
func (p *Provisioner) nodeObjects() ([]metal3.NodeObjects, error) {
	authority, err := p.Vault.Authority()
	if err != nil {
		return nil, err
	}

	access, err := p.Vault.Keys.AccessPublicKey()
	if err != nil {
		return nil, err
	}

	images, err := p.images()
	if err != nil {
		return nil, err
	}

	a := metal3.Appliance{
		Time:    mirror.Addrs(mirror.ServiceAddresses(p.Site())),
		Images:  images,
		Key:     access,
		HostKey: p.Vault.Keys.Host,
		Hash:    p.Vault.PasswordHash,
		CA:      authority.PEM(),
	}
	nics, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list this machine's NICs: %w", err)
	}

	for _, nic := range nics {
		a.MACs = append(a.MACs, nic.HardwareAddr.String())
	}

	s := p.Site()
	var all []metal3.NodeObjects
	unfit := map[string]error{}
	for _, n := range s.Nodes {
		h, err := metal3.NewNodeObjects(s, n, a)
		if err != nil {
			unfit[string(n.Name)] = err // it is told per node; the others go on
			continue
		}
		all = append(all, h)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.invalidNodes = unfit
	return all, nil
}

// images are the operating systems on the stick, each with its digest beside it, and those
// that were brought to the appliance.
func (p *Provisioner) images() (map[string]metal3.Image, error) {
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
		image := metal3.Image{URL: p.Boot.FileURL() + "/images/" + file, SHA256: digest, Format: format}
		if format == "raw" {
			// Without a size it is not compared with disks.
			image.Size, _ = extent.Size(
				os.DirFS(stick.LowerDir), strings.TrimPrefix(strings.TrimSuffix(path, ".sha256"), "/"),
			)
		}

		images[strings.TrimSuffix(file, "."+format)] = image
	}

	// What lies on the stick keeps its name.
	brought, err := p.Uploads()
	if err != nil {
		p.Log.Error("uploaded images are not offered", "error", err)
	}

	maps.Copy(brought, images)
	return brought, nil
}

func (p *Provisioner) reconciler() (metal3.Reconciler, error) {
	c, err := p.Client()
	return metal3.Reconciler{
		Client:        c,
		Backups:       p.Hosts.Backups,
		Log:           p.Log,
		Contents:      p.found.Contents,
		AgentsDue:     p.api.AgentsDue,
		PreflightGate: p.PreflightGate,
		PermitWipe:    p.permitWipe,
	}, err
}
