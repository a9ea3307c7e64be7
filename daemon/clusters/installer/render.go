package installer

import (
	"bytes"
	"embed"
	"net/netip"
	"strconv"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/clusters/contract/inventory"
)

//go:embed templates/*
var templates embed.FS

// Endpoint is where, on every node, the API servers are reached.
var Endpoint = netip.MustParseAddrPort("127.0.0.1:7443")

// Where things are on a node.
const (
	patchDir      = "/etc/firstlight/patches"
	authorityPath = "/etc/firstlight/ca.crt"

	packagesKeyPath = "/etc/firstlight/packages.asc"
	sourcesPath     = "/etc/apt/sources.list.d/firstlight.sources"       // of the stick, from which alone the installer takes
	ownerPath       = "/etc/apt/sources.list.d/firstlight-owner.sources" // of the owner's uploads
	preferencesPath = "/etc/apt/preferences.d/firstlight"
)

// values are what the templates may use.
type values struct {
	Settings
	inventory.Node
	facts
	Domain, Version, Etcd, Pause string
	NodeImage, InstallerImage    string
	Patches                      string
	Kubelet                      string // what is the same of every one
	ControlPlanes                []inventory.Node
	NodeBits                     int
	Endpoint                     netip.AddrPort
	Registry                     netip.AddrPort
	Appliance                    netip.Addr

	Join                 bool
	Token, AuthorityHash string
}

// Settings are what the operator may decide of a cluster.
type Settings struct {
	Cluster        string
	Pods, Services netip.Prefix
	Owner          string // whose uploads its nodes get beside what the stick has; "": nobody's
}

func newValues(s Settings, inv inventory.Inventory) values {
	return values{
		Settings:       s,
		Domain:         assets.ImageDomain,
		Version:        assets.KubernetesVersion,
		Etcd:           assets.EtcdVersion,
		Pause:          assets.PauseVersion,
		NodeImage:      manifest.NodeImage,
		InstallerImage: assets.InstallerImage,
		Patches:        patchDir,
		Kubelet:        manifest.PatientKubelet,
		ControlPlanes:  inv.ControlPlanes(),
		NodeBits:       nodeBits(s.Pods),
		Endpoint:       Endpoint,
	}
}

// nodeBits is how the pods' addresses are divided among nodes: 254 for each where there is room for 16
// nodes at least, else as many as leave that room.
func nodeBits(pods netip.Prefix) int {
	if pods.Addr().Is6() {
		return max(64, pods.Bits()+4)
	}
	return min(max(24, pods.Bits()+4), 28)
}

// render fills one of the templates.
func render(name string, v any) ([]byte, error) {
	return manifest.Fill(templates, "templates/"+name, v)
}

// renderFiles fills templates into files.
func renderFiles(v values, list []file) ([]file, error) {
	var files []file
	for _, f := range list {
		text, err := render(string(f.data), v)
		if err != nil {
			return nil, err
		}
		files = append(files, file{f.path, f.mode, text})
	}
	return files, nil
}

// hostFiles are what a node needs before Kubernetes; data names the template.
func hostFiles(v values, a *appliance) ([]file, error) {
	list := []file{
		{"/etc/containerd/certs.d/" + assets.ImageDomain + "/hosts.toml", 0o644, []byte("hosts.toml")},
		{"/etc/containerd/certs.d/_default/hosts.toml", 0o644, []byte("hosts.toml")},
		{patchDir + "/kubeletconfiguration+merge.yaml", 0o644, []byte("kubelet-patch.yaml")},
		{sourcesPath, 0o644, []byte("firstlight.sources")},
	}
	if v.Owner != "" {
		list = append(
			list, file{ownerPath, 0o644, []byte("owner.sources")},
			file{preferencesPath, 0o644, []byte("apt-preferences")},
		)
	}

	files, err := renderFiles(v, list)
	for _, part := range manifest.StaticPods() {
		name, text := manifest.StaticPodPatch(part, 0)
		files = append(files, file{patchDir + "/" + name, 0o644, text})
	}

	return append(files, file{authorityPath, 0o644, a.authority}, file{packagesKeyPath, 0o644, a.packagesKey}), err
}

// containerdUnit is configured by the package firstlight-containerd, which is for machines with systemd and version 2 of
// cgroups. On others a file takes the place of what it says of Kubernetes.
func containerdUnit(v values) (unit, error) {
	var list []file
	if !v.Systemd || !v.Unified {
		list = []file{{"/etc/containerd/conf.d/60-firstlight.toml", 0o644, []byte("containerd.toml")}}
	}

	files, err := renderFiles(v, list)
	return unit{"containerd.service", append(files, timerSlackFiles("containerd.service", v.facts)...)}, err
}

// timerSlackFiles is how exact the timers of a service are, and of the pods that it starts.
func timerSlackFiles(unit string, f facts) []file {
	if text := manifest.TimerSlack(f.CPUs); text != nil {
		return []file{{"/etc/systemd/system/" + unit + ".d/60-firstlight.conf", 0o644, text}}
	}
	return nil
}

func endpointUnit(v values) (unit, error) {
	files, err := renderFiles(
		v, []file{{"/etc/systemd/system/firstlight-endpoint.service", 0o644, []byte("endpoint.service")}},
	)
	return unit{"firstlight-endpoint.service", files}, err
}

const certificatesTimer = "firstlight-certificates.timer"

func certificateFiles(v values) ([]file, error) {
	return renderFiles(v, []file{
		{"/etc/systemd/system/firstlight-certificates.service", 0o644, []byte("certificates.service")},
		{"/etc/systemd/system/" + certificatesTimer, 0o644, []byte("certificates.timer")},
	})
}

// systemManifest is what every cluster has besides kubeadm's own: the pods' network and the name server.
func systemManifest(v values, nameservers []netip.Addr, replicas int) ([]byte, error) {
	network, err := manifest.Network{
		Pods:     v.Pods.String(),
		Services: v.Services.String(),
		APIHost:  v.Endpoint.Addr().String(), // the node's own proxy
		APIPort:  strconv.Itoa(int(v.Endpoint.Port())),
	}.YAML()
	if err != nil {
		return nil, err
	}

	dns, err := manifest.CoreDNS{
		Address:     site.NthAddress(v.Services, 10),
		Nameservers: nameservers,
		Replicas:    replicas,
		PullPolicy:  "IfNotPresent",
	}.YAML()
	return bytes.Join([][]byte{network, dns}, []byte("\n---\n")), err
}
