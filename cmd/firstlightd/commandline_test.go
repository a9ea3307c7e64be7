package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/commandline/commandlinetest"
)

// TestEveryCommandLine: -h is 0 and what a command does not know is 2, in each command that there is.
func TestEveryCommandLine(t *testing.T) {
	assert.Greater(t, commandlinetest.CheckUsage(t, newRootCommand, commandlinetest.Exceptions{}), 15)
}

// TestEveryOutputKnowsTextAndJSON and nothing else, wherever there is -o.
func TestEveryOutputKnowsTextAndJSON(t *testing.T) {
	with := commandlinetest.CheckOutputs(t, newRootCommand)
	assert.ElementsMatch(t, []string{"audit", "erase", "login", "secrets", "status", "unknown", "update", "why"}, with)
}
