package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/extent"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/appliance/kube"
	"firstlight.dev/firstlight/daemon/appliance/metrics"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/metal/ironic"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/verify"
	"firstlight.dev/firstlight/pxe/server"
)

// What the image carries for nodes.
const (
	ironicImage   = assets.ImageDomain + "/ironic:29.0.5"
	operatorImage = assets.ImageDomain + "/baremetal-operator:v0.6.0"
	operatorFile  = "/usr/share/firstlight/metal3/operator.yaml"
	ramdiskDir    = "/usr/share/firstlight/ramdisk"
	nodeImages    = "/usr/share/firstlight/images/os"
	ironicState   = "/var/lib/ironic"
)

// Where things are kept on DATA.
const (
	authorityDir = stick.DataDir + "/ca"
	secretDir    = stick.DataDir + "/secret"
	recordDir    = stick.DataDir + "/hosts"
	sshDir       = stick.DataDir + "/ssh"
	leaseDir     = stick.DataDir + "/dhcp"
	httpRoot     = stick.DataDir + "/http" // what machines load; Ironic's conductor writes there
)

const httpPort = 6180 // of the boot server

// metal is what provisions nodes: the part of the plan after Kubernetes.
type metal struct {
	log  *slog.Logger
	site func() *site.Site
	salt func() string // the same for ever on one appliance
	kube *kube.Cluster

	hosts   *metal3.Hosts
	keys    *metal3.Keys
	changed chan struct{} // a host did
	found   *metal3.Inspections

	ironicClient *ironic.Client

	mu           sync.Mutex
	authority    *ca.Authority
	hashes       map[string]string // of passwords; a hash costs a tenth of a second
	api          client.Client
	apiConfig    *rest.Config // that api was made from
	progress     []metal3.Progress
	indexed      string           // the packages that the index was written for
	invalidNodes map[string]error // nodes of the site that cannot become objects

	metricParts   metrics.Parts                              // counters of what serves the site
	serving       atomic.Pointer[server.Server]              // what answers on the wire now
	preflightGate func(node string) (ok bool, reason string) // asked before a node is first switched on
}

func newMetal(log *slog.Logger, s func() *site.Site, salt func() string, k *kube.Cluster) *metal {
	records := metal3.Backups{Dir: recordDir, Log: log}
	m := &metal{
		log: log, site: s, salt: salt, kube: k, hashes: map[string]string{}, changed: make(chan struct{}, 1),
		hosts: &metal3.Hosts{Files: httpRoot, Backups: records, Log: log},
		keys:  &metal3.Keys{Dir: sshDir},
	}
	m.ironicClient = &ironic.Client{Access: m.ironicAccess}
	m.found = &metal3.Inspections{Ask: m.ironicClient.DiskContents}
	return m
}

// stages are metal's part of the plan.
func (m *metal) stages() []bringup.Stage {
	return []bringup.Stage{
		{
			Name: "wire-serving",
			Fact: "DHCP, TFTP and HTTP answer on the provisioning network, with a ramdisk that trusts this appliance",
			Why:  "Ironic hands out what is served here. It is served from early on, whatever becomes of Kubernetes: a server in service that boots from the network must be told to boot its disk.",
			Done: m.bootServicesDone,
		},
		m.mirrorStage(),
		metal3.OperatorStage(m.operator, m.client),
		metal3.GuardStage(m.client),
		m.ironicStage(),
		verify.Stage(m.site, m.client),
		metal3.RegistrationStage(m.nodeObjects, m.reconciler),
	}
}

func (m *metal) addr() netip.Addr { return m.site().Networks.Provisioning.Address }

func (m *metal) fileURL() string { return "http://" + netip.AddrPortFrom(m.addr(), httpPort).String() }

// ca is the appliance's authority, opened or minted when it is first asked for.
func (m *metal) ca() (*ca.Authority, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.authority == nil {
		a, err := ca.Open(authorityDir, time.Now)
		if err != nil {
			return nil, err
		}
		m.authority = a
	}
	return m.authority, nil
}

