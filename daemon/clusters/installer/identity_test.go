package installer

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	fresh := func() *cluster { return &cluster{Settings: edge, dir: dir} }
	_, err := fresh().loadIdentity(nil)
	assert.True(t, bringup.IsWait(err), "a worker decided what the cluster is")
	assert.NoFileExists(t, filepath.Join(dir, contract.FileIdentity))

	c := fresh()
	r, err := c.loadIdentity(&facts{})
	require.NoError(t, err)
	assert.NotEmpty(t, r.ID)
	assert.False(t, r.Formed)
	require.NoError(t, c.markFormed())

	again, err := fresh().loadIdentity(nil) // the installer was started again
	require.NoError(t, err)
	assert.Equal(t, r, again)
	assert.True(t, again.Formed)

	other := fresh()
	other.Pods = netip.MustParsePrefix("10.9.0.0/16")
	_, err = other.loadIdentity(nil)
	assert.True(t, bringup.IsPermanent(err))
	assert.ErrorContains(t, err, "10.244.64.0/18 for pods")

	require.NoError(t, os.WriteFile(filepath.Join(dir, contract.FileIdentity), []byte("{"), 0o644))
	_, err = fresh().loadIdentity(&facts{})
	assert.True(t, bringup.IsPermanent(err))
	assert.ErrorContains(t, err, "what the nodes say is believed")
}

// The directory went with a Provisioning that was deleted; the cluster lives.
func TestIdentityIsFoundOnTheFirstNode(t *testing.T) {
	living := &facts{Kubernetes: true, Marker: &marker{Cluster: "edge", ID: "A", Label: "m-1"}}
	r, err := (&cluster{Settings: edge, dir: t.TempDir()}).loadIdentity(living)
	require.NoError(t, err)
	assert.Equal(t, clusterIdentity{ID: "A", Formed: true, Pods: edge.Pods, Services: edge.Services}, *r)

	// The networks are those that it was made with, whatever is asked for now.
	living.PodsWere, living.ServicesWere = netip.MustParsePrefix("10.9.0.0/16"), edge.Services
	dir := t.TempDir()
	c := &cluster{Settings: edge, dir: dir}
	_, err = c.loadIdentity(living)
	assert.True(t, bringup.IsPermanent(err))
	assert.ErrorContains(t, err, "the cluster has the networks 10.9.0.0/16 for pods")
	assert.Equal(t, err, c.refusal(), "it is against all nodes")
	assert.NoFileExists(t, filepath.Join(dir, contract.FileIdentity))

	// Its Provisioning was deleted while kubeadm made it: it is begun again, with what is asked for now.
	half := &facts{Kubernetes: true, HalfMade: true, PodsWere: living.PodsWere, ServicesWere: living.ServicesWere, Marker: living.Marker}
	r, err = (&cluster{Settings: edge, dir: t.TempDir()}).loadIdentity(half)
	require.NoError(t, err)
	assert.Equal(t, clusterIdentity{ID: "A", Pods: edge.Pods, Services: edge.Services}, *r)

	// Its Provisioning was deleted and its nodes installed anew: another life.
	r, err = (&cluster{Settings: edge, dir: t.TempDir()}).loadIdentity(&facts{})
	require.NoError(t, err)
	assert.NotEqual(t, "A", r.ID)
	assert.False(t, r.Formed, "the control plane of its former life is looked for")

	begun := &facts{Marker: &marker{Cluster: "edge", ID: "A", Label: "m-1"}}
	r, err = (&cluster{Settings: edge, dir: t.TempDir()}).loadIdentity(begun)
	require.NoError(t, err)
	assert.False(t, r.Formed)

	elsewhere := &facts{Kubernetes: true, Marker: &marker{Cluster: "core", ID: "A", Label: "m-1"}}
	r, err = (&cluster{Settings: edge, dir: t.TempDir()}).loadIdentity(elsewhere)
	require.NoError(t, err)
	assert.NotEqual(t, "A", r.ID, "another cluster's id was taken")
}
