package installer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// imagesOf are the images that a node has before Kubernetes starts there. CoreDNS is among them
// everywhere: the appliance may be switched off when a name server moves to another node.
func imagesOf(controlPlane bool) []string {
	at := func(name, tag string) string { return assets.ImageDomain + "/" + name + ":" + tag }
	images := []string{
		manifest.NodeImage, // the largest layer: kube-proxy and the control plane have it too
		at("kube-proxy", assets.KubernetesVersion),
		at("pause", assets.PauseVersion),
		at("coredns", assets.CoreDNSVersion),
	}
	if controlPlane {
		images = append(images,
			at("kube-apiserver", assets.KubernetesVersion),
			at("kube-controller-manager", assets.KubernetesVersion),
			at("kube-scheduler", assets.KubernetesVersion),
			at("etcd", assets.EtcdVersion))
	}

	return images
}

// Labels of an image in containerd. Pinned: the kubelet does not collect it.
const (
	syncedLabel = label.Synced + "=true"
	pinnedLabel = "io.cri-containerd.pinned=pinned"
)

// image is one as containerd has it.
type image struct {
	digest   string
	complete bool // has both labels
}

// parseImages reads `ctr images list`: REF TYPE DIGEST SIZE UNIT PLATFORMS LABELS under a heading.
func parseImages(out string) map[string]image {
	have := map[string]image{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 3 || !strings.HasPrefix(f[2], "sha256:") {
			continue
		}

		labels := strings.Split(f[len(f)-1], ",")
		have[f[0]] = image{f[2], slices.Contains(labels, syncedLabel) && slices.Contains(labels, pinnedLabel)}
	}
	return have
}

// missingImages are the images that containerd does not have as they should be, and those of them that are
// there in part or in another version: they go first.
func missingImages(want []string, digests map[string]string, have map[string]image) (missing, torn []string) {
	for _, name := range want {
		got, there := have[name]
		if got == (image{digests[name], true}) {
			continue
		}

		missing = append(missing, name)
		if there {
			torn = append(torn, name)
		}
	}
	return missing, torn
}

func (n *node) missingImages(ctx context.Context) (missing, torn []string, err error) {
	supply, err := n.loadAppliance(ctx, n.shell.LocalAddr())
	if err != nil {
		return nil, nil, err
	}

	out, err := n.shell.Run(ctx, nil, "ctr", "--namespace", "k8s.io", "images", "list")
	if err != nil {
		return nil, nil, err
	}

	have, digests := parseImages(out), supply.digests
	if n.inService() {
		digests = keepDigests(digests, have)
	}

	missing, torn = missingImages(imagesOf(n.ControlPlane), digests, have)
	return missing, torn, nil
}

func (n *node) imagesDone(ctx context.Context) error {
	missing, _, err := n.missingImages(ctx)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("%d container images are missing, the first is %s", len(missing), missing[0])
	}

	return nil
}

// imagesDo pulls what is missing from the appliance, one after the other: they share their largest layer.
func (n *node) imagesDo(ctx context.Context, report bringup.Report) error {
	missing, torn, err := n.missingImages(ctx)
	if err != nil || len(missing) == 0 {
		return err
	}

	if len(torn) > 0 {
		if _, err := n.runLocked(ctx, `ctr --namespace k8s.io images remove --sync "$@" >/dev/null`, torn...); err != nil {
			return err
		}
	}

	for i, name := range missing {
		report(fmt.Sprintf("pulling image %d of %d", i+1, len(missing)))
		_, err := n.runLocked(
			ctx, `ctr --namespace k8s.io images pull --hosts-dir /etc/containerd/certs.d "$1" >/dev/null`, name,
		)
		if err != nil {
			return n.explainFetch(ctx, err)
		}
	}

	report("waiting for the disk")
	_, err = n.runLocked(ctx, `
sync --file-system /var/lib/containerd
for image; do ctr --namespace k8s.io images label "$image" `+syncedLabel+` `+pinnedLabel+` >/dev/null; done
`, missing...)
	return err
}

