package firewall

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/image/lab/netns/netnstest"
)

// TestTheTableStays: what is loaded outlives the daemon, what somebody changes is put right, other tables are left.
func TestTheTableStays(t *testing.T) {
	needsNamespaces(t)
	r := &topology{t: t, pid: netnstest.New(t)}
	s := siteOf(t, "")
	root := t.TempDir()
	start := func() *Firewall { return &Firewall{Site: func() *site.Site { return s }, Root: root} }
	check := func(f *Firewall) error { return r.within(func() error { return f.CheckLoaded(t.Context()) }) }
	load := func(f *Firewall) { require.NoError(t, r.within(func() error { return f.Load(t.Context(), nil) })) }
	run := func(text string) string {
		var out string
		require.NoError(t, r.within(func() (err error) { out, err = nft(t.Context(), text, "--file", "-"); return err }), text)
		return out
	}

	run("add table ip kube-proxy\nadd chain ip kube-proxy services")
	f := start()
	require.Error(t, check(f))
	assert.False(t, f.Status().Loaded)
	load(f)
	require.NoError(t, check(f))
	assert.True(t, f.Status().Loaded)
	f = start()
	require.NoError(t, check(f), "a daemon that starts again finds its table")

	for _, harm := range []string{
		"delete table inet firstlight",
		"add rule inet firstlight input accept",
		"insert rule inet firstlight forward iifname \"baremetal\" accept",
		"flush chain inet firstlight addresses",
		"add chain inet firstlight input { policy accept ; }",
	} {
		run(harm)
		require.Error(t, check(f), "not noticed: %s", harm)
		load(f)
		require.NoError(t, check(f), harm)
	}
	require.NoError(t, os.WriteFile(f.path(), []byte(`{"rules":`), 0o600))
	require.Error(t, check(f), "a file that was cut short")
	load(f)
	s = siteOf(t, "networks: {provisioning: {forward: [baremetal]}}")
	require.Error(t, check(f), "the table of another site")
	load(f)
	assert.Contains(t, run("list ruleset"), "table ip kube-proxy {\n\tchain services {")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Error(t, r.within(func() error { return f.Load(ctx, nil) }))
}

// TestTheTableIsOfTheFamilyOfProvisioning: what machines there ask, before they have an address, gets in.
func TestTheTableIsOfTheFamilyOfProvisioning(t *testing.T) {
	text := newRules(siteOf(t, `networks: {provisioning: {cidr: "fd00:22::/64"}, bmc: {cidr: 10.3.0.0/24, allow: [ssh]}}`)).render()
	assert.Contains(t, text, `"provisioning" . udp . 547`)
	assert.Contains(t, text, `iifname "provisioning" icmpv6 type nd-router-solicit accept`)
	assert.NotContains(t, text, ". udp . 4011")

	text = newRules(siteOf(t, "")).render()
	assert.NotContains(t, text, ". 547")
	assert.NotContains(t, text, "nd-router-solicit")
	assert.Contains(t, text, `"provisioning" . udp . 4011`)
}
