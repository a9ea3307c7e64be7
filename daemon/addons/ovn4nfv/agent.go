package ovn4nfv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/daemon/addons/cniprogram"
	"firstlight.dev/firstlight/daemon/addons/ovn"
	"firstlight.dev/firstlight/daemon/addons/removal"
)

// Agent keeps the CNI plugin on one node, and the node's part of provider networks.
type Agent struct {
	Node      string     // its name
	Address   netip.Addr // its own
	Dirs      Dirs       // of the node, as this pod has them mounted
	Self      string     // this program
	Installer *cniprogram.Installer
	Config    *rest.Config // the pod's account, which the plugin uses as well
	Client    kubernetes.Interface
	Objects   dynamic.Interface
	Events    record.EventRecorder
	Log       *slog.Logger

	datapath ovn.Datapath      // "" until the kernel was asked
	said     map[string]string // by what it is about, the last sentence
}

const agentEvery = 5 * time.Second

// Run repairs what is on the node until ctx ends. If it ends because the DaemonSet was removed, the node gets its interfaces
// back; after a mere restart of the pod they stay.
func (a *Agent) Run(ctx context.Context) error {
	for {
		a.say("plugin", nil, a.install(ctx))
		a.say("providers", nil, a.connect(ctx))
		a.say("ports", nil, removeStalePorts(ctx))
		a.say("routes", nil, a.routePods(ctx))
		select {
		case <-ctx.Done():
			return a.leave(context.WithoutCancel(ctx))
		case <-time.After(agentEvery):
		}
	}
}

// say logs a fault once, and makes an Event of it if it is about an object.
func (a *Agent) say(about string, object runtime.Object, err error) {
	if a.said == nil {
		a.said = map[string]string{}
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if a.said[about] == text {
		return
	}
	a.said[about] = text
	if err == nil {
		a.Log.Info("it is as it should be again", "node", a.Node, "what", about)
		return
	}
	a.Log.Warn("it is not as it should be", "node", a.Node, "what", about, "error", err)
	if object != nil {
		a.Events.Event(object, corev1.EventTypeWarning, "NetworkNotReady", "node "+a.Node+": "+text)
	}
}

// install puts the plugin on the node, and what it reads.
func (a *Agent) install(ctx context.Context) error {
	settings, err := a.readSettings(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return fmt.Errorf("encode the plugin's settings: %w", err)
	}
	access, err := cniprogram.EncodeAccess(a.Config)
	if err != nil {
		return err
	}
	if token, err := os.ReadFile(a.Config.BearerTokenFile); err == nil {
		fresh := rest.CopyConfig(a.Config)
		fresh.BearerToken = strings.TrimSpace(string(token))
		if access, err = cniprogram.EncodeAccess(fresh); err != nil {
			return err
		}
	}

	if err := os.MkdirAll(filepath.Dir(a.Dirs.settings()), 0o700); err != nil {
		return fmt.Errorf("write the plugin's settings: %w", err)
	}
	return errors.Join(
		atomicfile.WriteChanged(a.Dirs.settings(), text, 0o600),
		atomicfile.WriteChanged(a.Dirs.kubeconfig(), access, 0o600),
		a.Installer.Ensure(a.Self, Name, true))
}

const (
	// mostMTU is upstream's of pods' interfaces.
	mostMTU = 1400
	// geneveSize is what a tunnel adds to a packet by IPv4, with the options that OVN writes.
	geneveSize = 58
)

// readSettings reads what the plugin needs to know of the node and its cluster.
func (a *Agent) readSettings(ctx context.Context) (Settings, error) {
	keep, mtu, err := readConnected(a.Address)
	if err != nil {
		return Settings{}, err
	}
	if a.datapath == "" {
		a.datapath = ovn.FindDatapath()
	}
	s := Settings{MTU: min(mostMTU, mtu-geneveSize), Keep: keep, Userspace: a.datapath == ovn.Userspace}

	config, err := a.Client.CoreV1().ConfigMaps(systemNamespace).Get(ctx, "kubeadm-config", metav1.GetOptions{})
	if err != nil {
		return s, fmt.Errorf("read the cluster's networks: %w", err)
	}
	s.Keep, err = addClusterNetworks(s.Keep, config.Data["ClusterConfiguration"])
	return s, err
}

// addClusterNetworks adds those of pods and Services that kubeadm's configuration names (kubeadm.k8s.io, networking).
func addClusterNetworks(keep []netip.Prefix, text string) ([]netip.Prefix, error) {
	var cluster struct {
		Networking struct {
			PodSubnet     string `json:"podSubnet"`
			ServiceSubnet string `json:"serviceSubnet"`
		} `json:"networking"`
	}
	if err := yaml.Unmarshal([]byte(text), &cluster); err != nil {
		return keep, fmt.Errorf("read the cluster's networks: %w", err)
	}
	for _, list := range []string{cluster.Networking.PodSubnet, cluster.Networking.ServiceSubnet} {
		for one := range strings.SplitSeq(list, ",") {
			p, err := netip.ParsePrefix(strings.TrimSpace(one))
			if err == nil && p.Addr().Is4() && !slices.Contains(keep, p.Masked()) {
				keep = append(keep, p.Masked())
			}
		}
	}
	return keep, nil
}

// connect connects the node's interfaces of provider networks, and takes back those of networks that are gone.
func (a *Agent) connect(ctx context.Context) error {
	node, err := a.Client.CoreV1().Nodes().Get(ctx, a.Node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the node: %w", err)
	}
	list, err := a.Objects.Resource(providers).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil // the kind is not there yet
	}
	if err != nil {
		return fmt.Errorf("read provider networks: %w", err)
	}

	objects := map[string]runtime.Object{}
	var wanted []Network
	kept := map[string]bool{}
	for i := range list.Items {
		object := &list.Items[i]
		n, _, err := readObject(object)
		if err != nil {
			kept[n.switchName()] = true // the operator says what is wrong; what it had stays
			continue
		}
		if n.Provider.Nodes.Matches(labels.Set(node.Labels)) {
			wanted = append(wanted, n)
			objects[n.String()] = object
		}
	}
	slices.SortFunc(wanted, func(x, y Network) int { return strings.Compare(x.String(), y.String()) })

	faults, err := connectProviders(ctx, wanted, kept, a.Address)
	for _, n := range wanted {
		a.say("network "+n.String(), objects[n.String()], faults[n.String()])
	}
	return err
}

// leave is what a pod does that is ending.
func (a *Agent) leave(ctx context.Context) error {
	removed, err := removal.IsRemoved(ctx, a.Client.AppsV1().DaemonSets(systemNamespace), AgentName)
	if err != nil {
		a.Log.Warn("interfaces stay: whether the add-on was removed is unknown", "error", err)
		return nil
	}
	if !removed {
		return nil
	}
	a.Log.Info("the add-on was removed; the node gets its interfaces back", "node", a.Node)
	_, err = connectProviders(ctx, nil, nil, a.Address)
	return errors.Join(err, os.Remove(a.Dirs.kubeconfig()))
}
