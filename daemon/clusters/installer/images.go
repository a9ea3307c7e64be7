package installer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// imagesOf are the images that a node has before Kubernetes starts there.
func imagesOf(controlPlane bool) []string {
	if controlPlane {
		return manifest.ControlPlaneImages()
	}
	return manifest.WorkerImages()
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
