package daemon

import (
	"context"
	"fmt"
	"io"
	"strings"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/appliance/host"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/clusters/contract/kubeconfig"
	"firstlight.dev/firstlight/daemon/clusters/workload"
	"firstlight.dev/firstlight/daemon/page"
)

// newPage wires the page for browsers to what `firstlightd status` and `firstlightd why` read, and to what other
// commands of firstlightd do.
func (d *Daemon) newPage(secrets *vault.Vault) *page.Server {
	sources := page.Sources{
		Document: d.Document,
		Why:      d.verifier.Why,
		Traces:   d.boot.Traces,
		Packets:  d.boot.Packets,
		Unknown:  d.metal.UnknownMachines,
		Site:     d.host.Site,
		Networks: d.host.Addresses,
		Host: func(name string) *metal3api.BareMetalHost {
			return d.metal.Hosts.FindHost(func(h *metal3api.BareMetalHost) bool { return h.Name == name })
		},
		LosableData:        d.metal.LosableData,
		ChangedCertificate: d.metal.ChangedCertificate,
		OtherServer:        d.metal.OtherServer,
		Workload: func(ctx context.Context, c status.Cluster) (workload.Contents, error) {
			text, err := d.readKubeconfig(ctx, c)
			if err != nil {
				return workload.Contents{}, err
			}
			return workload.Asker{}.Ask(ctx, text)
		},
		Pod: func(ctx context.Context, c status.Cluster, pod workload.PodRef) (workload.PodDetails, error) {
			text, err := d.readKubeconfig(ctx, c)
			if err != nil {
				return workload.PodDetails{}, err
			}
			return workload.Asker{}.AskPod(ctx, text, pod)
		},
		Log: func(ctx context.Context, c status.Cluster, of workload.LogRef) (workload.Log, error) {
			text, err := d.readKubeconfig(ctx, c)
			if err != nil {
				return workload.Log{}, err
			}
			return workload.Asker{}.AskLog(ctx, text, of)
		},
		NodeLogs: d.newNodeLogs(secrets).read,
		Chains: func(ctx context.Context, c status.Cluster) ([]workload.Chain, error) {
			text, err := d.readKubeconfig(ctx, c)
			if err != nil {
				return nil, err
			}
			return workload.Asker{}.AskChains(ctx, text)
		},

		Numbers:     d.history.Samples,
		Update:      d.updateState,
		Writing:     d.updates.State,
		SiteText:    d.host.Document,
		SiteHistory: d.siteHistory.List,
		DHCP:        d.servedNetworks,
		Secrets:     func(ctx context.Context) vault.Listing { return vault.List(ctx, "", d.kubernetes.REST) },
	}
	deeds := page.Deeds{
		API:      d.kubernetes.REST,
		Approve:  d.finder.Approve,
		Adopt:    d.metal.Adopt,
		TrustBMC: d.metal.TrustBMC,
		Reload:   d.reload,

		EndMaintenance: d.metal.EndMaintenance,
		Erase:          d.metal.Erase,
		Replace:        d.metal.Replace,
		Kubeconfig:     d.readKubeconfig,
		Bundle: func(ctx context.Context, w io.Writer) error {
			return NewCollector(ctx, status.SocketPath, d.kubernetes.REST).Write(ctx, w)
		},

		WatchConsole:  d.watchConsole,
		TypeAtConsole: d.typeAtConsole,

		Rotate: d.rotate,

		ReadSite: func() ([]byte, error) {
			text, _, err := d.siteStore.Read()
			return text, err
		},
		ReplaceSite: d.replaceSite,
		PreviewSite: d.metal.Preview,

		ReadTenant: func(
			ctx context.Context, c status.Cluster, as rest.ImpersonationConfig, name string,
		) (workload.TenantSpec, error) {
			text, err := d.readKubeconfig(ctx, c)
			if err != nil {
				return workload.TenantSpec{}, err
			}
			return workload.Asker{As: as}.ReadTenant(ctx, text, name)
		},
		PutTenant: func(
			ctx context.Context, c status.Cluster, as rest.ImpersonationConfig, t workload.TenantSpec, dryRun bool,
		) error {
			text, err := d.readKubeconfig(ctx, c)
			if err != nil {
				return err
			}
			return workload.Asker{As: as}.PutTenant(ctx, text, t, dryRun)
		},
		RemoveTenant: func(ctx context.Context, c status.Cluster, as rest.ImpersonationConfig, t workload.TenantID) error {
			text, err := d.readKubeconfig(ctx, c)
			if err != nil {
				return err
			}
			return workload.Asker{As: as}.RemoveTenant(ctx, text, t)
		},

		PreviewUpdate: d.updates.preview,
		BeginUpdate:   d.updates.begin,
		Restart:       restart,

		Uploads: (&uploadsReach{authority: secrets.Authority}).get,
	}

	return page.New(d.log, sources, deeds, audit.PageFile, secrets.Authority)
}

