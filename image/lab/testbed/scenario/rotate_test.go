package scenario_test

import (
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestIronicGetsAnotherPassword: the former one is refused, Ironic and its operator work with the next one, and the
// server in service notices nothing.
func TestIronicGetsAnotherPassword(t *testing.T) {
	need(t)
	ctx, d := start(t, "rotate", 1, 40*time.Minute)
	provision(t, ctx, d, 1)
	former, err := d.IronicPassword()
	require.NoError(t, err)

	d.Servers.ResetCounters()
	t.Log(run(t, ctx, d, "firstlightd", "rotate", "ironic"))
	next, err := d.IronicPassword()
	require.NoError(t, err)
	require.NotEqual(t, former, next)

	inService(t, ctx, d, 1)
	_, err = d.NodesBy(ctx, former)
	assert.True(t, gophercloud.ResponseCodeIs(err, 401), "the former password: %v", err)

	time.Sleep(soak)
	inService(t, ctx, d, 1)
	untouched(t, d, "with another password")
}
