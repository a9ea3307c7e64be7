package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPagesThatMessagesNameAreOnTheAppliance: it has no browser, and perhaps no network.
func TestPagesThatMessagesNameAreOnTheAppliance(t *testing.T) {
	print := func(args ...string) string {
		var out bytes.Buffer
		cmd := newDocsCommand()
		cmd.SetOut(&out)
		cmd.SetArgs(args)
		require.NoError(t, cmd.Execute())
		return out.String()
	}
	assert.Contains(t, print("docs/clusters.md"), "A node of another cluster")
	assert.Contains(t, print(), "\nkud\n")
	assert.Equal(t, 1, run(t.Context(), []string{"docs", "nonsense"}))
}
