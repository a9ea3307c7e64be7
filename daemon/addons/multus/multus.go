// Package multus gives pods further network interfaces. It is compatible with Multus: the same CNI meta-plugin to its
// users, by the public interface of the Kubernetes Network Custom Resource Definition De-facto Standard, version 1.3
// (k8snetworkplumbingwg/multi-net-spec), and the CNI specification 1.1.
//
// It has two halves. Plugin is called by the container runtime for each pod and calls the plugins of the cluster's
// default network and of each network that the pod's annotation selects. Agent runs in a pod on each node, installs
// the plugin there, and renews the token by which it asks the API server.
package multus

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// Name is that of the plugin: its program in /opt/cni/bin, and its type in configurations.
const Name = "multus"

// Keys of annotations.
const (
	NetworksKey       = "k8s.v1.cni.cncf.io/networks"
	StatusKey         = "k8s.v1.cni.cncf.io/network-status"
	DefaultNetworkKey = "v1.multus-cni.io/default-network"
)

const (
	networkName = "multus-cni-network" // upstream's, of the configuration that the runtime reads
	confFile    = "00-multus.conflist"
	// systemNamespace has the definitions that DefaultNetworkKey names without a namespace, as upstream's.
	systemNamespace = "kube-system"
)

// Dirs are folders of the node, as the process sees them.
type Dirs struct {
	Programs string // of plugins
	Conf     string // of the runtime's configurations
	Networks string // configurations that definitions without spec.config name
	State    string // what was added to which pod
	Results  string // libcni's own, shared with the runtime, for the cluster's default network
	Kubelet  string // its socket that says which devices pods have
}

// NodeDirs are the folders below root.
func NodeDirs(root string) Dirs {
	return Dirs{
		Programs: filepath.Join(root, "/opt/cni/bin"),
		Conf:     filepath.Join(root, "/etc/cni/net.d"),
		Networks: filepath.Join(root, "/etc/cni/multus/net.d"),
		State:    filepath.Join(root, "/var/lib/cni/multus"),
		Results:  filepath.Join(root, "/var/lib/cni"),
		Kubelet:  filepath.Join(root, "/var/lib/kubelet/pod-resources/kubelet.sock"),
	}
}

// kubeconfig is where the plugin's access to the API server is; upstream's is there, too.
func (d Dirs) kubeconfig() string { return filepath.Join(d.Conf, "multus.d", "multus.kubeconfig") }

// Conf is the plugin's own configuration.
type Conf struct {
	CNIVersion    string               `json:"cniVersion,omitempty"`
	Name          string               `json:"name,omitempty"`
	Type          string               `json:"type"`
	Capabilities  map[string]bool      `json:"capabilities,omitempty"`
	RuntimeConfig map[string]any       `json:"runtimeConfig,omitempty"`
	Valid         []types.GCAttachment `json:"cni.dev/valid-attachments,omitempty"`

	// Isolation keeps pods from definitions of other namespaces but those of GlobalNamespaces, commas between.
	Isolation        bool   `json:"namespaceIsolation,omitempty"`
	GlobalNamespaces string `json:"globalNamespaces,omitempty"`

	// Draining is set when the add-on was removed. New pods get the default network alone; what pods have is deleted
	// with them. With the last of these the configuration goes.
	Draining bool `json:"draining,omitempty"`
}

// ParseConf reads the configuration that the runtime hands to the plugin.
func ParseConf(text []byte) (Conf, error) {
	var c Conf
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("read the configuration of plugin %s: %w", Name, err)
	}
	return c, nil
}

// checkNamespace says why a pod of one namespace may not use a definition of another.
func (c Conf) checkNamespace(pod, definition string) error {
	if !c.Isolation || pod == definition {
		return nil
	}
	for name := range strings.SplitSeq(c.GlobalNamespaces, ",") {
		if strings.TrimSpace(name) == definition {
			return nil
		}
	}
	return fmt.Errorf("pods of namespace %s may not use definitions of namespace %s; create it in %s, or have %s added to "+
		"globalNamespaces of ConfigMap %s/multus", pod, definition, pod, definition, systemNamespace)
}
