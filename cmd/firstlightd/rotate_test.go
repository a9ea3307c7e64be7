package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/daemon/appliance/vault"
)

func TestRotateTakesWhatASecretIsOf(t *testing.T) {
	cmd := newRotateCommand()
	for line, ok := range map[string]bool{
		"": false, "authority": true, "authority node-1": false, "bmc": true, "bmc node-1 node-2": true,
		"cluster": false, "cluster edge": true, "cluster edge lab": false, "moon": true, // which the daemon refuses
	} {
		assert.Equal(t, ok, cmd.Args(cmd, strings.Fields(line)) == nil, line)
	}
	assert.Equal(t, "rotate authority|packages|nodes|host-key|kubernetes|ironic|standin-bmc|bmc [NODE...]|cluster NAME", cmd.Use)

	offered, _ := cmd.ValidArgsFunction(cmd, nil, "")
	assert.Len(t, offered, len(vault.Rotations()))
	for _, r := range vault.Rotations() {
		assert.Contains(t, cmd.Long, "\n\n"+r.Name+": "+r.What+".\n")
	}
}
