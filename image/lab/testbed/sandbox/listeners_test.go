package sandbox_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/firewall"
)

// firstEphemeral is where the ports begin that the kernel chooses (ip_local_port_range): of DHCP clients' sockets, of
// TFTP transfers, and of containerd's streams on loopback.
const firstEphemeral = 32768

// checkListeners compares what ss says that an appliance listens on with the list that its packet filter is made from.
func checkListeners(t *testing.T, said string) {
	t.Helper()
	listed := map[string]map[uint16][]firewall.Place{"tcp": {}, "udp": {}}
	for _, l := range firewall.Listeners() {
		listed[l.Protocol][l.Port] = append(listed[l.Protocol][l.Port], l.At)
	}
	seen := 0
	for line := range strings.Lines(said) {
		words := strings.Fields(line) // protocol, state, queues, local address, peer, process
		require.GreaterOrEqual(t, len(words), 5, line)
		host, port, isLoopback := parseLocal(t, words[4])
		places := listed[words[0]][port]
		if port >= firstEphemeral && (isLoopback || words[0] == "udp") {
			continue
		}
		seen++
		assert.NotEmpty(t, places, "%s is on no list of listeners: %s", words[4], line)
		for _, p := range places {
			if len(places) == 1 && (p == firewall.OnLoopback || p == firewall.OnAllowed) { // the site allows nothing
				assert.True(t, isLoopback, "%s is listed on loopback and is on %s", words[4], host)
			}
		}
	}
	assert.Greater(t, seen, 10, "few listeners:\n%s", said)
}

// parseLocal reads 127.0.0.1:80, 0.0.0.0%eth0:67, [::1]:80 or *:80.
func parseLocal(t *testing.T, text string) (host string, port uint16, isLoopback bool) {
	t.Helper()
	i := strings.LastIndex(text, ":")
	require.Positive(t, i, text)
	host, _, _ = strings.Cut(strings.Trim(text[:i], "[]"), "%")
	addr, err := netip.ParseAddrPort("0.0.0.0" + text[i:])
	require.NoError(t, err, text)
	ip, err := netip.ParseAddr(host)
	return host, addr.Port(), err == nil && ip.Unmap().IsLoopback()
}
