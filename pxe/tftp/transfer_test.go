package tftp

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLargestBlockNeedsNoFragments(t *testing.T) {
	for mtu, want := range map[int]int{
		0:       512, // as every client can
		576:     544,
		1500:    1468,
		9000:    8968,
		1 << 16: 65464, // RFC 2348
	} {
		assert.Equal(t, want, largestBlock(mtu), "MTU %d", mtu)
	}
}
