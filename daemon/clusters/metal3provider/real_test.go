package metal3provider

import (
	"context"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/appliance/kube"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

func (r *fixture) ctx() context.Context { return context.WithoutCancel(r.t.Context()) }

// testValidation: what can be wrong in the text of an object is refused by the API server itself.
func testValidation(t *testing.T, api client.Client) {
	const infra = "apiVersion: infrastructure.cluster.x-k8s.io/v1beta2\nmetadata: {name: NAME, namespace: default}\n"
	const pool = "apiVersion: ipam.metal3.io/v1alpha1\nkind: IPPool\nmetadata: {name: NAME, namespace: default}\n"
	for _, c := range []struct {
		name, text string
		says       string // "": it is accepted
	}{
		{"a cluster", infra + "kind: Metal3Cluster\nspec: {controlPlaneEndpoint: {host: 10.0.0.1}}", ""},
		{"no endpoint", infra + "kind: Metal3Cluster\nspec: {}", "name controlPlaneEndpoint, or a pool"},
		{"an endpoint from a pool", infra + "kind: Metal3Cluster\nspec: {controlPlaneEndpointFromPool: {name: a}}", ""},
		{"an empty endpoint", infra + "kind: Metal3Cluster\nspec: {controlPlaneEndpoint: {host: ''}}", "spec.controlPlaneEndpoint.host"},
		{"a machine", infra + "kind: Metal3Machine\nspec: {image: {url: http://x, checksum: abc}}", ""},
		{"a machine by customDeploy", infra + "kind: Metal3Machine\nspec: {customDeploy: {method: x}}", ""},
		{"a live ISO", infra + "kind: Metal3Machine\nspec: {image: {url: http://x, diskFormat: live-iso}}", ""},
		{"an image of a registry", infra + "kind: Metal3Machine\nspec: {image: {url: 'oci://x'}}", ""},
		{"no image", infra + "kind: Metal3Machine\nspec: {}", "image.url or customDeploy.method is needed"},
		{"no checksum", infra + "kind: Metal3Machine\nspec: {image: {url: http://x}}", "an image needs a checksum"},
		{"an unknown format", infra + "kind: Metal3Machine\nspec: {image: {url: http://x, checksum: abc, diskFormat: iso}}", "Unsupported value"},
		{"a template without an image", infra + "kind: Metal3MachineTemplate\nspec: {template: {spec: {}}}", "image.url or customDeploy.method is needed"},
		{"a template of data", infra + "kind: Metal3DataTemplate\nspec: {metaData: {strings: [{key: a, value: b}]}}", ""},
		{"a static network without a pool", infra + "kind: Metal3DataTemplate\nspec: {networkData: {networks: {ipv4: [{id: a, link: b}]}}}", "a static network needs a pool"},
		{"a MAC address by two ways", infra + "kind: Metal3DataTemplate\nspec: {networkData: {links: {ethernets: [{type: phy, id: a, macAddress: {string: a, fromHostInterface: b}}]}}}", "exactly one of string"},
		{"an interface and the boot MAC", infra + "kind: Metal3DataTemplate\nspec: {metaData: {fromHostInterfaces: [{key: a, interface: b, fromBootMAC: true}]}}", "either interface or fromBootMAC"},
		{"a claim of no template", infra + "kind: Metal3DataClaim\nspec: {template: {}}", "the template needs a name"},
		{"data by another name", infra + "kind: Metal3Data\nspec: {index: 1, template: {name: t}, claim: {name: c}}", "the name of a Metal3Data is TEMPLATE-INDEX"},
		{"a remediation that never tries", infra + "kind: Metal3Remediation\nspec: {strategy: {retryLimit: 0}}", "retryLimit"},
		{"a remediation in a hurry", infra + "kind: Metal3Remediation\nspec: {strategy: {timeoutSeconds: 1}}", "timeoutSeconds"},
		{"a pool", pool + "spec: {namePrefix: a, pools: [{start: 10.0.0.1, end: 10.0.0.9}, {subnet: 'fd00::/64'}]}", ""},
		{"a pool of no address", pool + "spec: {namePrefix: a, pools: [{start: 10.0.0.300, end: 10.0.0.9}]}", "not an IP address"},
		{"a pool of no subnet", pool + "spec: {namePrefix: a, pools: [{subnet: 10.0.0.0}]}", "not a subnet"},
		{"a pool without an end", pool + "spec: {namePrefix: a, pools: [{start: 10.0.0.1}]}", "a range needs subnet, or start and end"},
		{"an address for two", pool + "spec: {namePrefix: a, preAllocations: {a: 10.0.0.1, b: 10.0.0.1}}", "an address is preallocated twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := &unstructured.Unstructured{}
			require.NoError(t, yaml.Unmarshal([]byte(c.text), &u.Object))
			u.SetName("object")
			err := api.Create(t.Context(), u)
			if c.says == "" {
				require.NoError(t, err)
				require.NoError(t, api.Delete(t.Context(), u))
				return
			}
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			assert.ErrorContains(t, err, c.says)
		})
	}
	t.Run("data cannot be changed", func(t *testing.T) {
		o := &v1beta2.Metal3DataTemplate{}
		o.Namespace, o.Name = "default", "fixed"
		o.Spec.MetaData = &v1beta2.MetaData{Strings: []v1beta2.MetaDataString{{Key: "a", Value: "b"}}}
		require.NoError(t, api.Create(t.Context(), o))
		o.Spec.MetaData.Strings[0].Value = "c"
		assert.ErrorContains(t, api.Update(t.Context(), o), "metaData cannot be changed")
		o.Spec.MetaData = nil
		assert.ErrorContains(t, api.Update(t.Context(), o), "metaData cannot be changed")
		require.NoError(t, api.Delete(t.Context(), o))
	})
}

