package installer

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// checkVersion refuses a node that this stick cannot join to the cluster as it is.
func (n *node) checkVersion(a *api) error {
	if n.inService() {
		return nil // it has its programs already
	}

	is, err := a.set.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask for the version of the cluster: %w", err)
	}
	if err := checkSkew(is.GitVersion, assets.KubernetesVersion, n.ControlPlane); err != nil {
		return bringup.Permanent(err)
	}

	return nil
}

// checkSkew says why a node with the stick's Kubernetes cannot join a cluster of another version; nil if it can. A
// kubelet is never newer than its API server (https://kubernetes.io/releases/version-skew-policy/), patch releases
// apart; a control plane is made of the images that the cluster names, which are those of its own version.
func checkSkew(cluster, stick string, controlPlane bool) error {
	if cluster == stick || !controlPlane && minor(cluster) == minor(stick) {
		return nil
	}
	way := "add it with a stick of " + minor(cluster)
	if controlPlane {
		way = "add it with a stick of " + cluster
	}
	return fmt.Errorf("the cluster runs Kubernetes %s and this stick has %s: %s, or install the cluster's nodes again "+
		"with this one (docs/clusters.md)", cluster, stick, way)
}

// minor is the minor release of a version: v1.36 of v1.36.3.
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// nameProxyImage gives the node's image of kube-proxy the name by which the cluster asks for it, which is that of
// another patch release if another stick made the cluster. This stick has no image of that name.
func (n *node) nameProxyImage(ctx context.Context, a *api) error {
	set, err := a.set.AppsV1().DaemonSets("kube-system").Get(ctx, "kube-proxy", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil // kubeadm has not come so far
	}
	if err != nil {
		return fmt.Errorf("read daemon set kube-proxy: %w", err)
	}

	own := assets.ImageDomain + "/kube-proxy:" + assets.KubernetesVersion
	for _, c := range set.Spec.Template.Spec.Containers {
		if c.Image == own || minor(c.Image) != minor(own) {
			continue
		}

		_, err := n.runLocked(ctx, `
ctr --namespace k8s.io images tag --force "$1" "$2" >/dev/null
ctr --namespace k8s.io images label "$2" `+syncedLabel+` `+pinnedLabel+` >/dev/null
`, own, c.Image)
		if err != nil {
			return err
		}
	}

	return nil
}
