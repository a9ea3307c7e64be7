package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestArtifactsCommandLine(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, c := range []struct {
		name string
		args []string
		code int
	}{
		{"help", []string{"-h"}, 0},
		{"no certificate", nil, 2},
		{"quota that is none", []string{"--cert", "c", "--key", "k", "--quota", "much"}, 2},
		{"negative quota", []string{"--cert", "c", "--key", "k", "--quota", "-1Gi"}, 2},
		{"quota of nobody", []string{"--cert", "c", "--key", "k", "--quota-of", "1Gi"}, 2},
		{"store that is none", []string{"--cert", "c", "--key", "k", "--store", "nfs://x"}, 1},
		{"no API server", []string{"--cert", "c", "--key", "k"}, 1},
		{"kubeconfig that is not there", []string{"--cert", "c", "--key", "k", "--kubeconfig", "/nowhere"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.code, run(t.Context(), append([]string{"artifacts"}, c.args...)))
		})
	}
}

func TestQuotas(t *testing.T) {
	of, err := parseQuotas("1Gi", []string{"alpha=2Gi", "beta=500M"})
	require.NoError(t, err)
	assert.Equal(t, int64(2<<30), of("alpha"))
	assert.Equal(t, int64(500e6), of("beta"))
	assert.Equal(t, int64(1<<30), of("anybody"))
	of, err = parseQuotas("", nil)
	require.NoError(t, err)
	assert.Zero(t, of("anybody"))
}
