// Package clusterapi brings Cluster API onto the appliance: its kinds, its managers with their rights and webhooks, and
// the inventory that clusterctl reads. All of it is from the manifests of the very module that the managers are
// compiled from; docs/cluster-api.md walks through it.
package clusterapi

import (
	"fmt"
	"path"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/daemon/appliance/ca"
)

// Repository is the offline repository of clusterctl on the appliance, by provider and version. The manifests that
// the appliance applies are those of the repository.
const Repository = "/usr/share/firstlight/cluster-api"

// Provider is one manager of Cluster API, with the names that its manifest gives it.
type Provider struct {
	Name         string // in the repository and in labels: cluster-api
	Type         string // of clusterctl's inventory: CoreProvider
	ProviderName string // of clusterctl's inventory, there with its type: kubeadm
	Components   string // its file in the repository
	Image        string // its container image
	Namespace    string
	Prefix       string   // of its Deployment, Service and Secret
	Args         []string // besides those of its manifest
}

// Providers are the managers of the appliance, the one that the others need first.
func Providers() []Provider {
	return []Provider{
		{
			Name:         "cluster-api",
			Type:         "CoreProvider",
			ProviderName: "cluster-api",
			Components:   "core-components.yaml",
			Image:        "cluster-api-controller",
			Namespace:    "capi-system",
			Prefix:       "capi",
		},
		{
			Name:         "bootstrap-kubeadm",
			Type:         "BootstrapProvider",
			ProviderName: "kubeadm",
			Components:   "bootstrap-components.yaml",
			Image:        "kubeadm-bootstrap-controller",
			Namespace:    "capi-kubeadm-bootstrap-system",
			Prefix:       "capi-kubeadm-bootstrap",
		},
		{
			Name:         "control-plane-kubeadm",
			Type:         "ControlPlaneProvider",
			ProviderName: "kubeadm",
			Components:   "control-plane-components.yaml",
			Image:        "kubeadm-control-plane-controller",
			Namespace:    "capi-kubeadm-control-plane-system",
			Prefix:       "capi-kubeadm-control-plane",
			// A control plane on a slow machine answers late, and one that did not is asked again soon, not after ten minutes.
			Args: []string{"--etcd-dial-timeout-duration=1m", "--etcd-call-timeout-duration=1m", "--sync-period=2m"},
		},
	}
}

// Infrastructure is the provider of the rack's hosts. Its controllers run elsewhere (package metal3provider); clusterctl
// finds the template of clusters by it.
func Infrastructure() Provider {
	return Provider{
		Name:         "infrastructure-metal3",
		Type:         "InfrastructureProvider",
		ProviderName: "metal3",
		Components:   "infrastructure-components.yaml",
		Namespace:    "metal3",
	}
}

// Deployment is the name of the manager's Deployment.
func (p Provider) Deployment() string { return p.Prefix + "-controller-manager" }

// secret is where the manager's pod finds the certificate of its webhook.
func (p Provider) secret() string { return p.Prefix + "-webhook-service-cert" }

// service is what the API server calls the webhook by.
func (p Provider) service() string { return p.Prefix + "-webhook-service" }

// manifest is the provider's file in a repository.
func (p Provider) manifest(repository string) string {
	return path.Join(repository, p.Name, assets.ClusterAPIVersion, p.Components)
}

// image is the manager's container image.
func (p Provider) image() string {
	return fmt.Sprintf("%s/%s:%s", assets.ImageDomain, p.Image, assets.ClusterAPIVersion)
}

// names are what the certificate of the webhook is valid for.
func (p Provider) names() ca.Names {
	host := p.service() + "." + p.Namespace + ".svc"
	return ca.Names{Of: host, DNS: []string{host, host + ".cluster.local"}}
}
