package kud

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// TestAPartOfACluster: what a failed installation came to, and the runs that follow until all is done.
func TestAPartOfACluster(t *testing.T) {
	m, w, x := Node{Label: "m", Master: true, Host: "h1"}, Node{Label: "w", Worker: true, Host: "h2"}, Node{Label: "x", Worker: true, Host: "h3"}
	all := Want{Members: []Node{m, w, x}, Plugins: []string{"p"}}
	first := Run{Want: all, Action: contract.Install}
	assert.Nil(t, first.PartialRecord("default/c", "1", []string{"w", "x"}), "without its control plane it is no cluster")
	assert.Nil(t, first.PartialRecord("default/c", "1", nil))
	assert.Nil(t, Run{Want: all, Action: contract.Add, Nodes: []string{"x"}}.PartialRecord("default/c", "1", []string{"m", "w"}), "the record of an installed cluster stays")
	part := first.PartialRecord("default/c", "1", []string{"m", "w"})
	require.NotNil(t, part)
	assert.Equal(t, InstalledCluster{Provisioning: "default/c", Job: "1", Members: []Node{m, w}, Unready: []Node{x}, Begun: true}, *part)
	again, err := ReadInstalled(part.Encode())
	require.NoError(t, err)
	assert.Equal(t, part, again)

	next, err := Next(part, all)
	require.NoError(t, err)
	assert.Equal(t, &Run{Want: all, Action: contract.Add, Nodes: []string{"x"}}, next, "the dead one is tried again")
	assert.Equal(t, InstalledCluster{Provisioning: "default/c", Job: "2", Members: all.Members, Plugins: all.Plugins}, next.CompletedRecord("default/c", "2", part))

	less := Want{Members: []Node{m, w}}
	next, err = Next(part, less)
	require.NoError(t, err)
	assert.Equal(t, contract.Remove, next.Action)
	assert.Equal(t, []string{"x"}, next.Nodes)
	assert.Equal(t, all.Members, next.Members, "the installer finds in the inventory what it takes out")
	left := next.CompletedRecord("default/c", "3", part)
	assert.Equal(t, InstalledCluster{Provisioning: "default/c", Job: "3", Members: []Node{m, w}, Begun: true}, left)
	next, err = Next(&left, less)
	require.NoError(t, err)
	assert.Equal(t, &Run{Want: less, Action: contract.Install}, next, "the rest was never done")
	left = next.CompletedRecord("default/c", "4", &left)
	next, err = Next(&left, less)
	require.NoError(t, err)
	assert.Nil(t, next)
}
