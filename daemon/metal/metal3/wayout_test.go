package metal3

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
)

// TestTheWayOut runs the script in a network namespace, as cloud-init does on a node.
func TestTheWayOut(t *testing.T) {
	if !strings.Contains(os.Getenv("FIRSTLIGHT_TEST"), "ns") || os.Getuid() != 0 {
		t.Skip("needs root and a network namespace; set FIRSTLIGHT_TEST=ns")
	}
	for _, c := range []struct{ name, site, address, route, dns string }{
		{"gateway and resolvers", "{cidr: 10.10.110.0/24, gateway: 10.10.110.1, dns: [8.8.8.8, 10.10.110.1]}", "10.10.110.21/24",
			"default via 10.10.110.1 dev lan0 metric 10", "nameserver 8.8.8.8\nnameserver 10.10.110.1\n"},
		{"a gateway alone", "{cidr: 10.10.110.0/24, gateway: 10.10.110.1}", "10.10.110.21/24", "default via 10.10.110.1 dev lan0 metric 10", ""},
		{"resolvers alone", "{cidr: 10.10.110.0/24, dns: [10.10.110.1]}", "10.10.110.21/24", "", "nameserver 10.10.110.1\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, problems := site.Load("site.yaml", fmt.Appendf(nil, "networks: {baremetal: %s}\n", c.site))
			require.Empty(t, problems)
			dir := t.TempDir()
			script := filepath.Join(dir, "script")
			require.NoError(t, os.WriteFile(script, []byte(wayOut(s, site.Node{})), 0o755))
			cmd := exec.CommandContext(t.Context(), "unshare", "-n", "sh", "-euc",
				"ip link set lo up; ip link add lan0 type bridge; ip link set lan0 up; ip addr add "+c.address+" dev lan0\n"+script+"\n"+script+"\nip route show default")
			cmd.Env = append(os.Environ(), "RESOLV_CONF="+filepath.Join(dir, "resolv.conf"))
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Equal(t, c.route, strings.TrimSpace(strings.ReplaceAll(string(out), " linkdown", "")))
			dns, _ := os.ReadFile(filepath.Join(dir, "resolv.conf"))
			assert.Equal(t, c.dns, string(dns))
		})
	}
}

func TestWhoGetsTheWayOut(t *testing.T) {
	s, problems := site.Load("site.yaml", []byte("networks: {baremetal: {gateway: 10.10.110.1, cidr: 10.10.110.0/24}}\n"))
	require.Empty(t, problems)
	assert.NotEmpty(t, wayOut(s, site.Node{}))
	assert.Empty(t, wayOut(s, site.Node{Links: []site.Link{{Network: "baremetal"}}}), "the site says it itself")
	assert.Empty(t, wayOut(&site.Site{}, site.Node{}))
	assert.Empty(t, wayOut(&site.Site{Networks: site.Networks{Baremetal: &site.Network{}}}, site.Node{}))

	text, err := userData(s, site.Node{Name: "n"}, Appliance{})
	require.NoError(t, err)
	assert.Contains(t, text, wayOutPath)
}
