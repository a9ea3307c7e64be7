package metal3

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// liveAPI is a real API server with hosts and the policy of hosts in service. It returns a client of its
// administrator, and one that is the operator.
func liveAPI(t *testing.T) (admin, operator client.Client) {
	t.Helper()
	server := sandbox.APIServer(t)
	kubectl, err := sandbox.BuildProgram(t.Context(), "kubernetes")
	require.NoError(t, err)
	crd, err := sandbox.HostDefinition(t.Context())
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "crd.yaml")
	require.NoError(t, os.WriteFile(file, crd, 0o600))
	for _, args := range [][]string{
		{"create", "-f", file}, {"wait", "--for=condition=Established", "crd/baremetalhosts.metal3.io", "--timeout=60s"},
	} {
		out, err := exec.CommandContext(t.Context(), kubectl, append([]string{"kubectl", "--kubeconfig", server.Kubeconfig}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}

	config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
	require.NoError(t, err)
	scheme, err := Scheme()
	require.NoError(t, err)
	admin, err = client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	config = rest.CopyConfig(config)
	config.Impersonate.UserName = "system:serviceaccount:" + Namespace + ":" + OperatorName
	operator, err = client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)

	require.NoError(t, admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}))
	require.NoError(t, admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "operator"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: Namespace, Name: OperatorName}},
	}))
	set, err := apply.New("test", Policy()...)
	require.NoError(t, err)
	require.NoError(t, set.Apply(t.Context(), admin))
	return admin, operator
}

const imageOne, imageTwo = "http://172.22.0.1:6180/images/one.raw", "http://172.22.0.1:6180/images/two.raw"

