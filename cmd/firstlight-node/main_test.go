package main

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

var quiet = slog.New(slog.DiscardHandler)

func TestCommandLine(t *testing.T) {
	for _, args := range [][]string{{}, {"dance"}, {"endpoint", "--to", "nowhere"}, {"network", "--pods", "10.0.0.0/8"},
		{"network", "--node", "a", "--pods", "all"}, {"probe", "now"}, {"probe", "--no"},
		{"features"}, {"float"}, {"float", "--endpoint", "172.22.0.100"}, {"float", "--endpoint", "[fd00::1]:6443"}} {
		var wrong usageError
		assert.ErrorAs(t, run(t.Context(), args, quiet), &wrong, "%v", args)
	}
	for _, args := range [][]string{{"-h"}, {"--help"}, {"probe", "-h"}} {
		var out, problems strings.Builder
		assert.Equal(t, 0, execute(t.Context(), args, &out, &problems), "%v", args)
		assert.Equal(t, usage, out.String(), "%v", args)
		assert.Empty(t, problems.String(), "%v", args)
	}
	var out, problems strings.Builder
	assert.Equal(t, 2, execute(t.Context(), []string{"probe", "--nonsense"}, &out, &problems))
	assert.Empty(t, out.String())
	assert.Equal(t, 1, execute(t.Context(), []string{"probe", "--listen", "256.0.0.1:1"}, &out, &problems))
	assert.ErrorContains(t, run(t.Context(), []string{"probe", "--listen", "256.0.0.1:1"}, quiet), "listen for questions")
}
