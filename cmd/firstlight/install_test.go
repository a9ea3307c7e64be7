package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestInstallChecksWhatItIsGiven before it looks at the machine.
func TestInstallChecksWhatItIsGiven(t *testing.T) {
	dir := t.TempDir()
	site, image := filepath.Join(dir, "site.yaml"), filepath.Join(dir, "x.img")
	require.NoError(t, os.WriteFile(image, make([]byte, 1<<20), 0o600))
	for _, c := range []struct {
		site string
		args []string
		want string
	}{
		{"networks: {provisioning: {interface: eno2}}", nil, `required flag(s) "site" not set`},
		{"networks: {provisoning: {}}", []string{"--site", site, "--image", image}, "1 problem, nothing is changed"},
		{"networks: {provisioning: {interface: eno2}}", []string{"--site", site, "--image", image}, "read image " + image},
		{"networks: {provisioning: {interface: eno2}}", []string{"--site", site, "--image", image + "x"}, "no such file"},
		{"updates: {keys: [RWSf+4uvS6xCQpm5uhrXnmkKUAfIONzqFrACRAZF8p0LdGbRsMj1ToOO]}", []string{"--site", site, "--image", image}, "refused: " + image},
	} {
		require.NoError(t, os.WriteFile(site, []byte(c.site+"\n"), 0o600))
		cmd := newInstallCommand()
		cmd.SetArgs(c.args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.ExecuteContext(t.Context())
		require.Error(t, err, c.args)
		assert.Contains(t, err.Error(), c.want)
	}
}