// TestTheAPIServerGuardsHostsInService: each request as a person or a controller makes it, against the real API server.
func TestTheAPIServerGuardsHostsInService(t *testing.T) {
	admin, operator := liveAPI(t)
	next := 0
	// hostIn creates a host in a state, with annotations.
	hostIn := func(state metal3api.ProvisioningState, annotations map[string]string) *metal3api.BareMetalHost {
		next++
		h := &metal3api.BareMetalHost{
			ObjectMeta: metav1.ObjectMeta{Name: "node-" + string(rune('a'+next-1)), Namespace: Namespace, Annotations: map[string]string{annotationPaused: "test"}},
			Spec: metal3api.BareMetalHostSpec{
				Online: true,
				BMC:    metal3api.BMCDetails{Address: "redfish://10.0.0.1/redfish/v1/Systems/1", CredentialsName: "a"},
				Image:  &metal3api.Image{URL: imageOne, Checksum: "http://172.22.0.1:6180/sums"},
			},
		}
		require.NoError(t, admin.Create(t.Context(), h))
		h.Status.Provisioning.State, h.Status.Provisioning.Image = state, *h.Spec.Image
		h.Status.OperationalStatus = metal3api.OperationalStatusOK
		require.NoError(t, admin.Status().Update(t.Context(), h))
		h.Annotations = annotations
		require.NoError(t, admin.Update(t.Context(), h))
		return h
	}

	// The policy holds some moments after it was written.
	probe := hostIn(metal3api.StateProvisioned, nil)
	require.Eventually(t, func() bool {
		return admin.Delete(t.Context(), probe, client.DryRunAll) != nil
	}, 5*time.Minute, 100*time.Millisecond)

	update := func(change func(*metal3api.BareMetalHost)) func(client.Client, *metal3api.BareMetalHost) error {
		return func(c client.Client, h *metal3api.BareMetalHost) error { change(h); return c.Update(t.Context(), h) }
	}
	status := func(change func(*metal3api.BareMetalHost)) func(client.Client, *metal3api.BareMetalHost) error {
		return func(c client.Client, h *metal3api.BareMetalHost) error {
			change(h)
			return c.Status().Update(t.Context(), h)
		}
	}
	remove := func(c client.Client, h *metal3api.BareMetalHost) error { return c.Delete(t.Context(), h) }
	two := func(h *metal3api.BareMetalHost) { h.Spec.Image.URL = imageTwo }
	none := func(h *metal3api.BareMetalHost) { h.Spec.Image = nil }
	allow := func(image string) map[string]string { return map[string]string{AllowWipe: image} }
	const erases, consent = "would erase its disk", "first set the annotation firstlight.dev/allow-wipe on this host to the URL of the image"
	for _, c := range []struct {
		name        string
		state       metal3api.ProvisioningState
		annotations map[string]string
		do          func(client.Client, *metal3api.BareMetalHost) error
		as          client.Client
		refused     string // ""; it is not
	}{
		{"another image", metal3api.StateProvisioned, nil, update(two), admin, "changing or removing its image " + erases},
		{"another image, for that", metal3api.StateProvisioned, allow(imageTwo), update(two), admin, ""},
		{"another image, for an earlier one", metal3api.StateProvisioned, allow(imageOne), update(two), admin, consent},
		{"another image, for whatever comes", metal3api.StateProvisioned, allow("true"), update(two), admin, consent},
		{"another image and consent in one request", metal3api.StateProvisioned, nil, update(func(h *metal3api.BareMetalHost) {
			two(h)
			h.Annotations = allow(imageTwo)
		}), admin, consent},
		{"another image of a host that is not in service", metal3api.StateAvailable, nil, update(two), admin, ""},
		{"no image", metal3api.StateProvisioned, nil, update(none), admin, consent},
		{"no image, for another", metal3api.StateProvisioned, allow(imageTwo), update(none), admin, consent},
		{"no image, for none", metal3api.StateProvisioned, allow(NoImage), update(none), admin, ""},
		{"another deployment", metal3api.StateProvisioned, nil, update(func(h *metal3api.BareMetalHost) {
			h.Spec.CustomDeploy = &metal3api.CustomDeploy{Method: "install_coreos"}
		}), admin, "changing customDeploy " + erases},
		{"externally provisioned", metal3api.StateProvisioned, nil, update(func(h *metal3api.BareMetalHost) { h.Spec.ExternallyProvisioned = true }), admin, "changing externallyProvisioned " + erases},
		{"no longer externally provisioned", metal3api.StateExternallyProvisioned, nil, update(none), admin, consent},
		{"another BMC", metal3api.StateProvisioned, nil, update(func(h *metal3api.BareMetalHost) {
			h.Spec.BMC.Address = "redfish://10.0.0.2/redfish/v1/Systems/1"
		}), admin, "another BMC address would be another server; to keep it running, first detach it"},
		{"other credentials of its BMC", metal3api.StateProvisioned, nil, update(func(h *metal3api.BareMetalHost) { h.Spec.BMC.CredentialsName = "b" }), admin, ""},
		{"deleted", metal3api.StateProvisioned, nil, remove, admin, "deleting it would switch it off"},
		{"deleted, for another image", metal3api.StateProvisioned, allow(imageTwo), remove, admin, consent},
		{"deleted, for none", metal3api.StateProvisioned, allow(NoImage), remove, admin, ""},
		{"another state", metal3api.StateProvisioned, nil, status(func(h *metal3api.BareMetalHost) {
			h.Status.Provisioning.State = metal3api.StateAvailable
		}), admin, "its status is the operator's, and another one would erase its disk"},
		{"another image in its status", metal3api.StateProvisioned, nil, status(func(h *metal3api.BareMetalHost) {
			h.Status.Provisioning.Image.URL = imageTwo
		}), admin, "its status is the operator's, and another one would erase its disk"},
		{"another state, said by the operator", metal3api.StateProvisioned, nil, status(func(h *metal3api.BareMetalHost) {
			h.Status.Provisioning.State = metal3api.StateDeprovisioning
		}), operator, ""},
		{"an error in its status", metal3api.StateProvisioned, nil, status(func(h *metal3api.BareMetalHost) { h.Status.ErrorMessage = "odd" }), admin, ""},
		{"switched off by its name", metal3api.StateProvisioned, nil, update(func(h *metal3api.BareMetalHost) { h.Spec.Online = false }), admin, ""},
		{"its operator's own request", metal3api.StateProvisioned, nil, update(two), operator, consent},
	} {
		h := hostIn(c.state, c.annotations)
		err := c.do(c.as, h)
		if c.refused == "" {
			assert.NoError(t, err, c.name)
		} else {
			assert.ErrorContains(t, err, c.refused, c.name)
		}
	}
}
