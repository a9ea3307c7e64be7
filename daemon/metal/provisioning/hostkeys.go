package provisioning

import (
	"context"
	"fmt"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/hostkey"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// noHostKey is what a ramdisk is told that knows nothing of host keys, or that was given a config drive without a place
// for one: that of an earlier version, still running. The next boot has both.
const noHostKey = "its ramdisk has made no SSH host key for it, so nobody could tell the installed system from another" +
	" machine; it is booted again, with the ramdisk of this version"

// registerHostKey makes the key that a ramdisk has just made the host's, on DATA and for those who read the host; ""
// is none, and the key of its last installation is forgotten. It returns why the host may not be installed without one.
func (p *Provisioner) registerHostKey(
	ctx context.Context, c client.Client, h *metal3api.BareMetalHost, key string,
) (refusal string, _ error) {
	value := []byte("null")
	if key != "" {
		value = fmt.Appendf(nil, "%q", key)
	} else if refusal, err := p.checkNoHostKey(ctx, c, h); refusal != "" || err != nil {
		return refusal, err
	}

	if err := p.Vault.Keys.SaveHostKey(site.Name(h.Name), key); err != nil {
		return "", err
	}

	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, label.HostKey, value)
	host := &metal3api.BareMetalHost{}
	host.Name, host.Namespace = h.Name, h.Namespace
	if err := c.Patch(ctx, host, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return "", fmt.Errorf("name host key of %s: %w", h.Name, err)
	}

	return "", nil
}

// checkNoHostKey allows an installation without a host key where user data has no place for one: it is not cloud-init's,
// or there is none.
func (p *Provisioner) checkNoHostKey(
	ctx context.Context, c client.Client, h *metal3api.BareMetalHost,
) (refusal string, _ error) {
	u := h.Spec.UserData
	if u == nil || u.Name == "" {
		return "", nil
	}

	namespace := u.Namespace
	if namespace == "" {
		namespace = metal3.Namespace
	}

	data, err := p.readSecret(ctx, c, namespace, u.Name, "spec.userData")
	if err != nil {
		return "", err
	}

	for _, value := range data {
		if hostkey.HasPlace(value) {
			return noHostKey, nil
		}
	}

	return "", nil
}
