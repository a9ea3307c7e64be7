package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/image"
)

// TestAWrongSiteIsNoStick: whatever the environment says, what is built is what the command line asks for.
func TestAWrongSiteIsNoStick(t *testing.T) {
	t.Setenv("SITE", "elsewhere.yaml")
	t.Setenv("OUT", "elsewhere.img")
	t.Setenv("FIRSTLIGHT_CACHE", t.TempDir())
	cmd := newBuildCommand()
	assert.Empty(t, cmd.Flag("site").Value.String())
	assert.Empty(t, cmd.Flag("out").Value.String())

	out := filepath.Join(t.TempDir(), "x.img")
	wrong := filepath.Join(t.TempDir(), "site.yaml")
	require.NoError(t, os.WriteFile(wrong, []byte("nam: x\nnodes: 3\n"), 0o600))
	assert.Equal(t, 1, run(t.Context(), []string{"build", "--site", wrong, "--out", out}))
	assert.NoFileExists(t, out)
}

func TestAResultTellsOfPasswords(t *testing.T) {
	files := []image.File{{Path: "/b/x.img", Bytes: 1 << 20, SHA256: strings.Repeat("a", 64)}}
	var said strings.Builder
	require.NoError(t, showResult(&said, commandline.Text, &image.Result{Files: files, Rebuilt: true}))
	assert.NotContains(t, said.String(), "passwords")
	require.NoError(t, showResult(&said, commandline.Text, &image.Result{Files: files, Site: "/s/site.yaml"}))
	assert.Contains(t, said.String(), "\n/s/site.yaml is inside, with its passwords: ")
	said.Reset()
	require.NoError(t, showResult(&said, commandline.JSON, &image.Result{Files: files, Site: "/s/site.yaml"}))
	assert.Contains(t, said.String(), `"site": "/s/site.yaml"`)
}
