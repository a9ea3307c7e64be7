package assets

// Versions of what assets/build pins, which are also the tags of its container images; a test
// compares them with the recipe.
const (
	KubernetesVersion = "v1.36.3"
	EtcdVersion       = "v3.6.16"
	CoreDNSVersion    = "v1.14.2"
	PauseVersion      = "3.10.2"
	ContainerdVersion = "v1.7.35"
	ClusterAPIVersion = "v1.14.2"
)
