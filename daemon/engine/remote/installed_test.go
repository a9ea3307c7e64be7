package remote

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestThoseWhoAreWaitedForAreNamed(t *testing.T) {
	var all []string
	for i := range 7 {
		all = append(all, fmt.Sprintf("node-%d: it is off", i+1))
	}
	assert.Equal(t, "it is waited for 1: node-1: it is off", DescribeWaiting(all[:1]))
	assert.Equal(t, "it is waited for 2: node-1: it is off; node-2: it is off", DescribeWaiting(all[:2]))
	assert.Equal(t, "it is waited for 7: node-1: it is off; node-2: it is off; node-3: it is off; node-4: it is off; "+
		"node-5: it is off; and 2 more", DescribeWaiting(all))
}
