package installer

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// factsScript prints what the installer must know of a node before it changes anything, as name=value lines.
// It needs nothing but a shell and the essential packages of Debian.
const factsScript = `
. /etc/os-release
echo "os=$ID ${VERSION_ID:-}"
echo "arch=$(uname -m)"
echo "machineID=$(cat /etc/machine-id)"
echo "time=$(date +%s)"
echo "cpus=$(nproc)"
echo "memory=$(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo)"
echo "free=$(df -k --output=avail /var/lib | tail -n 1)"
test ! -d /run/systemd/system || echo systemd=yes
test ! -e /sys/fs/cgroup/cgroup.controllers || echo unified=yes
test ! -d /run/cloud-init || test -e /run/cloud-init/result.json || test -e /run/cloud-init/disabled || echo cloudInit=running
resolv=/run/systemd/resolve/resolv.conf
test -e $resolv || resolv=/etc/resolv.conf
echo "resolv=$resolv"
echo "nameservers=$(sed -n 's/^nameserver *//p' $resolv 2>/dev/null | tr '\n' ' ')"
if command -v apt-get >/dev/null; then echo apt=yes; fi
for conf in /etc/kubernetes/*.conf; do test ! -e "$conf" || echo kubernetes=yes; done
if test -e /etc/kubernetes/admin.conf; then
	sed -n 's/^ *- --cluster-cidr=/pods=/p; s/^ *- --service-cluster-ip-range=/services=/p' /etc/kubernetes/manifests/kube-controller-manager.yaml 2>/dev/null || true
	grep -qs '^ *client-certificate: ' /etc/kubernetes/kubelet.conf || echo halfMade=yes # kubeadm sets it among its last steps
fi
if test -s /etc/kubernetes/kubelet.conf && test -s /var/lib/kubelet/pki/kubelet-client-current.pem; then
	dpkg-query --show --showformat='${db:Status-Abbrev}${Version}\n' kubelet 2>/dev/null | sed -n 's/^ii */programs=/p'
fi
test ! -e /usr/local/lib/firstlight || echo linked=yes
test ! -e ` + systemAuthority + ` || echo systemAuthority=yes
sed -n 's/.*--node-ip=\([^ "]*\).*/nodeIP=\1/p' ` + kubeletFlags + ` 2>/dev/null || true
test ! -e /etc/kubernetes/pki/ca.crt || echo "authority=$(base64 -w 0 /etc/kubernetes/pki/ca.crt)"
test ! -e ` + markerPath + ` || echo "marker=$(base64 -w 0 ` + markerPath + `)"
`

// kubeletFlags is where kubeadm writes what the kubelet is told of its own node.
const kubeletFlags = "/var/lib/kubelet/kubeadm-flags.env"

// markerPath says on a node which cluster it is part of.
const markerPath = "/etc/firstlight/cluster.json"

// facts are a node as look found it.
type facts struct {
	OS          string
	Arch        string
	MachineID   string
	Time        time.Time
	CPUs        int
	Memory      int64 // KiB
	Free        int64 // KiB, where Kubernetes keeps things
	Systemd     bool  // runs the machine
	Unified     bool  // cgroup version 2
	CloudInit   bool  // is still at work
	Resolv      string
	Nameservers []netip.Addr // none of them of this node only
	Apt         bool         // packages are Debian's
	Kubernetes  bool         // there is one, whoever made it
	Authority   string       // authorityDigests of its ca.crt
	Marker      *marker
	NodeIP      netip.Addr // that its kubelet is told; invalid if there is none
	Programs    string     // version of the packages of a node that is part of a cluster; "" if it is not, or they are not there
	Linked      bool       // it has programs of an earlier version, which were no packages

	SystemAuthority bool // all of its programs trust the appliance's authority

	// Of a control plane.
	HalfMade     bool         // it was begun and never whole
	PodsWere     netip.Prefix // what it was made with
	ServicesWere netip.Prefix
}

// marker is what a node says of itself.
type marker struct {
	Cluster string `json:"cluster"`
	ID      string `json:"id"` // of this life of the cluster: one made anew under the same name is another
	Label   string `json:"label"`
}