// client speaks to the API and knows Metal3's kinds and the operator's.
func (m *metal) client() (client.Client, error) {
	config, err := m.kube.REST()
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.api != nil && m.apiConfig == config {
		return m.api, nil
	}
	scheme, err := metal3.Scheme()
	if err != nil {
		return nil, err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	m.api, m.apiConfig = c, config
	return c, nil
}

// kernelArgs are what every ramdisk's kernel is started with; docs/decisions/0009 says why the TSC is not
// watched.
const kernelArgs = "console=tty0 console=ttyS0,115200 tsc=nowatchdog"

func (m *metal) ironic() ironic.Config {
	return ironic.Config{Addr: m.addr(), HTTPPort: httpPort, Boot: 15 * time.Minute, KernelArgs: kernelArgs}
}

func (m *metal) pod() (ironic.Pod, error) {
	authority, err := m.ca()
	if err != nil {
		return ironic.Pod{}, err
	}
	pair, _, err := authority.Issue("ironic", ca.Names{CommonName: "ironic", Addrs: []netip.Addr{m.addr()}})
	if err != nil {
		return ironic.Pod{}, err
	}
	credentials, err := ironic.OpenCredentials(secretDir)
	if err != nil {
		return ironic.Pod{}, err
	}
	return ironic.Pod{
		Namespace: metal3.Namespace, Image: ironicImage, Config: m.ironic(), Credentials: credentials,
		Cert: pair.Cert, Key: pair.Key, CA: authority.PEM(), StateDir: ironicState, FilesDir: httpRoot,
	}, nil
}

// operatorManifest is read once: to decode its definitions takes longer than to ask whether they are applied.
var operatorManifest = remember(func() (metal3.Manifest, error) {
	text, err := os.ReadFile(operatorFile)
	if err != nil {
		return nil, fmt.Errorf("read the operator's manifest: %w", err)
	}
	return metal3.ReadManifest(text)
})

func (m *metal) operator() (metal3.Operator, error) {
	authority, err := m.ca()
	if err != nil {
		return metal3.Operator{}, err
	}
	hook, _, err := authority.Issue("operator-webhook", ca.Names{CommonName: metal3.WebhookService, DNS: metal3.WebhookNames()})
	if err != nil {
		return metal3.Operator{}, err
	}
	credentials, err := ironic.OpenCredentials(secretDir)
	if err != nil {
		return metal3.Operator{}, err
	}
	manifest, err := operatorManifest()
	if err != nil {
		return metal3.Operator{}, err
	}
	return metal3.Operator{
		Manifest: manifest, Image: operatorImage, IronicEndpoint: m.ironic().Endpoint(),
		KernelURL: m.fileURL() + "/ramdisk/kernel", RamdiskURL: m.fileURL() + "/ramdisk/initramfs",
		Username: credentials.Username, Password: credentials.Password, CA: authority.PEM(),
		WebhookCert: hook.Cert, WebhookKey: hook.Key, Limit: 100,
	}, nil
}

// nodeObjects are the objects that the site's nodes become.
func (m *metal) nodeObjects() ([]metal3.NodeObjects, error) {
	authority, err := m.ca()
	if err != nil {
		return nil, err
	}
	access, err := m.keys.AccessPublicKey()
	if err != nil {
		return nil, err
	}
	images, err := m.images()
	if err != nil {
		return nil, err
	}
	a := metal3.Appliance{Time: addrsOf(serviceAddresses(m.site())), Images: images, Key: access, HostKey: m.keys.Host, Hash: m.passwordHash, CA: authority.PEM()}
	nics, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list this machine's NICs: %w", err)
	}
	for _, nic := range nics {
		a.MACs = append(a.MACs, nic.HardwareAddr.String())
	}
	s := m.site()
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
	m.mu.Lock()
	defer m.mu.Unlock()
	m.invalidNodes = unfit
	return all, nil
}

// images are the operating systems on the stick, each with its digest beside it, and those
// that were brought to the appliance.
func (m *metal) images() (map[string]metal3.Image, error) {
	sums, err := filepath.Glob(nodeImages + "/*.sha256")
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
		image := metal3.Image{URL: m.fileURL() + "/images/" + file, SHA256: digest, Format: format}
		if format == "raw" {
			// Without a size it is not compared with disks.
			image.Size, _ = extent.Size(os.DirFS(stick.LowerDir), relative(strings.TrimSuffix(path, ".sha256")))
		}
		images[strings.TrimSuffix(file, "."+format)] = image
	}
	// What lies on the stick keeps its name.
	brought, err := m.uploadedImages()
	if err != nil {
		m.log.Error("uploaded images are not offered", "error", err)
	}
	maps.Copy(brought, images)
	return brought, nil
}

func (m *metal) passwordHash(password string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h, ok := m.hashes[password]; ok {
		return h, nil
	}
	h, err := site.NewSecret(password).CryptHash(m.salt())
	if err == nil {
		m.hashes[password] = h
	}
	return h, err
}

func (m *metal) reconciler() (metal3.Reconciler, error) {
	c, err := m.client()
	return metal3.Reconciler{
		Client:        c,
		Backups:       m.hosts.Backups,
		Log:           m.log,
		Contents:      m.found.Contents,
		AgentsDue:     m.ironicClient.AgentsDue,
		PreflightGate: m.preflightGate,
	}, err
}

// ramdisk is what a machine that nobody named boots, to be looked at.
func (m *metal) ramdisk() metal3.Ramdisk {
	return metal3.Ramdisk{Kernel: "ramdisk/kernel", Initrd: []string{"ramdisk/initramfs"}, Args: append([]string{
		"ipa-inspection-callback-url=" + m.ironic().Endpoint() + "/v1/continue_inspection", "ipa-inspection-collectors=default,contents",
	}, strings.Fields(kernelArgs)...)}
}

func (m *metal) bootServicesDone(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, name := range []string{"kernel", "initramfs"} {
		url := m.fileURL() + "/ramdisk/" + name
		request, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return bringup.Wait("the boot server to answer: %v", err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s is answered with %s", url, response.Status)
		}
	}
	return nil
}

// setProgress keeps how the hand-over stands, for the status.
func (m *metal) setProgress(all []metal3.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.progress = all
}
