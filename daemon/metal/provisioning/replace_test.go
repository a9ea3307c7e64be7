package provisioning

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// TestWhoseServerIsAnotherOne: of nodes for which the last round found that.
func TestWhoseServerIsAnotherOne(t *testing.T) {
	p := &Provisioner{progress: []metal3.Progress{
		{Node: "node-1", Decision: metal3.Decision{Reason: metal3.ReasonReplaced, OtherServer: "the BMC ipmi://10.0.0.2"}},
		{Node: "node-2", Decision: metal3.Decision{Reason: metal3.ReasonReplacing}},
		{Node: "node-3", Decision: metal3.Decision{OtherServer: "x"}, Err: errors.New("the API does not answer")},
	}}
	assert.Equal(t, "the BMC ipmi://10.0.0.2", p.OtherServer("node-1"))
	for _, name := range []string{"node-2", "node-3", "node-4"} {
		assert.Empty(t, p.OtherServer(name), name)
	}
}
