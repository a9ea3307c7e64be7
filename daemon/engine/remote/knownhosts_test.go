package remote

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKnownHosts(t *testing.T) {
	keys := map[netip.Addr]string{netip.MustParseAddr("10.0.0.2"): "ssh-ed25519 BBBB node-2", netip.MustParseAddr("10.0.0.1"): "ssh-ed25519 AAAA", netip.MustParseAddr("10.0.0.3"): ""}
	text := KnownHosts(keys)
	assert.Equal(t, "10.0.0.1 ssh-ed25519 AAAA\n10.0.0.2 ssh-ed25519 BBBB\n", string(text))
	assert.Equal(t, map[netip.Addr]string{netip.MustParseAddr("10.0.0.1"): "ssh-ed25519 AAAA", netip.MustParseAddr("10.0.0.2"): "ssh-ed25519 BBBB"}, ReadKnownHosts(append(text, "# x\nhost key\n"...)))
}

func FuzzReadKnownHosts(f *testing.F) {
	f.Add([]byte("10.0.0.1 ssh-ed25519 AAAA\n[10.0.0.2]:2222 ssh-ed25519 BBBB\n# x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for addr := range ReadKnownHosts(text) {
			assert.NotContains(t, ReadKnownHosts(WithoutHosts(text, []netip.Addr{addr})), addr)
		}
	})
}
