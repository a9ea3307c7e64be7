package fact

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func at(minute int) time.Time { return time.Date(2026, 3, 4, 5, minute, 0, 0, time.UTC) }

func TestHostOf(t *testing.T) {
	b := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "u", CreationTimestamp: metav1.NewTime(at(0)),
		Annotations: map[string]string{metal3api.PausedAnnotation: "x"}}}
	b.Spec.BootMACAddress = "52:54:00:AA:00:01"
	b.Spec.Image = &metal3api.Image{URL: "http://x/new"}
	b.Status.Provisioning.Image.URL = "http://x/old"
	b.Status.HardwareDetails = &metal3api.HardwareDetails{
		NIC:     []metal3api.NIC{{MAC: "52:54:00:aa:00:01"}, {MAC: "52:54:00:aa:00:02"}, {MAC: "52:54:00:aa:00:02"}},
		Storage: []metal3api.Storage{{Name: "/dev/sda"}},
	}
	b.Status.OperationHistory.Provision = metal3api.OperationMetric{Start: metav1.NewTime(at(5)), End: metav1.NewTime(at(9))}
	b.Status.Provisioning.State = metal3api.StateProvisioned
	h := HostOf(b)
	assert.Equal(t, []string{"52:54:00:aa:00:01", "52:54:00:aa:00:02"}, h.MACs)
	assert.True(t, h.Paused)
	assert.True(t, h.InService())
	assert.Equal(t, "http://x/new", h.Image)
	assert.Equal(t, "http://x/old", h.Installed)
	assert.Equal(t, at(9), h.Since)
	assert.Equal(t, at(9), h.Deployed)
	for state, want := range map[metal3api.ProvisioningState]time.Time{
		metal3api.StateNone: at(0), metal3api.StateProvisioning: at(5), metal3api.StateProvisioned: at(9), metal3api.StateInspecting: {},
	} {
		b.Status.Provisioning.State = state
		assert.Equal(t, want, HostOf(b).Since, state)
	}
}

// answer is cut from what Ironic 29 sends.
const answer = `{"nodes": [
 {"uuid": "u-1", "name": "metal3~node-1", "provision_state": "wait call-back", "target_provision_state": "active", "power_state": "power on",
  "last_error": null, "maintenance": false, "maintenance_reason": null, "deploy_step": {"step": "write_image", "interface": "deploy"}, "clean_step": {},
  "provision_updated_at": "2026-03-04T05:06:07+00:00", "inspection_started_at": null,
  "driver_internal_info": {"agent_last_heartbeat": "2026-03-04T05:05:00.123456"}},
 {"uuid": "u-2", "name": "metal3~node-2", "provision_state": "deploy failed", "target_provision_state": null, "power_state": null,
  "last_error": "it broke\n", "maintenance": true, "maintenance_reason": null, "deploy_step": {}, "clean_step": {},
  "provision_updated_at": null, "inspection_started_at": null, "driver_internal_info": {"agent_last_heartbeat": "rubbish"}},
 {"uuid": "u-3", "name": null, "provision_state": "enroll", "driver_internal_info": {}}
]}`

func TestIronicNodes(t *testing.T) {
	var list struct{ Nodes []nodes.Node }
	require.NoError(t, json.Unmarshal([]byte(answer), &list))
	assert.Equal(t, map[string]Ironic{
		"node-1": {Host: "node-1", UUID: "u-1", State: "wait call-back", Target: "active", Power: "power on", Step: "write_image",
			Since: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Heartbeat: time.Date(2026, 3, 4, 5, 5, 0, 123456000, time.UTC)},
		"node-2": {Host: "node-2", UUID: "u-2", State: "deploy failed", LastError: "it broke", Maintenance: "no reason was given"},
	}, IronicNodes(list.Nodes))
}
