package cniprogram

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func TestTheAccessIsInOneFile(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(ca, []byte("authority"), 0o600))
	c := &rest.Config{Host: "https://10.96.0.1:443", BearerToken: "secret"}
	c.CAFile = ca
	text, err := EncodeAccess(c)
	require.NoError(t, err)
	got, err := clientcmd.RESTConfigFromKubeConfig(text)
	require.NoError(t, err)
	assert.Equal(t, "https://10.96.0.1:443", got.Host)
	assert.Equal(t, "secret", got.BearerToken)
	assert.Equal(t, "authority", string(got.CAData))
}