// keepDigests are the digests that a node in service is to have: those that it has, where the stick has another
// image of the same name.
func keepDigests(stick map[string]string, have map[string]image) map[string]string {
	keep := maps.Clone(stick)
	for name := range keep {
		if got := have[name]; got.complete {
			keep[name] = got.digest
		}
	}
	return keep
}

// inService reports whether the node is part of the cluster already. What its kubelet and its control plane are made
// of stays as it is then, whatever the stick has: changed, it would be another at the next restart, on all nodes at
// once and with their pods in place.
func (n *node) inService() bool {
	f := n.facts()
	return f.Release != "" && !f.HalfMade
}

// release is the release of the programs that the node is to have: the digest of the image they are from. A node in
// service keeps its own.
func (n *node) release(ctx context.Context) (string, error) {
	if n.inService() {
		return n.facts().Release, nil
	}

	supply, err := n.loadAppliance(ctx, n.shell.LocalAddr())
	if err != nil {
		return "", err
	}
	return strings.TrimPrefix(supply.digests[manifest.NodeImage], "sha256:")[:12], nil
}

// Links that a release of the programs has: where to what below its directory.
var programLinks = [][2]string{
	{"/usr/local/bin/kubelet", "kubernetes"},
	{"/usr/local/bin/kubeadm", "kubernetes"},
	{"/usr/local/bin/kubectl", "kubernetes"},
	{"/opt/cni/bin/ptp", "cni/ptp"},
	{"/opt/cni/bin/host-local", "cni/host-local"},
	{"/opt/cni/bin/loopback", "cni/loopback"},
	{"/opt/cni/bin/portmap", "cni/portmap"},
}

// programsDone holds that the links are those of the release and lead somewhere. The directory is there
// whole or not at all.
func (n *node) programsDone(ctx context.Context) error {
	release, err := n.release(ctx)
	if err != nil {
		return err
	}

	var links []string
	for _, l := range programLinks {
		links = append(links, l[0])
	}

	out, err := n.shell.RunScript(ctx, `for link; do test -e "$link" && readlink "$link" || echo; done`, links...)
	if err != nil {
		return err
	}

	for i, is := range strings.Split(strings.TrimSuffix(out, "\n"), "\n") {
		if i < len(programLinks) && is != libDir+"/"+release+"/"+programLinks[i][1] {
			return fmt.Errorf("%s is not of this release", programLinks[i][0])
		}
	}

	return nil
}

// programsDo takes the programs out of the image that was pulled for the control plane's pods anyway, so
// that every byte crosses the network once and was checked against its digest.
func (n *node) programsDo(ctx context.Context, report bringup.Report) error {
	release, err := n.release(ctx)
	if err != nil {
		return err
	}

	report("installing programs")
	_, err = n.runLocked(ctx, `
to=$1/$2
from=/run/firstlight/image
if test ! -d "$to"; then
	mkdir -p $from
	ctr --namespace k8s.io images unmount $from >/dev/null 2>&1 || true
	ctr --namespace k8s.io snapshots rm $from >/dev/null 2>&1 || true
	ctr --namespace k8s.io images mount "$3" $from >/dev/null
	rm -rf "$to.part"
	mkdir -p "$to.part"
	cp $from/usr/bin/kubernetes $from/usr/bin/firstlight-node "$to.part/"
	cp -r $from/usr/lib/firstlight/cni "$to.part/"
	ctr --namespace k8s.io images unmount --rm $from >/dev/null
	sync --file-system "$1"
	mv "$to.part" "$to"
fi
`, libDir, release, manifest.NodeImage)
	if err != nil {
		return err
	}

	var args []string
	for _, l := range programLinks {
		args = append(args, l[0], libDir+"/"+release+"/"+l[1])
	}

	_, err = n.runLocked(ctx, `
mkdir -p /usr/local/bin /opt/cni/bin
while test $# -gt 0; do ln -sfn "$2" "$1"; shift 2; done
`, args...)
	return err
}
