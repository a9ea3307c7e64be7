package provisioning

import (
	"context"
	"fmt"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/engine/remote"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/verify"
)

// Logins lets the verification in at hosts whose image came with a default user.
func (p *Provisioner) Logins() *verify.Logins {
	return &verify.Logins{
		Dir: vault.SecretDir + "/logins",
		Credentials: func(ctx context.Context, host string) (verify.Credentials, bool, error) {
			return p.loginCredentials(ctx, p.Client, host)
		},
	}
}

// loginCredentials are the default user and password of a host's image: of the Secret that its annotation names, or
// of the one that a cluster names for its nodes and this host is one of them.
func (p *Provisioner) loginCredentials(
	ctx context.Context, connect func() (client.Client, error), name string,
) (c verify.Credentials, ok bool, err error) {
	hosts, _ := p.Hosts.List()
	var h *metal3api.BareMetalHost
	for i := range hosts {
		if hosts[i].Name == name {
			h = &hosts[i]
		}
	}
	if h == nil {
		return c, false, nil
	}

	namespace, secret, field := metal3.Namespace, h.Annotations[label.Login], "annotation "+label.Login
	if secret == "" {
		field = "Provisioning's credentialsSecret"
		if namespace, secret, err = p.ClusterLogin(ctx, h); err != nil || secret == "" {
			return c, false, err
		}
	}

	api, err := connect()
	if err != nil {
		return c, false, err
	}

	data, err := p.readSecret(ctx, api, namespace, secret, field)
	if err != nil {
		return c, false, err
	}

	from := fmt.Sprintf("Secret %s/%s", namespace, secret)
	c = verify.Credentials{
		Password: remote.Password{User: string(data["username"]), Password: string(data["password"])},
		From:     from,
	}
	if c.User == "" || c.Password.Password == "" {
		return c, false, fmt.Errorf("%s has no username and password", from)
	}

	return c, true, nil
}
