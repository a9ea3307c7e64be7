package metal3

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"firstlight.dev/firstlight/pxe"
)

func host(name, mac string, state metal3api.ProvisioningState) metal3api.BareMetalHost {
	h := metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, UID: types.UID("uid-of-" + name)}}
	h.Spec.BootMACAddress = mac
	h.Spec.Image = &metal3api.Image{URL: "http://172.22.0.1:6180/images/debian-13.raw"}
	h.Status.Provisioning.State = state
	h.Status.HardwareDetails = &metal3api.HardwareDetails{NIC: []metal3api.NIC{{MAC: "52:54:00:AA:00:01"}}}
	return h
}

func newHosts(t *testing.T, dir string) *Hosts {
	t.Helper()
	h := &Hosts{Files: t.TempDir(), Backups: Backups{Dir: dir, Log: slog.New(slog.DiscardHandler)}, Log: slog.New(slog.DiscardHandler), Ramdisk: Ramdisk{Kernel: "k"}}
	require.NoError(t, h.LoadBackups())
	return h
}

func machine(t *testing.T, mac string) pxe.Machine {
	t.Helper()
	hw, err := net.ParseMAC(mac)
	require.NoError(t, err)
	return pxe.Machine{MAC: hw}
}

func TestHostsAreFoundByAnyOfTheirMACs(t *testing.T) {
	h := newHosts(t, t.TempDir())
	require.NoError(t, h.Set([]metal3api.BareMetalHost{host("node-1", "52:54:00:00:00:01", metal3api.StateProvisioned)}))
	for _, mac := range []string{"52:54:00:00:00:01", "52:54:00:aa:00:01"} {
		assert.Equal(t, pxe.ActionDisk, h.Boot(context.Background(), machine(t, mac)).Action)
	}
	assert.Equal(t, pxe.ActionInspect, h.Boot(context.Background(), machine(t, "52:54:00:00:00:99")).Action)
}

func TestSilenceIsLongerThanARestart(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		renewed time.Time
		silent  bool
	}{
		{time.Time{}, false}, // never read: Current says so
		{now, false},
		{now.Add(-apiTimeout + 1), false},
		{now.Add(-apiTimeout), true},
		{now.Add(-24 * time.Hour), true},
		{now.Add(time.Hour), false},
	} {
		want := time.Time{}
		if c.silent {
			want = c.renewed
		}
		assert.Equal(t, want, silentSince(c.renewed, now), "%s", c.renewed)
	}
	h := newHosts(t, t.TempDir())
	require.NoError(t, h.Set(nil))
	later := time.Now().Add(2 * apiTimeout)
	assert.False(t, h.SilentSince(later).IsZero())
	h.markAnswered()
	assert.True(t, h.SilentSince(time.Now()).IsZero())
}

func TestTheConductorsScriptIsUsed(t *testing.T) {
	h := newHosts(t, t.TempDir())
	require.NoError(t, h.Set([]metal3api.BareMetalHost{host("node-1", "52:54:00:00:00:01", metal3api.StateProvisioning)}))
	m := machine(t, "52:54:00:00:00:01")
	assert.Equal(t, pxe.ActionWait, h.Boot(context.Background(), m).Action)
	require.NoError(t, os.MkdirAll(filepath.Join(h.Files, "pxelinux.cfg"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(h.Files, "pxelinux.cfg", "52-54-00-00-00-01"), []byte("#!ipxe\n"), 0o644))
	assert.Equal(t, pxe.Boot{Action: pxe.ActionRamdisk, Script: "pxelinux.cfg/52-54-00-00-00-01"}, h.Boot(context.Background(), m))
}

func TestAHostInServiceBootsItsDiskBeforeAndWithoutTheAPI(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, newHosts(t, dir).Set([]metal3api.BareMetalHost{
		host("node-1", "52:54:00:00:00:01", metal3api.StateProvisioned),
	}))
	again := newHosts(t, dir)
	m := machine(t, "52:54:00:00:00:01")
	assert.Equal(t, pxe.ActionDisk, again.Boot(context.Background(), m).Action, "before the API answers")
	require.NoError(t, again.Set(nil))
	assert.Equal(t, pxe.ActionDisk, again.Boot(context.Background(), m).Action, "the API has lost it")
}

func TestRecords(t *testing.T) {
	live := host("node-1", "52:54:00:00:00:01", metal3api.StateProvisioned)
	anew := host("node-1", "52:54:00:00:00:01", metal3api.StateRegistering)
	anew.UID = "another"
	emptied := host("node-1", "52:54:00:00:00:01", metal3api.StateDeprovisioning)
	removed := live
	removed.DeletionTimestamp = &metav1.Time{}
	for _, c := range []struct {
		name  string
		after metal3api.BareMetalHost
		live  bool
	}{
		{"unchanged", live, true},
		{"made again without its status", anew, true},
		{"its image was taken away", emptied, false},
		{"removed by its owner", removed, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Backups{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
			require.NoError(t, r.Save(&live))
			require.NoError(t, r.Save(&c.after))
			all, err := r.Read()
			require.NoError(t, err)
			assert.Equal(t, c.live, all["node-1"].IsLive())
		})
	}
}

func TestATornRecordIsLeftAndTheOthersAreRead(t *testing.T) {
	r := Backups{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	one, two := host("node-1", "52:54:00:00:00:01", metal3api.StateProvisioned), host("node-2", "52:54:00:00:00:02", metal3api.StateProvisioned)
	require.NoError(t, r.Save(&one))
	require.NoError(t, r.Save(&two))
	torn := filepath.Join(r.Dir, "node-1.json")
	require.NoError(t, os.Truncate(torn, 100))
	all, err := r.Read()
	require.NoError(t, err)
	assert.Contains(t, all["node-1"].Unreadable, torn+": it is torn: ")
	assert.False(t, all["node-1"].IsLive())
	assert.True(t, all["node-2"].IsLive())

	before, err := os.ReadFile(torn)
	require.NoError(t, err)
	anew := host("node-1", "52:54:00:00:00:01", metal3api.StateInspecting)
	require.NoError(t, r.Save(&anew))
	after, err := os.ReadFile(torn)
	require.NoError(t, err)
	assert.Equal(t, before, after, "it may be all that is left of a host in service")
	require.NoError(t, r.Save(&one))
	all, err = r.Read()
	require.NoError(t, err)
	assert.True(t, all["node-1"].IsLive(), "the API knows it to be in service")
}

func TestRestoreGivesBackStatusAndImagePaused(t *testing.T) {
	r := HostBackup{Host: host("node-1", "52:54:00:00:00:01", metal3api.StateProvisioned)}
	h, err := RestoredHost(r)
	require.NoError(t, err)
	assert.Equal(t, r.Host.Spec, h.Spec)
	assert.Empty(t, h.UID)
	var status metal3api.BareMetalHostStatus
	require.NoError(t, json.Unmarshal([]byte(h.Annotations[metal3api.StatusAnnotation]), &status))
	assert.Equal(t, r.Host.Status, status)
	assert.Contains(t, h.Annotations, metal3api.PausedAnnotation)

	assert.EqualError(t, CheckResumable(h, r), `host node-1 is "" in the API, "provisioned" in its record`)
	h.Status = status
	assert.NoError(t, CheckResumable(h, r))
	h.Spec.Image = nil
	assert.ErrorContains(t, CheckResumable(h, r), "on its disk")
	h.Annotations = nil
	assert.ErrorContains(t, CheckResumable(h, r), "was not paused by the appliance")
}
