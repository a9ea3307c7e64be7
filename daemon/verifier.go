package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/verify"
	"firstlight.dev/firstlight/daemon/metal/verify/fact"
	"firstlight.dev/firstlight/daemon/metal/verify/netprobe"
	"firstlight.dev/firstlight/pxe/boottrace"
)

// refusalsFile remembers which BMC refused which password, on DATA.
const refusalsFile = secretDir + "/bmc-refusals.json"

// newVerifier wires what proves nodes to those who know of them.
func (d *Daemon) newVerifier() *verify.Engine {
	m := d.metal
	logs := &fact.RamdiskLogs{Dir: ironicState + "/log/deploy"}
	return &verify.Engine{
		Logger: d.log.With("part", "verify"), Outcomes: verify.Store{API: m.client}, Changed: d.nodesChanged,
		Refusals: &verify.Refusals{Path: refusalsFile, Log: d.log},
		Sources: verify.Sources{
			Site: d.host.Site, Appliance: d.beforeNodes, Hosts: m.hosts.List, Silent: m.hosts.SilentSince, Blocked: m.blockedNodes, Records: m.bootTraces, Leases: m.leases, DHCP: m.dhcpFacts,
			Clock: d.clockFacts, Access: m.accessSigner, HostKey: m.hostKey, Image: m.imageFacts, Disk: rootDiskSize, Ironic: m.ironicNodes, Log: logs.LastError,
		},
	}
}

// nodesChanged kicks whatever waits for nodes: the hand-over, and the screens.
func (d *Daemon) nodesChanged() {
	for _, c := range []chan struct{}{d.metal.changed, d.drawn} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// beforeNodes is what the appliance still waits for before it knows of nodes.
func (d *Daemon) beforeNodes() string {
	if d.metal.hosts.IsCurrent() {
		return ""
	}
	stages := d.runner.Snapshot().Stages
	for _, s := range stages {
		if s.State != status.StateReady {
			return summary(status.Document{Stages: stages})
		}
	}
	return "its hosts are being read"
}

func (d *Daemon) clockFacts() verify.Clock {
	built, asked, answered := d.host.Clock()
	return verify.Clock{Now: time.Now(), Built: built, HasServers: asked, Server: answered}
}

// blockedNodes are the nodes that the hand-over holds back, with the reason.
func (m *metal) blockedNodes() map[string]metal3.Block {
	m.mu.Lock()
	defer m.mu.Unlock()
	return metal3.Blocks(m.invalidNodes, m.progress)
}

func (m *metal) bootTraces() []boottrace.Trace {
	if s := m.serving.Load(); s != nil {
		return s.Traces().List()
	}
	return nil
}

// leases are the addresses given by DHCP, by MAC.
func (m *metal) leases() map[site.MAC]netip.Addr {
	all := map[site.MAC]netip.Addr{}
	if s := m.serving.Load(); s != nil && s.DHCP() != nil {
		for _, l := range s.DHCP().Leases() {
			if l.State == "active" {
				all[site.MAC(strings.ToLower(l.MAC))] = l.Addr
			}
		}
	}
	return all
}

func (m *metal) dhcpFacts() verify.DHCP {
	given := m.site().Networks.Provisioning.DHCP.Mode != "none"
	s := m.serving.Load()
	if s == nil || s.DHCP() == nil {
		return verify.DHCP{Enabled: given, Phase: "probing"}
	}
	status := s.DHCP().Status()
	return verify.DHCP{Enabled: given, Phase: string(status.Phase), Text: status.Text}
}

// accessSigner is the appliance's log-in to nodes.
func (m *metal) accessSigner() (ssh.Signer, error) {
	pair, err := m.keys.Pair()
	if err != nil {
		return nil, err
	}
	return ssh.ParsePrivateKey([]byte(pair.Private))
}

func (m *metal) hostKey(node site.Name) (ssh.PublicKey, error) {
	pair, err := m.keys.Host(node)
	if err != nil {
		return nil, err
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(pair.Public))
	if err != nil {
		return nil, fmt.Errorf("read host key of %s: %w", node, err)
	}
	return key, nil
}

// imageFacts looks for a node's operating system where the node will load it from.
func (m *metal) imageFacts(ctx context.Context, n site.Node) verify.Image {
	name, url, format := n.OS.Image, string(n.OS.URL), n.OS.Format
	if url != "" {
		name = url
	} else {
		images, err := m.images()
		if err != nil {
			return verify.Image{Name: name, Problem: "the images cannot be read: " + err.Error(), Fix: "write the stick again"}
		}
		i, ok := images[name]
		if !ok {
			return verify.Image{Name: name, Problem: fmt.Sprintf("os.image %q is not on this appliance; it has %s", name, imageNames(images)),
				Fix: "use an image that is there in site.yaml, or give os.url"}
		}
		url, format = i.URL, i.Format
	}
	size, err := netprobe.ProbeImage(ctx, url, format)
	if err != nil {
		return verify.Image{Name: name, Problem: fmt.Sprintf("image %s cannot be had: %v", name, err), Fix: "look at whether its server answers, or correct os in site.yaml"}
	}
	return verify.Image{Name: name, Bytes: size}
}

func imageNames(images map[string]metal3.Image) string {
	var all []string
	for n := range images {
		all = append(all, n)
	}
	slices.Sort(all)
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
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

// recordsFile holds what was heard on the wire, for when the daemon is dead; it lies in
// memory, as the records do.
const recordsFile = stick.RunDir + "/wire.json"

// writeTraces writes that file now and then, as long as something moves.
func (d *Daemon) writeTraces(ctx context.Context) error {
	var last []byte
	for ctx.Err() == nil {
		text, err := json.Marshal(d.metal.bootTraces())
		if err == nil && !bytes.Equal(text, last) {
			err = atomicfile.Write(recordsFile, text, 0o600)
			last = text
		}
		if err != nil {
			d.log.Debug("records not kept", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
		}
	}
	return nil
}
