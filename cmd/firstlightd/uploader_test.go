package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
)

// TestAnUploaderIsThreeVariables: what is printed is run by a shell, and sets what `firstlight artifact` reads.
func TestAnUploaderIsThreeVariables(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, writeUploader(&out, "https://10.0.0.5:9015", "-----BEGIN CERTIFICATE-----\nMIIB$HOME\n", "eyJ.a-b_c"))
	dir := t.TempDir()
	cmd := exec.Command("sh", "-eu", "-c", `eval "$1"; echo "$FIRSTLIGHT_SERVER $FIRSTLIGHT_CA $FIRSTLIGHT_TOKEN"`, "sh", out.String())
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, string(text))
	ca := filepath.Join(dir, "firstlight-ca.crt")
	assert.Equal(t, "https://10.0.0.5:9015 "+ca+" eyJ.a-b_c\n", string(text))
	got, err := os.ReadFile(ca)
	require.NoError(t, err)
	assert.Equal(t, "-----BEGIN CERTIFICATE-----\nMIIB$HOME\n", string(got))
}

func TestUploadsURL(t *testing.T) {
	address := func(role string, all ...string) status.Address { return status.Address{Role: role, Addresses: all} }
	for want, d := range map[string]status.Document{
		"https://172.22.0.1:9015": {Addresses: []status.Address{address("provisioning", "172.22.0.1/24"), address("bmc", "172.23.0.1/24")}},
		"https://10.1.0.5:9015":   {Addresses: []status.Address{address("provisioning", "172.22.0.1/24"), address("baremetal", "10.1.0.5/16")}},
		"https://[fd00::5]:9015":  {Addresses: []status.Address{address("provisioning"), address("baremetal", "fd00::5/64")}},
	} {
		got, err := uploadsURL(d)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := uploadsURL(status.Document{Addresses: []status.Address{address("bmc", "172.23.0.1/24")}})
	assert.ErrorContains(t, err, "--server")
	assert.Equal(t, 2, run(t.Context(), []string{"uploader", "alpha", "--for", "5m"}))
}
