package provisioning

import (
	"context"
	"errors"
	"fmt"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// standInWaiting are the nodes without a BMC for which Ironic has another password of the stand-in than this one.
func (p *Provisioner) standInWaiting(ctx context.Context, password string) ([]string, error) {
	hosts, current := p.Hosts.List()
	if !current {
		return nil, errors.New("the hosts are being read")
	}
	api, err := p.Client()
	if err != nil {
		return nil, err
	}
	return findStandInWaiting(ctx, api, hosts, password)
}

// findStandInWaiting asks the API: a host says of which version of its Secret Ironic accepted the credentials last.
func findStandInWaiting(
	ctx context.Context, api client.Reader, hosts []metal3api.BareMetalHost, password string,
) (all []string, err error) {
	for i := range hosts {
		h := &hosts[i]
		if hasBMC(h) {
			continue
		}

		var secret corev1.Secret
		name := client.ObjectKey{Namespace: h.Namespace, Name: h.Spec.BMC.CredentialsName}
		switch err := api.Get(ctx, name, &secret); {
		case apierrors.IsNotFound(err):
			all = append(all, fmt.Sprintf("%s: its Secret %s is missing", h.Name, name))
		case err != nil:
			return nil, fmt.Errorf("read Secret %s: %w", name, err)
		case string(secret.Data["password"]) != password:
			all = append(all, fmt.Sprintf("%s: its Secret %s has the former one", h.Name, name))
		case !h.Status.GoodCredentials.Match(secret):
			all = append(all, fmt.Sprintf("%s: Ironic has not accepted the present one", h.Name))
		}
	}
	return all, nil
}
