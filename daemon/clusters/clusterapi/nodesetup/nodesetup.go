// Package nodesetup renders what makes a machine of Cluster API a node by its cloud-init alone: one script, which a
// KubeadmConfig takes from a Secret as one of its files. What only this appliance knows is in it: where it is, its
// certificate and the key of its packages.
package nodesetup

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/netboot"
	"firstlight.dev/firstlight/daemon/metal/packages"
)

// The Secret that a KubeadmConfig names in files[].contentFrom, and its key. It is where hosts are.
const (
	SecretName = "firstlight-node"
	SecretKey  = "node-setup"
)

// Appliance is what a node has to know of it.
type Appliance struct {
	Addresses   []netip.Addr // where nodes are served, the likeliest first
	Authority   []byte       // its certificate, PEM
	PackagesKey []byte       // of its repository, armored
}

//go:embed node-setup.sh
var script string

// patch is a file of kubeadm's directory of patches (kubeadm.k8s.io/v1beta4, Patches).
type patch struct{ Name, Text string }

// patches are those of the control plane, and what is the same of every kubelet.
func patches() []patch {
	all := []patch{{"kubeletconfiguration+merge.yaml", manifest.PatientKubelet}}
	for _, part := range manifest.StaticPods() {
		name, text := manifest.StaticPodPatch(part, 0)
		all = append(all, patch{name, endLine(text)})
	}
	return all
}

// Render is the script. It has none of the marks of Jinja, through which cloud-init passes it.
func Render(a Appliance) ([]byte, error) {
	if len(a.Addresses) == 0 || len(a.Authority) == 0 || len(a.PackagesKey) == 0 {
		return nil, errors.New("render setup of nodes: address, certificate or key is missing")
	}

	network, err := manifest.Network{Pods: "@PODS@", Services: "@SERVICES@", APIHost: "@HOST@", APIPort: "@PORT@"}.YAML()
	if err != nil {
		return nil, err
	}

	t, err := template.New("node-setup").Parse(script)
	if err != nil {
		return nil, fmt.Errorf("parse setup of nodes: %w", err)
	}

	var b bytes.Buffer
	err = t.Execute(&b, map[string]any{
		"Addresses":    a.Addresses,
		"Authority":    endLine(a.Authority),
		"PackagesKey":  endLine(a.PackagesKey),
		"Network":      endLine(network),
		"HTTPPort":     netboot.HTTPPort,
		"RegistryPort": assets.RegistryPort,
		"Suite":        packages.Suite,
		"Patches":      patches(),

		"WorkerImages":       strings.Join(manifest.WorkerImages(), " "),
		"ControlPlaneImages": strings.Join(manifest.ControlPlaneImages(), " "),

		"SmallNode":     manifest.SmallNode,
		"ServiceWeight": manifest.ServiceWeight,
	})
	if err != nil {
		return nil, fmt.Errorf("render setup of nodes: %w", err)
	}

	for _, mark := range []string{"{{", "{%", "{#"} {
		if bytes.Contains(b.Bytes(), []byte(mark)) {
			return nil, fmt.Errorf("render setup of nodes: %q is a mark of Jinja", mark)
		}
	}

	return b.Bytes(), nil
}

// endLine is a text whose last line ends.
func endLine(text []byte) string { return strings.TrimRight(string(text), "\n") + "\n" }

// Secret has the script.
func Secret(a Appliance) (*corev1.Secret, error) {
	text, err := Render(a)
	if err != nil {
		return nil, err
	}

	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metal3.Namespace, Name: SecretName},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{SecretKey: text},
	}, nil
}
