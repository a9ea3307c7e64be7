package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/devpush"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/clusters/bpa"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/clusterapi"
	"firstlight.dev/firstlight/daemon/clusters/kpa"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/mirror"
	"firstlight.dev/firstlight/daemon/metal/netboot"
	"firstlight.dev/firstlight/daemon/metal/provisioning"
)

// clusters is the part of the plan that makes the nodes of metal into workload clusters.
type clusters struct {
	log    *slog.Logger
	site   func() *site.Site // with its defaults, and with the nodes that metal leaves to Cluster API
	metal  *provisioning.Provisioner
	mirror *mirror.Mirror       // what nodes of clusters are made of
	nodes  func() []status.Node // of the site, each with whether it is proven
	// hostKey is the SSH host key of a verified node, as in authorized_keys, and whether a default user was logged in to.
	hostKey func(node string) (key string, adopted bool)

	clusterAPI metal3provider.Installation
	verifier   clusterapi.Verifier
	nodeSetup  apply.Cache // of the Secret that machines of Cluster API become nodes by
	hostRights apply.Cache // of what the operator may read of hosts

	mu     sync.Mutex
	all    []status.Cluster
	isRead bool
	owners bpa.Owners

	components []status.Component
}

func (c *clusters) stages() []bringup.Stage {
	provisionings := func() []v1alpha1.Provisioning { return bpa.Provisionings(c.metal.Site()) }
	return append(
		bpa.Stages(c.operator, provisionings, c.metal.Client),
		clusterapi.SiteHostsStage(c.site, c.metal.Client),
	)
}

// followers are the stages that follow Ready.
func (c *clusters) followers() []bringup.Stage {
	return []bringup.Stage{
		kpa.Stage(programID, c.metal.Client),
		clusterapi.Stage(c.metal.Vault.Authority, c.metal.Client),
		clusterapi.ClassStage(c.classImage, c.metal.Client),
		clusterapi.SiteClustersStage(c.site, c.nodeImage, c.metal.Client),
	}
}

// operator is what its pod is made from.
func (c *clusters) operator() (bpa.Operator, error) {
	digest, err := programID()
	if err != nil {
		return bpa.Operator{}, err
	}

	s := c.metal.Site()
	return bpa.Operator{
		Installer: assets.InstallerImage,
		Site:      string(s.Name),
		Proposal:  bpa.ProposalMode(s),
		LeaseFile: netboot.LeaseFile,
		LeaseDir:  filepath.Dir(netboot.LeaseFile),
		Digest:    digest,
		Agent:     vault.AgentSocket,

		Allowed: s.Appliance.InstallerImages,
	}, nil
}

// watch keeps how the clusters stand, for the status, and tells the operator which hosts are
// proven.
func (c *clusters) watch(ctx context.Context, up func() bool) error {
	if !rerun.Await(ctx, up) {
		return nil
	}
	cleaned := false
	var machines clusterapi.Clusters
	for {
		api, err := c.metal.Client()
		if err != nil {
			return err
		}
		cached := apply.NewCachedReader(api) // what one look does not show, the next one does

		if !cleaned {
			if err := bpa.RemoveFormerKeys(ctx, api); err != nil {
				return err
			}
			cleaned = true
		}

		hosts, _ := c.metal.Hosts.List()
		for name, value := range verifiedLabelChanges(c.nodes(), hosts) {
			if err := setVerifiedLabel(ctx, api, name, value, c.hostKey); err != nil {
				return err
			}
		}

		if err := c.metal.LabelDevices(ctx, api, hosts); err != nil {
			c.log.Warn("what a host's inspection found of its devices is not on the host yet", "error", err)
		}

		if err := c.serveClusterAPI(ctx, api, hosts); err != nil {
			c.log.Warn("the provider of Cluster API has not all that it needs", "error", err)
		}

		provisionings, err := bpa.ListProvisionings(ctx, cached)
		if err != nil {
			return err
		}

		updates, err := bpa.ListNodeUpdates(ctx, cached)
		if err != nil {
			return err
		}

		if read, err := clusterapi.ReadClusters(ctx, cached); err != nil {
			c.log.Warn("clusters of Cluster API are shown as they were", "error", err)
		} else {
			machines = read
			c.verifier.Follow(ctx, api, machines)
		}
		asked, err := clusterapi.SiteClusters(c.site(), c.nodeImage)
		if err != nil {
			c.log.Debug("what the site asks of its clusters is not compared", "error", err)
		}
		all := append(bpa.StatusOf(provisionings, updates, hosts), machines.Status(hosts, asked)...)

		err = errors.Join(bpa.GrantNamespaces(ctx, api, provisionings), c.grantHosts(ctx, api, hosts))
		if err != nil {
			c.log.Warn("the operator of clusters has not its rights everywhere", "error", err)
		}

		components, err := c.serveComponents(ctx, api, provisionings)
		if err != nil {
			return err
		}

		c.mu.Lock()
		c.isRead = true
		c.all, c.owners, c.components = all, bpa.OwnersOf(provisionings), components
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(10 * time.Second):
		}
	}
}

// grantHosts lets the operator read what the hosts' systems were given. A host that comes is no fault of the operator, so
// no stage of the plan asks for this.
func (c *clusters) grantHosts(ctx context.Context, api client.Client, hosts []metal3api.BareMetalHost) error {
	set, err := bpa.HostRights(hosts)
	if err != nil || c.hostRights.CheckCurrent(ctx, set, api) == nil {
		return err
	}
	return set.Apply(ctx, api)
}

// known are the clusters as Clusters has them; false: they were not read since the daemon started.
func (c *clusters) known() ([]status.Cluster, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all), c.isRead
}

// Clusters is how they stood when last asked; never nil.
func (c *clusters) Clusters() []status.Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]status.Cluster{}, slices.Clone(c.all)...)
}

