package tftp

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLargestBlockNeedsNoFragments(t *testing.T) {
	for room, want := range map[int]int{
		0:       512, // as every client can
		1468:    1468,
		8968:    8968,
		1 << 16: 65464, // RFC 2348
	} {
		assert.Equal(t, want, largestBlock(room), room)
	}

	for server, want := range map[string]int{"203.0.113.1": 1468, "2001:db8::1": 1448} { // on no interface here
		s := &Server{Addr: netip.AddrPortFrom(netip.MustParseAddr(server), 69)}
		assert.Equal(t, want, s.maxBlock(), server)
	}
}
