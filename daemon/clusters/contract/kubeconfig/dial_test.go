package kubeconfig

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNoKubeconfigReachesTheApplianceItself: what listens for the appliance alone is not to be had through an operator
// that connects to wherever a Secret says.
func TestNoKubeconfigReachesTheApplianceItself(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, host := range []string{"127.0.0.1", "127.9.9.9", "0.0.0.0", "::ffff:127.0.0.1", "localhost"} {
		conn, err := DialOthers(t.Context(), "tcp", net.JoinHostPort(host, port))
		assert.ErrorContains(t, err, "is an address of the appliance itself", host)
		assert.Nil(t, conn)
	}

	own := []netip.Addr{netip.MustParseAddr("172.22.0.1"), netip.MustParseAddr("fd00::1")}
	for addr, want := range map[string]bool{
		"172.22.0.1":        true,
		"::ffff:172.22.0.1": true,
		"fd00::1":           true,
		"169.254.169.254":   true,
		"fe80::1%eth0":      true,
		"::":                true,
		"224.0.0.1":         true,
		"172.22.0.11":       false,
		"fd00::2":           false,
	} {
		assert.Equal(t, want, isOwn(netip.MustParseAddr(addr), own), addr)
	}
}
