package manifest

import "firstlight.dev/firstlight/assets"

// WorkerImages are what a node has before Kubernetes starts there, the one first whose layer the others share. CoreDNS is
// among them everywhere: the appliance may be switched off when a name server moves to another node.
func WorkerImages() []string {
	return []string{
		NodeImage,
		imageOf("kube-proxy", assets.KubernetesVersion),
		imageOf("pause", assets.PauseVersion),
		imageOf("coredns", assets.CoreDNSVersion),
	}
}

// ControlPlaneImages are those, and what a control plane runs besides.
func ControlPlaneImages() []string {
	return append(WorkerImages(),
		imageOf("kube-apiserver", assets.KubernetesVersion),
		imageOf("kube-controller-manager", assets.KubernetesVersion),
		imageOf("kube-scheduler", assets.KubernetesVersion),
		imageOf("etcd", assets.EtcdVersion),
	)
}

func imageOf(name, tag string) string { return assets.ImageDomain + "/" + name + ":" + tag }
