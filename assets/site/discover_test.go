package site

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAPolicyHasItsDefaults(t *testing.T) {
	s, problems := Load("site.yaml", readFile(t, "testdata/valid/discover.yaml"))
	require.Empty(t, problems.String())
	d := s.WithDefaults().Discover
	assert.Equal(t, ApproveEach, d.Approve, "no machine becomes a node unless somebody says so")
	assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.30.0.0/24")}, d.BMCs)
	require.Len(t, d.Credentials, 1)
	assert.Equal(t, "change me", d.Credentials[0].Password.Reveal())
	assert.Nil(t, (&Site{}).WithDefaults().Discover)
}

func TestNamesThatAreStillToCome(t *testing.T) {
	for _, c := range []struct {
		names string
		name  Name
		want  bool
	}{
		{"node-{number}", "node-3", true},
		{"node-{number}", "node-03", false},
		{"node-{number}", "node-0", false},
		{"node-{number}", "node-x", false},
		{"{number}-b", "12-b", true},
		{"{number}-b", "12", false},
		{"node-{serial}", "node-abc1234", true},
		{"node-{serial}", "node-", false},
		{"node-{serial}", "edge-abc1234", false},
		{"{serial}", "cz-2105", true},
		{"{serial}", "-cz", false},
	} {
		d := &Discover{Names: c.names}
		assert.Equal(t, c.want, d.mayName(c.name), "%s %s", c.names, c.name)
	}
	assert.False(t, (*Discover)(nil).mayName("node-1"))
}

func TestNamesOfMachines(t *testing.T) {
	for _, c := range []struct {
		names, serial string
		want          Name
	}{
		{"node-{serial}", "ABC1234", "node-abc1234"},
		{"{serial}", "CZ 2105/0-K", "cz-2105-0-k"},
		{"node-{serial}", "", ""},
		{"{serial}", "..", ""},
		{"rack7-{number}", "", "rack7-3"},
		{"{number}-b", "x", "3-b"},
	} {
		d := &Discover{Names: c.names}
		assert.Equal(t, c.want, d.NameOf(c.serial, 3), "%s %s", c.names, c.serial)
	}
}
