package provisioning

import (
	"context"
	"fmt"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// BMCBusy says why the BMC of a node is not to be changed now: Ironic works on its host, and would lose its way to the BMC
// between two steps; "": it may be changed.
func (p *Provisioner) BMCBusy(node string) string {
	hosts, current := p.Hosts.List()
	if !current {
		return "its host is being read"
	}

	for i := range hosts {
		if hosts[i].Name == node {
			return bmcUse(&hosts[i])
		}
	}
	return ""
}

// bmcUse is pure.
func bmcUse(h *metal3api.BareMetalHost) string {
	switch state := h.Status.Provisioning.State; state {
	case metal3api.StateInspecting, metal3api.StatePreparing, metal3api.StateProvisioning, metal3api.StateDeprovisioning,
		metal3api.StatePoweringOffBeforeDelete, metal3api.StateDeleting:
		return "its host is " + string(state)
	}
	return ""
}

// BMCSecret is the password that Ironic is given for the BMC of a node of the site; false: its host has no Secret yet.
func (p *Provisioner) BMCSecret(ctx context.Context, node string) (password string, found bool, err error) {
	api, err := p.Client()
	if err != nil {
		return "", false, err
	}

	var secret corev1.Secret
	name := metal3.BMCSecretName(node)
	err = api.Get(ctx, client.ObjectKey{Namespace: metal3.Namespace, Name: name}, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("read Secret %s: %w", name, err)
	}

	return string(secret.Data["password"]), true, nil
}
