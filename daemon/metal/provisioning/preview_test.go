package provisioning

import (
	"log/slog"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// TestPreviewSaysWhatWouldBeHeld: of a site that nobody has applied, and without a change to any host.
func TestPreviewSaysWhatWouldBeHeld(t *testing.T) {
	s, problems := site.Load("site.yaml", []byte(`
nodeDefaults: {bmc: {username: admin, password: secret}}
nodes:
- {name: fits, macs: ["52:54:00:00:00:01"], bmc: {address: "ipmi://10.0.0.1"}}
- {name: other, macs: ["52:54:00:00:00:02"], bmc: {address: "ipmi://10.0.0.2"}, os: {image: ubuntu-24}}
- {name: unknown, macs: ["52:54:00:00:00:03"], bmc: {address: "ipmi://10.0.0.3"}, os: {image: windows-95}}
- {name: added, macs: ["52:54:00:00:00:04"], bmc: {address: "ipmi://10.0.0.4"}}
- {name: own, macs: ["52:54:00:00:00:05"], bmc: {address: "ipmi://10.0.0.5"}}
`))
	require.NoError(t, problems.Err())
	scheme, err := metal3.Scheme()
	require.NoError(t, err)
	inService := func(name string) *metal3api.BareMetalHost {
		h := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metal3.Namespace}}
		h.Spec.Image = &metal3api.Image{URL: "http://172.22.0.1:6180/images/debian-13.raw"}
		h.Status.Provisioning.State = metal3api.StateProvisioned
		return h
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(inService("fits"), inService("other")).Build()
	a := metal3.Appliance{
		Images: map[string]metal3.Image{
			"debian-13": {URL: "http://172.22.0.1:6180/images/debian-13.raw", SHA256: "1", Format: "raw"},
			"ubuntu-24": {URL: "http://172.22.0.1:6180/images/ubuntu-24.raw", SHA256: "2", Format: "raw"},
		},
		Hash: func(string) (string, error) { return "$6$x", nil },
		MACs: []string{"52:54:00:00:00:05"},
	}
	r := metal3.Reconciler{
		Client:  api,
		Log:     slog.New(slog.DiscardHandler),
		Backups: metal3.Backups{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)},
	}

	held, err := new(Provisioner).previewHosts(t.Context(), s.WithDefaults(), a, nil, r)
	require.NoError(t, err)
	assert.Len(t, held, 3)
	assert.Contains(t, held["other"].Sentence, `it is in service with image "http://172.22.0.1:6180/images/debian-13.raw"`)
	assert.Equal(t, metal3.ReasonDecision, held["other"].Reason)
	assert.Equal(t, metal3.ReasonInvalid, held["unknown"].Reason)
	assert.Contains(t, held["own"].Sentence, "one of this appliance's own")

	var hosts metal3api.BareMetalHostList
	require.NoError(t, api.List(t.Context(), &hosts))
	assert.Len(t, hosts.Items, 2, "nothing was created")
}
