package page

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/appliance/console"
	"firstlight.dev/firstlight/daemon/appliance/metrics"
	"firstlight.dev/firstlight/daemon/appliance/sitedocument"
	"firstlight.dev/firstlight/daemon/appliance/stickupdate"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/clusters/workload"
	"firstlight.dev/firstlight/pxe/boottrace"
	"firstlight.dev/firstlight/pxe/capture"
)

// state is all that the sources say at one moment.
type state struct {
	doc     status.Document
	unknown []status.Node
	traces  []boottrace.Trace
	details []status.UnknownMachine
	hosts   map[string]*metal3api.BareMetalHost
	site    *site.Site

	losable      map[string]string
	certificates map[string]string
	otherServers map[string]string

	packets   map[string][]capture.Exchange // by MAC
	nodeLogs  map[string][]NodeLog          // by node; one without any cannot be asked
	dhcp      []NetworkDHCP
	workloads map[string]workload.Contents // by cluster; one without any does not answer
	pods      map[workload.PodRef]workload.PodDetails
	logs      map[workload.LogRef]workload.Log
	chains    map[string]func() []workload.Chain // by cluster; one without any does not answer
	numbers   []metrics.Sample
	writing   stickupdate.BackgroundState
	updates   func() UpdateState // nil: the stick cannot be read
	siteText  []byte
	history   []sitedocument.Entry
}

func (s *state) sources() Sources {
	return Sources{
		Document: func() status.Document {
			d := s.doc
			if d.Summary == "Ready" {
				d.Summary = console.Headline(d) // as the daemon does
			}
			return d
		},
		Why:      func() []status.Node { return append(append([]status.Node{}, s.doc.Nodes...), s.unknown...) },
		Traces:   func() []boottrace.Trace { return s.traces },
		Packets:  s.readPackets,
		Unknown:  func() []status.UnknownMachine { return s.details },
		Site:     func() *site.Site { return s.site },
		Networks: func() []status.Address { return s.doc.Addresses },
		Host:     func(name string) *metal3api.BareMetalHost { return s.hosts[name] },

		LosableData:        func(name string) string { return s.losable[name] },
		ChangedCertificate: func(name string) string { return s.certificates[name] },
		OtherServer:        func(name string) string { return s.otherServers[name] },

		Workload: func(_ context.Context, c status.Cluster) (workload.Contents, error) {
			if w, ok := s.workloads[c.Name]; ok {
				return w, nil
			}
			return workload.Contents{}, errors.New("https://172.22.1.5:6443: i/o timeout")
		},
		Pod: func(_ context.Context, _ status.Cluster, pod workload.PodRef) (workload.PodDetails, error) {
			if d, ok := s.pods[pod]; ok {
				return d, nil
			}
			return workload.PodDetails{}, fmt.Errorf("pod %s is not there any more", pod)
		},
		Log: func(_ context.Context, _ status.Cluster, of workload.LogRef) (workload.Log, error) {
			if l, ok := s.logs[of]; ok {
				return l, nil
			}
			return workload.Log{}, fmt.Errorf("container %s is not valid for pod %s", of.Container, of.Pod.Name)
		},
		NodeLogs: func(_ context.Context, node string) ([]NodeLog, error) {
			if logs, ok := s.nodeLogs[node]; ok {
				return logs, nil
			}
			return nil, errors.New("no log is shown, as its secrets cannot be hidden: the API server is away")
		},
		Chains: func(_ context.Context, c status.Cluster) ([]workload.Chain, error) {
			if read, ok := s.chains[c.Name]; ok {
				return read(), nil
			}
			return nil, errors.New("https://172.22.1.5:6443: i/o timeout")
		},
		SiteText:    func() []byte { return s.siteText },
		SiteHistory: func() []sitedocument.Entry { return s.history },
		DHCP:        func() []NetworkDHCP { return s.dhcp },
		Numbers:     func() []metrics.Sample { return s.numbers },
		Writing:     func() stickupdate.BackgroundState { return s.writing },
		Update: func() (UpdateState, error) {
			if s.updates == nil {
				return UpdateState{}, errors.New("the stick is gone")
			}
			return s.updates(), nil
		},
		Secrets: func(context.Context) vault.Listing { return listing() },
	}
}

