// Package devpush lists the programs of the image that a developer may push into an appliance that runs: the workstation
// compiles them, the appliance puts them over its own and restarts what runs them.
package devpush

import (
	"fmt"
	"slices"
	"strings"
)

// Program is one that may be pushed. Its file is at Path of the root, or in the layer of an image.
type Program struct {
	Name  string // as developers type it
	Build string // name of the program in the recipe; several parts of the appliance may run one
	Path  string // on the appliance's root, or in the layer of Image
	Image string // of the appliance, without registry and tag; "": the program is on the root
	Unit  string // that runs it; "" for none
	Pods  []Pods // that run it
	Does  string // for people
}

// Pods are pods of one namespace.
type Pods struct {
	Namespace string
	Selector  string // of labels, as kubectl takes it; "": all of them
}

// daemon is where the root has firstlightd.
const daemon = "/usr/bin/firstlightd"

// Programs are all programs that may be pushed, in the order in which they are listed to people.
func Programs() []Program {
	return []Program{
		{Name: "firstlightd", Build: "firstlightd", Path: daemon, Unit: "firstlightd.service",
			Does: "the daemon; it then replaces the pods of bpa, kpa and artifacts"},
		{Name: "registry", Build: "firstlightd", Path: daemon, Unit: "firstlight-registry.service",
			Does: "the registry of container images"},
		{Name: "bpa", Build: "firstlightd", Path: daemon,
			Pods: []Pods{{"bpa", "app.kubernetes.io/name=bpa-operator"}},
			Does: "the operator of clusters, with the Metal3 provider of Cluster API"},
		{Name: "kpa", Build: "firstlightd", Path: daemon,
			Pods: []Pods{{"bpa", "app.kubernetes.io/name=kpa-operator"}}, Does: "the operator of components"},
		{Name: "artifacts", Build: "firstlightd", Path: daemon,
			Pods: []Pods{{"artifacts", "app.kubernetes.io/name=artifacts"}}, Does: "the REST API of uploads"},
		{Name: "baremetal-operator", Build: "baremetal-operator", Path: "/baremetal-operator", Image: "baremetal-operator",
			Pods: []Pods{{"metal3", "control-plane=controller-manager"}}, Does: "the operator of BareMetalHosts"},
		{Name: "cluster-api", Build: "cluster-api", Path: "/cluster-api", Image: "cluster-api-controller",
			Pods: []Pods{
				{"capi-system", ""}, {"capi-kubeadm-bootstrap-system", ""}, {"capi-kubeadm-control-plane-system", ""},
			},
			Does: "the managers of Cluster API"},
		{Name: "containerd", Build: "containerd", Path: "/usr/bin/containerd", Unit: "containerd.service",
			Does: "the container runtime; containers go on"},
	}
}

// Elsewhere are the other programs of the recipe, each with the reason why it cannot be pushed.
func Elsewhere() map[string]string {
	const ofNodes = "nodes of clusters get it in an image whose digest is in the image index of the stick"
	return map[string]string{
		"firstlight-init":        "it has ended when the appliance runs",
		"firstlight-node":        ofNodes,
		"firstlight-addons":      ofNodes,
		"kubernetes":             "all of the appliance's containers depend on it",
		"containerd-shim":        "every container that runs has it",
		"etcd":                   "the appliance's state depends on it",
		"coredns":                "it is compiled as it comes",
		"pause":                  "it holds every pod of the appliance",
		"cni":                    "every pod starts by it",
		"metrics-server":         ofNodes,
		"local-path-provisioner": ofNodes,
	}
}

// Find is the program of that name. The error lists those that there are.
func Find(name string) (Program, error) {
	all := Programs()
	if i := slices.IndexFunc(all, func(p Program) bool { return p.Name == name }); i >= 0 {
		return all[i], nil
	}

	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.Name
	}
	if why, ok := Elsewhere()[name]; ok {
		return Program{}, fmt.Errorf("%s cannot be pushed: %s; build an image. These can: %s", name, why,
			strings.Join(names, ", "))
	}
	return Program{}, fmt.Errorf("there is no program %s to push; there are %s", name, strings.Join(names, ", "))
}

// SameFile are the programs whose file is that of p, in the order of Programs.
func (p Program) SameFile() []Program {
	return slices.DeleteFunc(Programs(), func(q Program) bool { return q.Path != p.Path || q.Image != p.Image })
}
