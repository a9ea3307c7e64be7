package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/bpa/address"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// resolution is what is asked for with the hosts that were found for it.
type resolution struct {
	nodes    []match.Node
	spec     []match.Problem // with what is asked
	hosts    []match.Problem // with finding its hosts and their addresses
	rejected []match.Rejected
	members  []kud.Node // those that were found, in the order of nodes
}

// want is what the installer is to make true; nil if something is in the way.
func (a resolution) want(r *Provisionings, w *clusterState) *kud.Want {
	if len(a.spec)+len(a.hosts) > 0 {
		return nil
	}

	s := w.cr.Spec
	want := &kud.Want{
		Members:       a.members,
		Plugins:       w.plugins.install,
		PodSubnet:     s.PodSubnet,
		ServiceSubnet: s.ServiceSubnet,
		Image:         s.InstallerImage,
		Owner:         v1alpha1.OwnerOf(w.cr),
		Virtlet:       w.virtlet,
	}
	if want.Image == "" {
		want.Image = r.Installer
	}
	if want.Image == r.Installer { // another one knows nothing of it
		want.Rotation = w.dueRotation()
	}

	return want
}

// resolve finds a host and its address for each node that is asked for.
func (r *Provisionings) resolve(ctx context.Context, w *clusterState) (resolution, error) {
	var a resolution
	if a.nodes, a.spec = r.checkSpec(w); len(a.spec) > 0 {
		return a, nil
	}

	expected, _ := strconv.Atoi(w.cr.Annotations[label.ExpectedHosts]) // without it none is awaited
	found := w.hosts.Match(match.Want{
		Owner:     w.owner,
		Cluster:   w.cluster,
		Nodes:     a.nodes,
		Installed: w.record != nil,
		Expected:  expected,
	})
	a.hosts, a.rejected = found.Problems, found.Rejected
	if w.virtlet {
		a.hosts = virtualMachineWording(a.hosts)
	}

	used := map[netip.Addr]string{}
	for _, n := range a.nodes {
		at, ok := found.Hosts[n.Label]
		if !ok {
			continue
		}

		m, problem, err := r.resolveNode(ctx, w, n, w.hosts.All[at].Name)
		if err != nil {
			return a, err
		}

		if problem != nil {
			a.hosts = append(a.hosts, *problem)
		} else if first, twice := used[m.Address]; twice {
			a.hosts = append(a.hosts, match.Problem{Reason: AddressTwice, Waits: true,
				Sentence: fmt.Sprintf(
					"nodes %s and %s both have the address %s; give their NICs different ones", first, n.Label,
					m.Address,
				)})
		} else if m.Address.IsValid() {
			used[m.Address] = n.Label
		}

		a.members = append(a.members, m)
	}

	return a, nil
}

// virtualMachineWording puts problems into ICN's words for virtual machines, which are found or not.
func virtualMachineWording(problems []match.Problem) []match.Problem {
	for i, p := range problems {
		if p.Reason == match.HostNotFound {
			problems[i].Sentence = fmt.Sprintf("IP address not found for VM with MAC address %s: node %s: no running pod of virtlet has it; "+
				"correct the MAC, or start the virtual machine", p.Node.MAC, p.Node.Label)
		}
	}
	return problems
}

// resolveNode is a node with its host and the address at which that is reached. What an installed
// node was reached at is kept, unless something better than inspection says otherwise: a
// host in service may be switched off.
func (r *Provisionings) resolveNode(
	ctx context.Context,
	w *clusterState,
	n match.Node,
	host string,
) (kud.Node, *match.Problem, error) {
	m := kud.Node{
		Label:  n.Label,
		Master: n.Master,
		Worker: n.Worker,
		Host:   host,
		MAC:    n.MAC,
	}
	d, err := r.addressHost(ctx, w, host)
	if err != nil {
		return m, nil, err
	}

	var found address.Result
	if n.MAC != "" {
		found, err = address.ForNIC(d, n.MAC, w.leases, w.now)
	} else {
		found, err = address.ForHost(d, w.leases, w.now)
	}

	if old := recordedNode(w.record, m); old != nil && (err != nil || found.From == address.FromInspection) {
		m.MAC, m.Address, m.From = old.MAC, old.Address, old.From
		return m, nil, nil
	}

	var missing *address.MissingError
	if errors.As(err, &missing) {
		p := &match.Problem{
			Reason:   missing.Reason,
			Sentence: "node " + n.Label + ": " + missing.Sentence,
			Waits:    true,
			Node:     n,
		}
		if w.virtlet {
			p.Sentence = fmt.Sprintf(
				"IP address not found for VM with MAC address %s: node %s: pod %s has no address yet", n.MAC, n.Label,
				host,
			)
		}
		return m, p, nil
	} else if err != nil {
		return m, nil, err
	}

	m.MAC, m.Address, m.From = found.MAC, found.Addr, found.From
	if w.virtlet {
		m.From = "pod"
	}

	return m, nil, nil
}

