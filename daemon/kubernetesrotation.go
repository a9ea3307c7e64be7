package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"firstlight.dev/firstlight/daemon/appliance/kube"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/engine/remote"
	"firstlight.dev/firstlight/daemon/metal/authority"
)

// kubernetesPart is the part of the daemon that replaces the authorities of the appliance's own Kubernetes.
const kubernetesPart = "authorities of Kubernetes"

// kubernetesSettle is longer than what was given out before a stage is used: the certificate of a workstation for twelve
// hours, a token to upload for a day unless somebody asked for more, that of a pod until the kubelet renews it, when it is a
// day old at the latest.
const kubernetesSettle = 25 * time.Hour

// newKubernetesRotation wires what replaces all that signs in the appliance's own Kubernetes. No node trusts it.
func (d *Daemon) newKubernetesRotation(secrets *vault.Vault) *authority.Rotation {
	return &authority.Rotation{
		What:       "authority of the appliance's Kubernetes",
		Trust:      func() (authority.Trust, error) { return d.kube.Rotation() },
		Installing: func() ([]string, error) { return nil, nil },
		Nodes:      func() ([]remote.Installed, error) { return nil, nil },
		LogIn:      secrets.Keys.AccessSigner,
		Told:       func(context.Context, []byte, []byte) ([]string, error) { return nil, nil },
		Own:        d.checkKubernetes,
		Changed:    d.runner.Recheck,
		Settle:     kubernetesSettle,
		Log:        d.log.With("part", kubernetesPart),
	}
}

func (d *Daemon) checkKubernetes(ctx context.Context) error {
	return errors.Join(d.kube.CheckRotation(ctx), d.checkStages(ctx, "system-pods"))
}

// rotateKubernetes begins to replace all that signs in the appliance's own Kubernetes.
func (d *Daemon) rotateKubernetes() (string, error) {
	if d.isGuest() {
		return "", errors.New("this appliance is a guest on a cluster of someone else's, who replaces its authorities")
	}
	if !d.stageReady("system-pods")() {
		return "", errors.New("the appliance's Kubernetes is not ready; firstlightd status says how far it is")
	}
	err := d.kube.BeginRotation()
	if errors.Is(err, kube.ErrRotating) {
		return "", fmt.Errorf("%w; firstlightd status says what it waits for", err)
	}
	if err != nil {
		return "", err
	}
	d.runner.Recheck()
	return fmt.Sprintf("The appliance's Kubernetes is brought to trust the next authorities as well as the current ones; "+
		"%d hours later the next ones sign, and %[1]d hours after that the former ones are trusted no more. In each of the "+
		"three the API is away for a minute or two while its parts start again; other pods and servers notice nothing. "+
		"Workstations need nothing. Tokens to upload that are good for longer end with the former ones: make others "+
		"(firstlightd uploader OWNER). Make an away copy afterwards.", int(kubernetesSettle.Hours())), nil
}