// Owners are those of the clusters when last asked.
func (c *clusters) Owners() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.owners.Names)
}

// OwnersAt are those of the clusters whose nodes have addresses; nil before they were asked for.
func (c *clusters) OwnersAt() map[netip.Addr]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.owners.At)
}

// verifiedLabelChanges are the hosts whose label differs from what was found out about them, with what it is to be: a
// node that is proven gets "true", one that is being installed anew loses it, and one without a system whose pre-flight
// and inspection passed gets label.VerifiedHardware.
func verifiedLabelChanges(nodes []status.Node, hosts []metal3api.BareMetalHost) map[string]string {
	byName := map[string]*metal3api.BareMetalHost{}
	for i := range hosts {
		byName[hosts[i].Name] = &hosts[i]
	}

	changes := map[string]string{}
	for _, n := range nodes {
		h := byName[n.Name]
		if h == nil {
			continue
		}

		value := h.Labels[label.Verified]
		switch {
		case n.Verified:
			value = "true"
		case metal3.InService(h):
			if value == label.VerifiedHardware {
				value = "" // that was said of the host before it had a system
			}
		case isHardwareVerified(n, h):
			value = label.VerifiedHardware
		default:
			value = ""
		}
		if value != h.Labels[label.Verified] {
			changes[n.Name] = value
		}
	}
	return changes
}

// isHardwareVerified reports whether a host waits for an image, and all that can be asked of it before was asked.
func isHardwareVerified(n status.Node, h *metal3api.BareMetalHost) bool {
	failed := slices.ContainsFunc(n.Preflight, func(c status.Check) bool { return c.State == status.CheckFailed })
	return !failed && h.Spec.Image == nil && h.Status.HardwareDetails != nil && h.Status.ErrorMessage == "" &&
		!metal3.IsOnHold(h) && h.Status.Provisioning.State == metal3api.StateAvailable
}

// setVerifiedLabel sets the label of a host, "" takes it away, and the annotation with the host key that was met. Of a
// host that is not proven only a key stays that the host's ramdisk has told.
func setVerifiedLabel(
	ctx context.Context, api client.Client, name, value string, hostKey func(string) (string, bool),
) error {
	mark, key, taken := "null", "null", "null"
	text, adopted := hostKey(name)
	proven := value == "true"
	if text != "" && (proven || !adopted) {
		key = fmt.Sprintf("%q", text)
	}
	if value != "" {
		mark = fmt.Sprintf("%q", value)
	}
	if proven && adopted {
		taken = `"true"`
	}

	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(
		nil, `{"metadata":{"labels":{%q:%s},"annotations":{%q:%s,%q:%s}}}`,
		label.Verified, mark, label.HostKey, key, label.PasswordTaken, taken,
	))
	h := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: metal3.Namespace, Name: name}}
	if err := api.Patch(ctx, h, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("mark host %s: %w", name, err)
	}

	return nil
}

// loginSecret is the Secret that a cluster names for the default user of its nodes' images, if a host is one of them
// by name or MAC.
func (c *clusters) loginSecret(ctx context.Context, h *metal3api.BareMetalHost) (namespace, secret string, err error) {
	api, err := c.metal.Client()
	if err != nil {
		return "", "", err
	}
	return findLoginSecret(ctx, api, h)
}

func findLoginSecret(
	ctx context.Context, api client.Reader, h *metal3api.BareMetalHost,
) (namespace, secret string, err error) {
	var all v1alpha1.ProvisioningList
	if err := api.List(ctx, &all); err != nil {
		return "", "", fmt.Errorf("list Provisionings: %w", err)
	}

	for i := range all.Items {
		if p := &all.Items[i]; p.Spec.CredentialsSecret != "" && namesHost(p, h) {
			return p.Namespace, p.Spec.CredentialsSecret, nil
		}
	}

	return "", "", nil
}

// namesHost reports whether a node of a Provisioning is this very host, whatever else may fit it.
func namesHost(p *v1alpha1.Provisioning, h *metal3api.BareMetalHost) bool {
	macs := map[string]bool{strings.ToLower(h.Spec.BootMACAddress): true}
	if d := h.Status.HardwareDetails; d != nil {
		for _, nic := range d.NIC {
			macs[strings.ToLower(nic.MAC)] = true
		}
	}

	for _, item := range slices.Concat(p.Spec.Masters, p.Spec.Workers) {
		for _, body := range item {
			if body != nil && (body.Host == h.Name || body.MACAddress != "" && macs[strings.ToLower(body.MACAddress)]) {
				return true
			}
		}
	}
	return false
}

// programID tells one daemon's program from another, without reading it: it has tens of megabytes. One that was pushed
// has the digest that came with it; on an appliance it is the hash of the root that it is on, elsewhere what the file
// system knows of its file.
var programID = remember(func() (string, error) {
	if pushed := devpush.RunningDigest(); pushed != "" {
		return pushed[:16], nil
	}
	if boot, err := stick.Load[stick.BootInfo](stick.BootInfoFile); err == nil && len(boot.Verity.RootHash) >= 16 {
		return boot.Verity.RootHash[:16], nil
	}

	info, err := os.Stat("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("read the daemon's own program: %w", err)
	}

	return fmt.Sprintf("%x-%x", info.Size(), info.ModTime().UnixNano()), nil
})

// remember asks until there is an answer, and gives that one from then on.
func remember[T any](ask func() (T, error)) func() (T, error) {
	var mu sync.Mutex
	var answer *T
	return func() (T, error) {
		mu.Lock()
		defer mu.Unlock()
		if answer != nil {
			return *answer, nil
		}

		got, err := ask()
		if err == nil {
			answer = &got
		}

		return got, err
	}
}