// readPackets is a source: of one machine the capture is torn.
func (s *state) readPackets(mac string) ([]capture.Exchange, error) {
	if mac == tornMAC {
		return s.packets[mac], errors.New("read capture of " + mac + ": unexpected EOF")
	}
	return s.packets[mac], nil
}

// newServer is a server of a state that can do nothing, with an authority of its own. Its API server knows the roles.
func newServer(t testing.TB, of *state) *Server {
	return newServerWith(t, of, Deeds{API: newAPIServer(t).deeds().API})
}

func newServerWith(t testing.TB, of *state, deeds Deeds) *Server {
	authority, err := ca.Open(t.TempDir(), time.Now)
	require.NoError(t, err)
	log := filepath.Join(t.TempDir(), "page.log")
	s := New(slog.New(slog.DiscardHandler), of.sources(), deeds, log, func() (*ca.Authority, error) { return authority, nil })
	// On a busy machine an answer may take longer than people wait for it.
	s.reviews.timeout, s.reviews.wait = hung, hung
	s.workloads.timeout, s.workloads.wait = hung, hung
	s.secrets.timeout, s.secrets.wait = hung, hung
	s.pods.timeout, s.pods.wait = hung, hung
	s.versions.timeout, s.versions.wait = hung, hung
	s.logs.timeout, s.logs.wait = hung, hung
	s.chains.timeout, s.chains.wait = hung, hung
	s.packets.timeout, s.packets.wait = hung, hung
	s.nodeLogs.timeout, s.nodeLogs.wait = hung, hung
	s.tenants.add("edge/alpha", changedAlpha())
	s.drafts.key = keyOfDrafts
	s.drafts.add([]byte(draftText), sitedocument.Digest(of.siteText), new(site.Site), &site.Site{Name: "rack-8"})
	return s
}

// ready is an appliance that came up and whose site names no node.
func ready() *state {
	return &state{
		site:    &site.Site{Networks: site.Networks{Provisioning: &site.Network{}}},
		hosts:   map[string]*metal3api.BareMetalHost{},
		updates: versions,
		doc: status.Document{
			Name:    "firstlight-ab12",
			Version: "0.1.0",
			State:   status.StateReady,
			Summary: "Ready",
			Next:    "Power on the servers on the provisioning network.",
			Started: time.Now().Add(-time.Hour),
			Stages: []status.Stage{
				{Name: "links-up", Title: "Networks get their addresses", Fact: "Every network role has a bridge.", State: status.StateReady},
				{Name: "ironic-ready", Title: "Ironic starts", Fact: "Ironic answers.", State: status.StateReady},
			},
			Addresses: []status.Address{
				{Role: "provisioning", Interface: "provisioning", Addresses: []string{"172.22.0.1/24"}},
				{Role: "baremetal", Interface: "baremetal", Addresses: []string{"10.10.110.20/24"},
					NICs: []status.NIC{{Name: "eno1", MAC: "52:54:00:00:00:01", Link: true}}},
			},
			Launch:   status.Launch{State: status.LaunchNothing, Text: "The site names no node."},
			Firewall: &status.Firewall{Table: "inet firstlight", Loaded: true},
		},
	}
}

