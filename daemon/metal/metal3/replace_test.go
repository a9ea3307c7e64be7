package metal3

import (
	"context"
	"log/slog"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"firstlight.dev/firstlight/assets/label"
)

// swapped is a node in service whose site names another server now: another BMC and another MAC.
func swapped() (NodeObjects, *metal3api.BareMetalHost) {
	image := &metal3api.Image{URL: "http://x/a"}
	have := &metal3api.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "node-1", UID: "uid-1", Annotations: map[string]string{}},
		Spec: metal3api.BareMetalHostSpec{
			BMC: metal3api.BMCDetails{Address: "redfish://10.0.0.1/x"}, BootMACAddress: "52:54:00:00:00:01", Image: image,
		},
	}
	have.Status.Provisioning.State = metal3api.StateProvisioned
	want := have.DeepCopy()
	want.UID, want.Status = "", metal3api.BareMetalHostStatus{}
	want.Spec.BMC.Address, want.Spec.BootMACAddress = "redfish://10.0.0.2/x", "52:54:00:00:00:02"
	return NodeObjects{Host: want, BMC: newSecret(BMCSecretName("node-1"), "node-1", map[string]string{"password": "of-the-new-one"})}, have
}

// TestANodeOfAnotherServerIsHeld, in service or not, and what is no other server is not.
func TestANodeOfAnotherServerIsHeld(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(want, have *metal3api.BareMetalHost)
		reason Reason
		said   string
	}{
		{"both", func(_, _ *metal3api.BareMetalHost) {}, ReasonReplaced, "site.yaml gives it the BMC redfish://10.0.0.2/x, not redfish://10.0.0.1/x and the boot MAC 52:54:00:00:00:02, not 52:54:00:00:00:01; if its server was replaced by another one, run: firstlightd replace node-1"},
		{"a BMC", func(want, have *metal3api.BareMetalHost) { want.Spec.BootMACAddress = have.Spec.BootMACAddress }, ReasonReplaced, "the BMC redfish://10.0.0.2/x"},
		{"a MAC", func(want, have *metal3api.BareMetalHost) { want.Spec.BMC = have.Spec.BMC }, ReasonReplaced, "the boot MAC 52:54:00:00:00:02"},
		{"not in service", func(_, have *metal3api.BareMetalHost) { have.Status.Provisioning.State = metal3api.StateAvailable }, ReasonReplaced, "firstlightd replace node-1"},
		{"the same MAC", func(want, have *metal3api.BareMetalHost) {
			want.Spec.BMC, want.Spec.BootMACAddress, have.Spec.BootMACAddress = have.Spec.BMC, "52:54:00:00:00:AB", "52:54:00:00:00:ab"
		}, "", ""},
		{"no MAC in the site", func(want, have *metal3api.BareMetalHost) { want.Spec.BMC, want.Spec.BootMACAddress = have.Spec.BMC, "" }, "", ""},
		{"a BMC where there was none", func(want, have *metal3api.BareMetalHost) {
			want.Spec.BootMACAddress, have.Spec.BMC.Address = have.Spec.BootMACAddress, ""
		}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, have := swapped()
			c.change(n.Host, have)
			d := Next(n, have, HostBackup{Host: *have}, nil)
			assert.Equal(t, c.reason, d.Reason, d.Sentence)
			assert.Contains(t, d.Sentence, c.said)
			assert.Equal(t, c.reason == ReasonReplaced, d.OtherServer != "")
			assert.Contains(t, d.Sentence, d.OtherServer)
		})
	}
	n, have := swapped()
	n.Applied = true
	assert.NotEqual(t, ReasonReplaced, Next(n, have, HostBackup{Host: *have}, nil).Reason, "an applied host says itself which server it is")
}

// TestTheOldServerIsNotToldTheNewPassword: before somebody says that it was replaced, while that is done, and after.
func TestTheOldServerIsNotToldTheNewPassword(t *testing.T) {
	n, have := swapped()
	scheme, err := Scheme()
	require.NoError(t, err)
	old := newSecret(BMCSecretName("node-1"), "node-1", map[string]string{"password": "of-the-old-one"})
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(have, old).WithStatusSubresource(have).Build()
	password := func() string {
		var s corev1.Secret
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(old), &s))
		return string(s.Data["password"])
	}
	busy := ""
	r := Reconciler{
		Client:   api,
		Backups:  Backups{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)},
		Log:      slog.New(slog.DiscardHandler),
		Contents: func(context.Context, *metal3api.BareMetalHost) (Contents, error) { return nil, nil },
		Busy:     func(string) (Reason, string) { return ReasonReplacing, busy },
	}
	require.NoError(t, r.Backups.Save(have))
	for _, busy = range []string{"", "is replaced"} {
		all, err := r.Reconcile(t.Context(), []NodeObjects{n})
		require.NoError(t, err)
		require.NoError(t, all[0].Err)
		assert.Equal(t, "of-the-old-one", password(), busy)
	}

	// A record that says that the host was in service would bring it back once its object is gone.
	require.NoError(t, api.Delete(t.Context(), have))
	records, err := r.Backups.Read()
	require.NoError(t, err)
	assert.Equal(t, StepRestore, Next(n, nil, records["node-1"], nil).Step)
	require.NoError(t, r.Backups.Retire("node-1", "uid-2"))
	records, err = r.Backups.Read()
	require.NoError(t, err)
	assert.True(t, records["node-1"].IsLive(), "another host's record")
	require.NoError(t, r.Backups.Retire("node-1", "uid-1"))
	records, err = r.Backups.Read()
	require.NoError(t, err)
	assert.Equal(t, StepCreate, Next(n, nil, records["node-1"], nil).Step)
	assert.True(t, records["node-1"].Installed, "consent that was spent stays spent")
	require.NoError(t, r.Backups.Retire("node-9", "uid-9"))
}

