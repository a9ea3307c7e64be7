package daemon

import (
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"firstlight.dev/firstlight/assets/guest"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

// TestTheStagesThatTrustTheAuthorityAreInThePlan: one that is not is not looked at before the next authority signs.
func TestTheStagesThatTrustTheAuthorityAreInThePlan(t *testing.T) {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	for of, plan := range map[string][]bringup.Stage{
		"appliance": New(log).runner.Plan,
		"guest":     NewGuest(log, guest.Placement{Folder: guest.Folder}).runner.Plan,
	} {
		var names []string
		for _, s := range plan {
			names = append(names, s.Name)
		}
		assert.Subset(t, names, append(authorityStages(), authorityMinted), of)
	}
}

func TestNothingIsRotatedBeforeTheApplianceHasATime(t *testing.T) {
	_, err := New(slog.New(slog.DiscardHandler)).rotate("authority", nil)
	assert.ErrorContains(t, err, "the appliance is still starting", "an authority was minted beside DATA")
}

func TestEveryListedRotationBegins(t *testing.T) {
	var listed []string
	for _, r := range vault.Rotations() {
		listed = append(listed, r.Name)
	}
	d := New(slog.New(slog.DiscardHandler))
	assert.ElementsMatch(t, listed, slices.Collect(maps.Keys(d.rotations())))
	_, err := d.rotate("moon", nil)
	assert.ErrorContains(t, err, `nothing replaces "moon" on demand`)
}

// TestNobodyLogsInToMachinesOfClusterAPI: a rotation that waited for one would wait forever.
func TestNobodyLogsInToMachinesOfClusterAPI(t *testing.T) {
	d := New(slog.New(slog.DiscardHandler))
	d.metal.Hosts.Backups.Dir = t.TempDir()
	host := func(name string, state metal3api.ProvisioningState, consumer string) (h metal3api.BareMetalHost) {
		h.Name, h.Status.Provisioning.State = name, state
		if consumer != "" {
			h.Spec.ConsumerRef = &corev1.ObjectReference{Kind: consumer}
		}
		return h
	}
	require.NoError(t, d.metal.Hosts.Set([]metal3api.BareMetalHost{
		host("node-1", metal3api.StateProvisioned, "Provisioning"),
		host("node-2", metal3api.StateProvisioned, "Metal3Machine"),
		host("node-3", metal3api.StateProvisioning, ""),
		host("node-4", metal3api.StateProvisioning, "Metal3Machine"),
		host("node-5", metal3api.StateAvailable, ""),
	}))

	nodes, err := d.loginNodes()
	require.NoError(t, err)
	assert.Equal(t, []remote.Installed{{Name: "node-1"}, {Name: "node-3", Busy: "it is being installed"}}, nodes)
}

func TestWhenAnInstallerWorksOnACluster(t *testing.T) {
	updating := []status.NodeUpdate{{State: strings.ToLower(v1alpha1.PhaseUpdating)}}
	for _, c := range []struct {
		name    string
		cluster status.Cluster
		want    bool
	}{
		{"installed", status.Cluster{Kind: status.KindProvisioning, State: status.ClusterReady}, false},
		{"being installed", status.Cluster{Kind: status.KindProvisioning, State: status.ClusterInstalling}, true},
		{"being changed", status.Cluster{Kind: status.KindProvisioning, State: "changing"}, true},
		{"being deleted", status.Cluster{Kind: status.KindProvisioning, State: status.ClusterDeleting}, true},
		{"waiting for hosts", status.Cluster{Kind: status.KindProvisioning, State: status.ClusterWaiting}, false},
		{"its nodes being updated", status.Cluster{Kind: status.KindProvisioning, State: status.ClusterReady, Updates: updating}, true},
		{"of Cluster API, which nobody logs in to", status.Cluster{Kind: status.KindCluster, State: status.ClusterInstalling}, false},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, isBeingChanged(c.cluster)) })
	}
}