// rack is an appliance with so many nodes: of each ten, one needs a person, three are on their way, the others are in
// service. One machine more is unknown.
func rack(nodes int) *state {
	s := ready()
	s.doc.Launch = status.Launch{
		State: status.LaunchRunning, Text: "Nodes are on their way.", Nodes: nodes, Elapsed: 754, Limit: 7200,
	}
	s.doc.Next = "Do what is written next to the nodes; firstlightd why NODE says more."
	for i := range nodes {
		name := fmt.Sprintf("node-%03d", i)
		n := status.Node{
			Name:    name,
			State:   "provisioning",
			Rule:    "writing",
			Why:     "has its image written to /dev/nvme0n1, 1.2 of 2.4 GB",
			Since:   time.Now().Add(-3 * time.Minute),
			Percent: 60 + i%30,
			Preflight: []status.Check{
				{Name: "bmc-login", State: status.CheckOK, Text: "logs in as admin"},
				{Name: "bmc-power", State: status.CheckOK, Text: "is off"},
			},
		}
		on := true
		switch i % 10 {
		case 0:
			n.State, n.Rule, n.Percent, on = "registering", "bmc-password", 5, false
			n.Why = "its BMC refuses the password"
			n.Next = "Correct nodes[" + name + "].bmc.password in site.yaml, then run firstlightd reload."
			n.Preflight[0] = status.Check{
				Name: "bmc-login", State: status.CheckFailed, Text: "401 Unauthorized", Fix: "Correct the password.",
			}
		case 1, 2, 3:
		default:
			n.State, n.Rule, n.Why, n.Percent, n.Verified = "provisioned", "proven", "is installed and proven", 100, true
			n.Address = fmt.Sprintf("172.22.1.%d", i%250+1)
			n.Checks = []status.Check{{Name: "boots-disk", State: status.CheckOK, Text: "/dev/nvme0n1"}}
			s.doc.Launch.Verified++
		}
		s.doc.Nodes = append(s.doc.Nodes, n)
		s.hosts[name] = host(name, i, on)
	}

	s.unknown = []status.Node{{
		Name:  "52:54:00:99:00:01",
		State: "absent",
		Rule:  "stranger",
		Why:   "booted from the network, and the site does not name it",
		Next:  "firstlightd unknown prints an entry for site.yaml.",
	}}
	s.details = []status.UnknownMachine{{
		MAC: "52:54:00:99:00:01", Model: "Maker Box 9", Serial: "S9", CPUs: 8, Memory: 16 << 30,
		Disks: []status.UnknownDisk{{Name: "/dev/sda", Bytes: 480e9}},
		NICs:  []status.UnknownNIC{{Name: "eth0", MAC: "52:54:00:99:00:01", Link: true}},
	}}
	at := time.Now().Add(-2 * time.Minute)
	s.traces = []boottrace.Trace{
		{MAC: mac(1), Addr: netip.MustParseAddr("172.22.0.51"), Since: at, Boots: 2, Marks: []boottrace.Mark{
			{Step: boottrace.StepDiscover, Time: at, Count: 1},
			{Step: boottrace.StepLease, Time: at.Add(time.Second), Count: 1, Detail: "172.22.0.51"},
			{Step: boottrace.StepRamdisk, Time: at.Add(9 * time.Second), Count: 1, Detail: "ramdisk.img",
				Bytes: 12e6, Total: 80e6, Error: "the connection ended"},
		}},
		{MAC: "52:54:00:99:00:01", Since: at, Boots: 1, Marks: []boottrace.Mark{{Step: boottrace.StepDiscover, Time: at}}},
	}
	s.packets, s.nodeLogs = recordedBoots(at), recordedNodeLogs()
	s.doc.Clusters = []status.Cluster{
		{Name: "edge", State: "ready", Nodes: "3/3", Text: "is verified", Namespace: "default", Kind: status.KindProvisioning,
			Members: []status.ClusterNode{{Name: "edge-1", Roles: []string{"master"}, Host: "metal3/node-006", Address: "172.22.1.7",
				State: "installed"}},
			Checks:  []status.Check{{Name: "DNS", State: status.CheckOK, Text: "every node resolves names"}},
			Checked: time.Now().Add(-time.Hour)},
		{Name: "lab", Namespace: "default", Kind: status.KindProvisioning, Log: "/opt/kud/multi-cluster/lab/log/2.log", State: "failed", Nodes: "1/2", Percent: 40, Error: "node lab-2 has no address", Members: []status.ClusterNode{
			{Name: "lab-1", Roles: []string{"control-plane"}, Host: "metal3/node-004", Address: "172.22.1.5", State: "ready"},
			{Name: "lab-2", Roles: []string{"worker"}, Host: "metal3/node-005", State: "waiting", Reason: "no lease"},
		}},
	}
	s.workloads = map[string]workload.Contents{"edge": contents()}
	s.pods, s.logs = recordedPods()
	s.chains = map[string]func() []workload.Chain{"edge": passing(), "far": func() []workload.Chain { return nil }}
	s.doc.Components = components()
	s.siteText, s.history = recordedSite(nodes)
	s.dhcp = servedNetworks()
	s.numbers = hour(time.Now())
	s.doc.Artifacts = &status.Artifacts{
		URL: "https://172.22.0.1:9015/", Artifacts: 2, Stored: 3e9, Free: 20e9,
		Conditions:  []status.Check{{Name: "serving", State: status.CheckOK}},
		Collections: []status.Collection{{Name: "os_images", Artifacts: 2, Complete: 1, Stored: 3e9, Announced: 4e9}},
	}
	return s
}

