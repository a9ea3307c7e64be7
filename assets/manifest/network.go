package manifest

import (
	"strings"

	"firstlight.dev/firstlight/assets"
)

// NodeImage has the programs of a node, in the layer of Kubernetes.
const NodeImage = assets.ImageDomain + "/node:v" + assets.Version

// MachinesImage has QEMU, for the pods of virtual machines.
const MachinesImage = assets.ImageDomain + "/machines:v" + assets.Version

// OVNImage has Open vSwitch and OVN, for the add-on of that name.
const OVNImage = assets.ImageDomain + "/ovn:v" + assets.Version

// Images of the add-ons of these names, in the versions of their projects.
const (
	MetricsImage   = assets.ImageDomain + "/metrics-server:v0.9.0"
	LocalPathImage = assets.ImageDomain + "/local-path-provisioner:v0.0.30"
)

// PackageVersion is the version of the Debian packages that are made of the one layer of NodeImage, by the digits of its
// digest. It names what they are made of: other programs are another version.
func PackageVersion(layer string) string {
	return strings.TrimPrefix(assets.KubernetesVersion, "v") + "-0firstlight" + assets.Version + "+" + layer[:min(12, len(layer))]
}

// Network is what makes the pods' network of a workload cluster, on every node, in the namespace kube-system. Fields
// are texts, because a script may fill them in.
type Network struct {
	Pods, Services   string // addresses of the whole cluster, each a prefix
	APIHost, APIPort string // of an API server, as a node reaches it without Services
}

// Image is where it comes from.
func (Network) Image() string { return NodeImage }

// YAML is its objects, as one stream.
func (n Network) YAML() ([]byte, error) { return Fill(manifests, "network.yaml", n) }