// servedNetworks is what the DHCP server of each network does that the site asks for one on.
func (d *Daemon) servedNetworks() (all []page.NetworkDHCP) {
	if n := d.host.Site().Networks.Provisioning; n != nil && n.DHCP.Mode != "none" {
		all = append(all, page.NetworkDHCP{
			Role:   host.Provisioning,
			Status: d.boot.DHCPStatus(),
			Leases: d.boot.ActiveLeases(),
		})
	}
	for _, role := range []string{host.BMC, host.Baremetal} {
		if s, asked := d.networkDHCP.Status(role); asked {
			all = append(all, page.NetworkDHCP{Role: role, Status: s, Leases: d.networkDHCP.ActiveLeases(role)})
		}
	}
	return all
}

// readKubeconfig is the log-in of a cluster's administrator: what the installer left, or the Secret of Cluster API. The
// error is for people.
func (d *Daemon) readKubeconfig(ctx context.Context, c status.Cluster) ([]byte, error) {
	if c.Kind != status.KindCluster {
		return kubeconfig.ReadInstalled(contract.Dir, c.Name)
	}

	api, err := d.metal.Client()
	if err != nil {
		return nil, err
	}
	return readClusterSecret(ctx, api, c)
}

// findKubeconfig is the log-in of the administrator of the cluster that a reference names, as status.ClusterRef makes it.
// One that is installed and that the API does not name, or not now, is found by its name. The error is for people.
func (d *Daemon) findKubeconfig(ctx context.Context, ref string) ([]byte, error) {
	all := d.Document().Clusters
	if c, ok := status.FindCluster(all, ref); ok {
		return d.readKubeconfig(ctx, c)
	}
	if err := checkOneName(all, ref); err != nil {
		return nil, err
	}
	return kubeconfig.ReadInstalled(contract.Dir, ref)
}

// checkOneName is an error if several clusters have a name.
func checkOneName(all []status.Cluster, name string) error {
	var same []string
	for _, c := range all {
		if c.Name == name {
			same = append(same, status.ClusterRef(all, c))
		}
	}
	if len(same) > 1 {
		return fmt.Errorf("several clusters are called %s; name one of them: %s", name, strings.Join(same, ", "))
	}
	return nil
}

// readClusterSecret is what Cluster API keeps of a cluster. One that is not to be handed to anyone is an error.
func readClusterSecret(ctx context.Context, api client.Reader, c status.Cluster) ([]byte, error) {
	secret := &corev1.Secret{}
	name := client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-kubeconfig"}
	err := api.Get(ctx, name, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("cluster %s has no kubeconfig yet: there is no Secret %s", c.Name, name)
	case err != nil:
		return nil, fmt.Errorf("read Secret %s: %w", name, err)
	}

	text := secret.Data["value"]
	if err := kubeconfig.Check(text); err != nil {
		return nil, fmt.Errorf("the kubeconfig of cluster %s is not handed out: %w", c.Name, err)
	}
	return text, nil
}