// recordedNode is the same node on the same host in the record; nil if it is not there.
func recordedNode(record *kud.InstalledCluster, m kud.Node) *kud.Node {
	if record == nil {
		return nil
	}
	for i := range record.Members {
		if o := &record.Members[i]; o.Label == m.Label && o.Host == m.Host {
			return o
		}
	}
	return nil
}

// addressHost reads what the site gave a host's NICs, beside what inspection saw.
func (r *Provisionings) addressHost(ctx context.Context, w *clusterState, host string) (address.Host, error) {
	if w.virtlet {
		return w.vm[host], nil
	}

	b := w.bmh[host]
	var data []byte
	if ref := b.Spec.NetworkData; ref != nil && ref.Name != "" {
		namespace := ref.Namespace
		if namespace == "" {
			namespace = b.Namespace
		}

		var err error
		if data, err = r.secretKey(ctx, namespace, ref.Name, "networkData"); err != nil {
			return address.Host{}, err
		}
	}

	return addressHost(b, data)
}

// secretKey reads a key of a Secret; nil if either is not there.
func (r *Provisionings) secretKey(ctx context.Context, namespace, name, key string) ([]byte, error) {
	var s corev1.Secret
	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &s)
	if apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read Secret: %w", err)
	}

	return s.Data[key], nil
}

// warning is about what works and may surprise.
type warning struct {
	Reason   string // of the Event
	Sentence string
}

// Reasons of warnings.
const (
	EvenControlPlanes = "EvenControlPlanes"
	OldField          = "OldField"
	LabelDropped      = "LabelDropped"
	HostUncleared     = "HostUncleared"
	HostReinstalled   = "HostReinstalled" // of a control plane

	EnvironmentFiltered = "EnvironmentFiltered" // only an Event
)

// warnings are about what is asked, and about what the cluster left behind.
func (w *clusterState) warnings() []warning {
	all := specWarnings(w.cr.Spec)
	if text := w.plugins.sentence(); text != "" {
		all = append(all, warning{PluginsMissing, text})
	}
	if text := w.emptiedSentence(); text != "" {
		all = append(all, warning{HostReinstalled, text})
	}
	for _, l := range FindLeftovers(w.cluster, maps.Values(w.bmh)) {
		all = append(all, warning{HostUncleared, l.Sentence()})
	}
	return all
}

func specWarnings(s v1alpha1.ProvisioningSpec) []warning {
	var all []warning
	masters := 0
	for _, item := range s.Masters {
		masters += len(item)
	}

	if masters > 0 && masters%2 == 0 {
		all = append(all, warning{EvenControlPlanes, fmt.Sprintf("%d control planes bear the loss of %d, no more than %d would: "+
			"etcd continues with more than half; list one, three or five", masters, masters/2-1, masters-1)})
	}

	if text := match.UnlabelledWarning(s); text != "" {
		all = append(all, warning{LabelDropped, text})
	}

	for _, f := range []struct{ name, value, instead string }{
		{"hostfile", s.HostFile, "the inventory is " + contract.Dir + "/CLUSTER/" + contract.FileInventory},
		{"kudInstallerPath", s.KUDInstallerPath, "installerImage names another installer"},
		{"dhcpLeaseFile", s.DHCPLeaseFile, "leases are those of the appliance"},
		{"multiClusterDir", s.MultiClusterDir, "it is " + contract.Dir},
	} {
		if f.value != "" {
			all = append(
				all,
				warning{OldField, fmt.Sprintf(
					"spec.%s is of an older version and does nothing: %s", f.name, f.instead,
				)},
			)
		}
	}

	return all
}