// parseFacts reads what look printed. What it does not know it passes over.
func parseFacts(text string) (facts, error) {
	var f facts
	var wrong []error
	number := func(value string) int64 {
		n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%q is not a number", value))
		}
		return n
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), "=")
		switch key {
		case "os":
			f.OS = strings.TrimSpace(value)
		case "arch":
			f.Arch = value
		case "machineID":
			f.MachineID = value
		case "time":
			f.Time = time.Unix(number(value), 0)
		case "cpus":
			f.CPUs = int(number(value))
		case "memory":
			f.Memory = number(value)
		case "free":
			f.Free = number(value)
		case "systemd":
			f.Systemd = true
		case "unified":
			f.Unified = true
		case "cloudInit":
			f.CloudInit = true
		case "resolv":
			f.Resolv = value
		case "nameservers":
			for _, word := range strings.Fields(value) {
				if a, err := netip.ParseAddr(word); err == nil && !a.IsLoopback() && a.Zone() == "" {
					f.Nameservers = append(f.Nameservers, a)
				}
			}
		case "apt":
			f.Apt = true
		case "kubernetes":
			f.Kubernetes = true
		case "authority":
			text, err := base64.StdEncoding.DecodeString(value)
			if err != nil {
				wrong = append(wrong, fmt.Errorf("read its authority: %w", err))
			}
			f.Authority = authorityDigests(text)
		case "programs":
			f.Programs = value
		case "linked":
			f.Linked = true
		case "systemAuthority":
			f.SystemAuthority = true
		case "nodeIP":
			f.NodeIP, _ = netip.ParseAddr(value)
		case "halfMade":
			f.HalfMade = true
		case "pods":
			f.PodsWere, _ = netip.ParsePrefix(value)
		case "services":
			f.ServicesWere, _ = netip.ParsePrefix(value)
		case "marker":
			m, err := parseMarker(value)
			if err != nil {
				wrong = append(wrong, err)
			}
			f.Marker = m
		}
	}

	if f.Arch == "" || f.MachineID == "" || f.Resolv == "" {
		wrong = append(wrong, errors.New("it said too little"))
	}

	if len(wrong) > 0 {
		return facts{}, fmt.Errorf("read what the node said: %w", errors.Join(wrong...))
	}

	return f, nil
}

func parseMarker(value string) (*marker, error) {
	text, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", markerPath, err)
	}
	if len(strings.TrimSpace(string(text))) == 0 {
		return nil, nil // its write was cut off, before anything followed from it
	}

	m := &marker{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("read %s: %w", markerPath, err)
	}

	return m, nil
}

// What a node needs at least. kubeadm asks for 1,700 MB where a control plane runs.
const (
	leastControlPlane = 1_500 << 10 // KiB
	leastWorker       = 700 << 10
	leastFree         = 2 << 20 // before anything of Kubernetes is there
)

// checkFit says why a node cannot be part of a cluster; nil if it can.
func checkFit(f facts, controlPlane bool) error {
	least := int64(leastWorker)
	if controlPlane {
		least = leastControlPlane
	}

	switch {
	case f.CloudInit:
		return bringup.Wait("cloud-init, which still sets it up")
	case f.Arch != "x86_64":
		return bringup.Permanent(fmt.Errorf("its processor is %s; the stick carries programs for x86_64", f.Arch))
	case f.Memory < least:
		return bringup.Permanent(fmt.Errorf("it has %d MiB of memory; its role needs %d MiB", f.Memory>>10, least>>10))
	case !f.Apt:
		return bringup.Permanent(errors.New("it has no apt, by which it gets Kubernetes; use an image of Debian 13"))
	case f.Linked:
		return bringup.Permanent(errors.New("its Kubernetes is from an earlier version of the appliance, which kept it in " +
			"/usr/local/lib/firstlight; use a stick of that version, or install the node's system again"))
	case f.Free < leastFree && !f.Kubernetes:
		return fmt.Errorf("%d MiB are free in its /var/lib, %d MiB are needed; free some", f.Free>>10, leastFree>>10)
	}

	return nil
}

// checkAddress says why a node cannot have another address than before; nil if it has the same, or can. A control
// plane's is in its certificates, in etcd's list of members, and in every other node's way to the API.
func checkAddress(f facts, at netip.Addr, controlPlane bool) error {
	if !controlPlane || !f.Kubernetes || f.HalfMade || !f.NodeIP.IsValid() || f.NodeIP == at {
		return nil
	}
	return bringup.Permanent(fmt.Errorf("its control plane was made at %s, and it is reached at %s now; a control plane does not move: give it %[1]s again, by nodes[].links in site.yaml or on the node itself", f.NodeIP, at))
}

// checkOwner says whether a node may be made part of the cluster m.Cluster with the id m.ID as m.Label: nil if
// it is free or that already. Nothing that another cluster may need is ever taken away here.
func checkOwner(f facts, m marker, authority string) error {
	const way = "; if what is on it may go, install its system again (docs/clusters.md, \"A node of another cluster\")"
	switch {
	case f.Marker == nil && !f.Kubernetes:
		return nil
	case f.Marker == nil:
		return bringup.Permanent(errors.New("it holds a Kubernetes that this appliance did not make" + way))
	case f.Marker.Cluster != m.Cluster:
		return bringup.Permanent(fmt.Errorf("it belongs to cluster %s%s", f.Marker.Cluster, way))
	case f.Marker.ID != m.ID:
		return bringup.Permanent(fmt.Errorf("it belongs to an earlier cluster %s%s", m.Cluster, way))
	case f.Marker.Label != m.Label:
		return bringup.Permanent(fmt.Errorf(
			"it is %s of this cluster, not %s; give it its name back, or remove %[1]s first", f.Marker.Label, m.Label,
		))
	case authority != "" && f.Authority != "" && !shareAuthority(f.Authority, authority):
		return bringup.Permanent(errors.New("its certificates are of another cluster's authority" + way))
	}
	return nil
}
