package manifest

import (
	_ "embed"

	"firstlight.dev/firstlight/assets"
)

//go:embed network.yaml
var network string

// NodeImage has the programs of a node, in the layer of Kubernetes.
const NodeImage = assets.ImageDomain + "/node:v" + assets.Version

// Network is what makes the pods' network of a workload cluster, on every node, in the namespace kube-system. Fields
// are texts, because a script may fill them in.
type Network struct {
	Pods, Services   string // addresses of the whole cluster, each a prefix
	APIHost, APIPort string // of an API server, as a node reaches it without Services
}

// Image is where it comes from.
func (Network) Image() string { return NodeImage }

// YAML is its objects, as one stream.
func (n Network) YAML() ([]byte, error) { return fill("network.yaml", network, n) }
