package provisioning

import (
	"context"
	"log/slog"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/inspection"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/kube"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// TestDisksAreErasedAsTheyWereRead: the word of what was read begins nothing once the host, its inspection or its root
// device is another one, and the refusal says which.
func TestDisksAreErasedAsTheyWereRead(t *testing.T) {
	newHost := func() metal3api.BareMetalHost {
		h := metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: metal3.Namespace, Name: "node-1", UID: "uid-1"}}
		h.Spec.BMC.Address = "redfish://10.0.0.1/x"
		h.Spec.RootDeviceHints = &metal3api.RootDeviceHints{SerialNumber: "A"}
		h.Status.Provisioning.ID = "ironic-1"
		h.Status.Provisioning.State = metal3api.StateAvailable
		h.Status.OperationHistory.Inspect.End = metav1.Date(2026, 11, 29, 12, 0, 1, 0, time.UTC)
		h.Status.HardwareDetails = &metal3api.HardwareDetails{Storage: []metal3api.Storage{
			{Name: "/dev/sda", SerialNumber: "A", SizeBytes: 480e9},
			{Name: "/dev/sdb", SerialNumber: "B", SizeBytes: 960e9},
		}}
		return h
	}
	for name, c := range map[string]struct {
		change func(*metal3api.BareMetalHost)
		disks  []string
		word   string // "": the one that was read
		error  string // "": its disks are erased
	}{
		"as it was read":                   {},
		"the disk that was shown, by name": {disks: []string{"A"}},
		"its name":                         {word: "node-1", error: `node-1 is not erased: "node-1" is no word that confirms it`},
		"another host of that name": {
			change: func(h *metal3api.BareMetalHost) { h.UID = "uid-2" },
			error: "node-1 is not erased: the confirmation is of another BareMetalHost than the one that has this name now; " +
				"read it again",
		},
		"inspected again": {
			change: func(h *metal3api.BareMetalHost) { h.Status.OperationHistory.Inspect.End = metav1.Now() },
			error:  "node-1 is not erased: the confirmation is of another inspection than the last one; read it again",
		},
		"another root device": {
			change: func(h *metal3api.BareMetalHost) { h.Spec.RootDeviceHints.SerialNumber = "B" },
			error:  "node-1 is not erased: the confirmation is of other disks, or of other data on them; read it again",
		},
		"one disk more": {
			disks: []string{"A", "B"},
			error: "node-1 is not erased: the confirmation is of other disks, or of other data on them; read it again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(Deps{Log: slog.New(slog.DiscardHandler), Site: func() *site.Site { return &site.Site{} }, Kube: &kube.Cluster{}})
			p.erasures.Dir, p.replacements.Dir = t.TempDir(), t.TempDir()
			p.Hosts.Backups = metal3.Backups{Dir: t.TempDir(), Log: p.Log}
			p.found.Ask = func(context.Context, string) (inspection.Report, error) {
				return inspection.Report{Disks: map[string]inspection.Disk{
					"/dev/sda": {Kinds: []string{"gpt"}, Fingerprint: "data-00000000000a"},
					"/dev/sdb": {Kinds: []string{"ext4"}, Fingerprint: "data-00000000000b"},
				}}, nil
			}
			h := newHost()
			require.NoError(t, p.Hosts.Set([]metal3api.BareMetalHost{h}))
			read, err := p.Erase(t.Context(), "node-1", nil, "")
			require.NoError(t, err)
			assert.False(t, read.Begun)

			word := read.Word
			if c.word != "" {
				word = c.word
			}
			if c.change != nil {
				c.change(&h)
				require.NoError(t, p.Hosts.Set([]metal3api.BareMetalHost{h}))
			}
			e, err := p.Erase(t.Context(), "node-1", c.disks, word)
			begun, ledgerErr := p.erasures.Last("node-1")
			require.NoError(t, ledgerErr)
			assert.Equal(t, c.error == "", begun.IsOpen())
			if c.error != "" {
				require.ErrorContains(t, err, c.error)
				require.ErrorIs(t, err, ErrNotAsRead)
				return
			}
			require.NoError(t, err)
			assert.True(t, e.Begun)
			require.Len(t, begun.Disks, 1)
			assert.Equal(t, "A", begun.Disks[0].Serial)
		})
	}
}