// testGuard: with the appliance's admission policies, a host that a machine gives an image is held until it was
// checked, also when the same image was checked on it before, and a deleted machine's host leaves service.
func testGuard(t *testing.T, r *fixture) {
	for _, o := range (metal3.Guard{Daemon: kube.DaemonUser}).Objects() {
		require.NoError(t, r.api.Create(t.Context(), o))
		t.Cleanup(func() { require.NoError(t, r.api.Delete(r.ctx(), o)) })
	}
	require.Eventually(t, func() bool {
		h := &host{}
		h.Namespace, h.Name = namespace, "probe"
		if r.api.Create(t.Context(), h) != nil {
			return false
		}
		held := metal3.IsOnHold(r.host("probe"))
		require.NoError(t, r.api.Delete(t.Context(), h))
		return held
	}, 2*time.Minute, 200*time.Millisecond)

	r.addHost("host-1")
	r.addCluster("edge")
	r.provisionCluster("edge")
	for _, name := range []string{"cp0", "cp1"} {
		r.addMachine("edge", name)
		r.bootstrap(name)
		r.until("the host is held", func() bool { return metal3.IsOnHold(r.host("host-1")) })
		r.round()
		c := r.condition(r.machine(name), v1beta2.ConditionHostProvisioned)
		assert.Equal(t, v1beta2.ReasonHostHeld, c.Reason)
		assert.Contains(t, c.Message, "see firstlightd why host-1")

		// The checks pass, and it is installed.
		change(r, "host-1", &host{}, func(h *host) {
			h.Annotations[label.Cleared] = metal3.ClearedImage(h.Spec.Image)
			delete(h.Annotations, metal3api.PausedAnnotation)
		})
		r.operate()
		require.Equal(t, metal3api.StateProvisioned, r.host("host-1").Status.Provisioning.State)

		r.deleteMachine(name)
		r.until("the machine is gone", func() bool { return r.isGone(name, &machine{}) }, r.operate)
		r.operate()
	}
}