// TestCheckReplace: in each wrong situation.
func TestCheckReplace(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*NodeObjects, *metal3api.BareMetalHost)
		error  string
	}{
		{"a server that was swapped", func(*NodeObjects, *metal3api.BareMetalHost) {}, ""},
		{"one that is idle", func(_ *NodeObjects, h *metal3api.BareMetalHost) {
			h.Status.Provisioning.State = metal3api.StateAvailable
		}, ""},
		{"the same server", func(n *NodeObjects, h *metal3api.BareMetalHost) {
			n.Host.Spec.BMC, n.Host.Spec.BootMACAddress = h.Spec.BMC, h.Spec.BootMACAddress
		}, "site.yaml names the server that it has"},
		{"an applied host", func(n *NodeObjects, _ *metal3api.BareMetalHost) { n.Applied = true }, "it is not in site.yaml"},
		{"the appliance", func(n *NodeObjects, _ *metal3api.BareMetalHost) { n.Own = "52:54:00:00:00:02" }, "one of this appliance's own"},
		{"being removed", func(_ *NodeObjects, h *metal3api.BareMetalHost) { h.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, "is being removed"},
		{"being erased", func(_ *NodeObjects, h *metal3api.BareMetalHost) { h.Annotations[annotationPaused] = label.Erasing }, "its disks are being erased"},
		{"paused", func(_ *NodeObjects, h *metal3api.BareMetalHost) { h.Annotations[annotationPaused] = "me" }, "its owner has paused it"},
		{"restored", func(_ *NodeObjects, h *metal3api.BareMetalHost) { h.Annotations[annotationPaused] = pausedBy }, "taken over again from its record"},
		{"externally provisioned", func(_ *NodeObjects, h *metal3api.BareMetalHost) {
			h.Status.Provisioning.State = metal3api.StateExternallyProvisioned
		}, "would switch the old server off"},
		{"being installed", func(_ *NodeObjects, h *metal3api.BareMetalHost) {
			h.Status.Provisioning.State = metal3api.StateProvisioning
		}, "it is provisioning; try again"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, have := swapped()
			c.change(&n, have)
			r, err := CheckReplace(n, have, HostBackup{Host: *have})
			if c.error != "" {
				require.ErrorContains(t, err, c.error)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "uid-1", r.Host)
			assert.Equal(t, "redfish://10.0.0.1/x", r.Old.Host.Spec.BMC.Address, "the record of the old server")
		})
	}
	n, have := swapped()
	_, err := CheckReplace(n, nil, HostBackup{})
	require.ErrorContains(t, err, "there is nothing to replace")
	_, err = CheckReplace(n, nil, HostBackup{Host: *have})
	require.ErrorContains(t, err, "taken over again from its record")
}

// TestNextReplace: the old server's BMC gets no order, and each step shows in the host.
func TestNextReplace(t *testing.T) {
	_, have := swapped()
	r := Replacement{Host: "uid-1"}
	assert.Equal(t, ReplaceDetach, NextReplace(r, have))
	have.Annotations[metal3api.DetachedAnnotation] = ""
	assert.Equal(t, ReplaceWait, NextReplace(r, have), "the operator has not seen it yet: deleted now, the server would be switched off")
	have.Status.OperationalStatus = metal3api.OperationalStatusDetached
	assert.Equal(t, ReplaceDelete, NextReplace(r, have))
	have.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	assert.Equal(t, ReplaceWait, NextReplace(r, have))
	assert.Equal(t, ReplaceEnd, NextReplace(r, nil))
	have.UID = "uid-2"
	assert.Equal(t, ReplaceEnd, NextReplace(r, have), "the next one has its name")

	_, idle := swapped()
	idle.Status.Provisioning.State = metal3api.StateAvailable
	assert.Equal(t, ReplaceDelete, NextReplace(r, idle))
}