func mac(i int) string { return fmt.Sprintf("52:54:00:00:%02x:%02x", i>>8, i&0xff) }

func host(name string, i int, on bool) *metal3api.BareMetalHost {
	h := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "metal3", ResourceVersion: "7", UID: types.UID("uid-" + name)}}
	h.Spec.BootMACAddress = mac(i)
	h.Spec.BMC = metal3api.BMCDetails{Address: fmt.Sprintf("redfish://10.30.0.%d/redfish/v1/Systems/1", i%250), CredentialsName: "secret-of-" + name}
	h.Status.PoweredOn = on
	h.Status.HardwareDetails = &metal3api.HardwareDetails{
		SystemVendor: metal3api.HardwareSystemVendor{Manufacturer: "Maker", ProductName: "Rack 2000", SerialNumber: fmt.Sprint("SN", i)},
		CPU:          metal3api.CPU{Count: 32, Model: "Processor 5", Arch: "x86_64"},
		RAMMebibytes: 262144,
		Storage: []metal3api.Storage{
			{Name: "/dev/nvme0n1", Type: metal3api.NVME, SizeBytes: 960e9, Model: "Disk 1", SerialNumber: fmt.Sprint("D", i)},
		},
		NIC: []metal3api.NIC{{Name: "eno1", MAC: mac(i), IP: "172.22.0.51"}, {Name: "eno2", MAC: mac(i + 1000)}},
	}
	return h
}

// begun is an appliance right after power: nothing is known.
func begun() *state {
	s := ready()
	s.doc = status.Document{
		Name: "firstlight-ab12", Version: "0.1.0", State: status.StateWorking,
		Summary: "Networks get their addresses: waits for a link", Next: "Nothing to do: it comes up automatically.",
		Stages: []status.Stage{
			{Name: "links-up", Title: "Networks get their addresses", Fact: "Every network role has a bridge.",
				State: status.StateWorking, Waiting: "waits for a link", Error: errors.New("no NIC has a link").Error()},
			{Name: "ironic-ready", Title: "Ironic starts", Fact: "Ironic answers.", State: status.StateWaiting},
			{Name: "cluster-api-ready", Title: "Cluster API starts", Fact: "It runs.", State: status.StateWaiting, AfterReady: true},
		},
	}
	return s
}

// stopped is an appliance with a site that is wrong.
func stopped() *state {
	s := begun()
	s.doc.State = status.StateFailed
	s.doc.Summary = "The site document is read: site.yaml:3: unknown key <script>alert(1)</script>"
	s.doc.Next = "Correct site.yaml on the stick's SITE partition, then restart this machine: systemctl reboot"
	s.doc.Stages[0] = status.Stage{Name: "site-read", Title: "The site document is read", Fact: "The site is known.", State: status.StateFailed,
		Error: "site.yaml:3: unknown key <script>alert(1)</script>"}
	return s
}
