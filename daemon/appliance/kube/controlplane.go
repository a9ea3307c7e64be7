package kube

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

const (
	manifestDir       = "/etc/kubernetes/manifests"
	kubeadmConfig     = "/etc/kubernetes/kubeadm.yaml"
	desiredConfigPath = "/etc/kubernetes/kubeadm.wanted.yaml"
	patchDir          = "/etc/kubernetes/patches"
)

func (c *Cluster) controlPlaneDone(ctx context.Context) error {
	if err := c.writtenDone(); err != nil {
		return err
	}
	if err := c.checkActive(ctx, "kubelet.service"); err != nil {
		return err
	}
	return c.checkReady(ctx)
}

// writtenDone compares everything the control plane is started from with what it should be.
func (c *Cluster) writtenDone() error {
	if err := c.certificatesDone(); err != nil {
		return err
	}

	files, err := nodeFiles(c.config(), c.HostTraits(), c.trustDigest())
	if err != nil {
		return bringup.Permanent(err)
	}
	if path := c.differingFile(files); path != "" {
		return fmt.Errorf("%s is not as wanted", path)
	}

	return c.manifestsDone()
}

// controlPlaneDo is kubeadm init, piece by piece: each piece is skipped if the world already has it.
// The certificates and kubeconfigs are minted here (certificates.go says why), the static pods are
// kubeadm's own, and what kubeadm would upload for a second node to join is left out: there is none.
func (c *Cluster) controlPlaneDo(ctx context.Context, report bringup.Report) error {
	report("minting certificates")
	if _, err := c.mintMissing(); err != nil {
		return err
	}

	files, err := nodeFiles(c.config(), c.HostTraits(), c.trustDigest())
	if err != nil {
		return bringup.Permanent(err)
	}

	changed, err := c.put(files)
	if err != nil {
		return err
	}

	// Before the kubelet, or it would start pods from manifests that are being written.
	if c.manifestsDone() != nil {
		report("writing the control plane's manifests")
		if err := c.writeManifests(ctx); err != nil {
			return err
		}
	}

	if err := c.expectNetwork(); err != nil {
		return err
	}

	restart := 0
	for _, path := range changed {
		if strings.HasPrefix(path, "/var/lib/kubelet/") {
			restart++
		}
	}

	report("starting the kubelet")
	return c.start(ctx, "kubelet.service", restart)
}

// manifestsDone holds that kubeadm wrote the manifests from this configuration and that they are as
// it left them: the configuration is kept beside them with their digests, written last.
func (c *Cluster) manifestsDone() error {
	want, err := c.sealedConfig()
	if err != nil {
		return err
	}
	if !fileIs(c.path(kubeadmConfig), want) {
		return fmt.Errorf("%s does not hold the configuration of these manifests", kubeadmConfig)
	}

	return nil
}

// sealedConfig is the wanted configuration of kubeadm followed by the digests of the manifests and of
// what they are patched with.
func (c *Cluster) sealedConfig() ([]byte, error) {
	text, err := render("kubeadm.yaml", newValues(c.config(), c.HostTraits()))
	if err != nil {
		return nil, bringup.Permanent(err)
	}

	for _, name := range manifest.StaticPods() {
		made, err := os.ReadFile(c.path(manifestDir + "/" + name + ".yaml"))
		if err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}

		patch, with := staticPodPatch(name, c.HostTraits(), c.trustDigest())
		text = fmt.Appendf(
			text, "# manifests/%s.yaml sha256:%x\n# patches/%s sha256:%x\n", name, sha256.Sum256(made), patch,
			sha256.Sum256(with),
		)
	}

	return text, nil
}

// writeManifests lets kubeadm write the four static pods, in one call that skips everything else of
// init, then brings them to the disk and seals them.
func (c *Cluster) writeManifests(ctx context.Context) error {
	if err := os.Remove(c.path(kubeadmConfig)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove old configuration: %w", err)
	}

	text, err := render("kubeadm.yaml", newValues(c.config(), c.HostTraits()))
	if err != nil {
		return bringup.Permanent(err)
	}
	if err := writeFile(c.path(desiredConfigPath), text, 0o644); err != nil {
		return err
	}

	skip := []string{"preflight", "certs", "kubeconfig", "kubelet-start", "wait-control-plane", "upload-config",
		"upload-certs", "mark-control-plane", "bootstrap-token", "kubelet-finalize", "addon", "show-join-command"}
	_, err = c.Run(
		ctx, nil, "kubeadm", "init", "--config", c.path(desiredConfigPath), "--skip-phases", strings.Join(skip, ","),
	)
	if err != nil {
		return err
	}

	for _, name := range manifest.StaticPods() {
		if err := syncPath(c.path(manifestDir + "/" + name + ".yaml")); err != nil {
			return fmt.Errorf("sync manifest: %w", err)
		}
	}

	if err := syncPath(c.path(manifestDir)); err != nil {
		return fmt.Errorf("sync manifests: %w", err)
	}

	sealed, err := c.sealedConfig()
	if err != nil {
		return err
	}

	return writeFile(c.path(kubeadmConfig), sealed, 0o644)
}
