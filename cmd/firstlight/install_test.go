package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/image/install"
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
		{"networks: {provisioning: {interface: eno2}}", nil, "name its site.yaml with --site"},
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

// TestInstallReadsWhatItHasChecked: the file at the path may become another one as soon as it was read.
func TestInstallReadsWhatItHasChecked(t *testing.T) {
	key, _ := newSigningKey(t)
	dir, content := t.TempDir(), make([]byte, 1<<20)
	site, image, other := filepath.Join(dir, "site.yaml"), filepath.Join(dir, "x.img"), filepath.Join(dir, "other")
	require.NoError(t, os.WriteFile(site, []byte("networks: {provisioning: {interface: eno2}}\n"), 0o600))
	require.NoError(t, os.WriteFile(image, content, 0o600))
	_, _, err := command(t, "", "sign", image, "--key", key)
	require.NoError(t, err)
	require.NoError(t, os.Remove(image))
	require.NoError(t, unix.Mkfifo(image, 0o600))
	require.NoError(t, os.Mkdir(other, 0o700))

	swapped := make(chan error, 1)
	go func() {
		f, err := os.OpenFile(image, os.O_WRONLY, 0) // until somebody reads
		if err == nil {
			_, err = f.Write(content)
			err = errors.Join(err, os.Remove(image), os.Rename(other, image), f.Close())
		}
		swapped <- err
	}()
	_, _, err = command(t, "", "install", "--site", site, "--image", image, "--trust", key+".pub")
	require.NoError(t, <-swapped)
	require.ErrorContains(t, err, "no GUID partition table", "of what was signed, and not of what took its place")
}

// TestKeysOfTheInstalledSiteHold for an update whose command names the site as it was before they were added.
func TestKeysOfTheInstalledSiteHold(t *testing.T) {
	const key = "RWSf+4uvS6xCQpm5uhrXnmkKUAfIONzqFrACRAZF8p0LdGbRsMj1ToOO"
	here := install.Installation{Prefix: t.TempDir()}
	installed := filepath.Join(here.Prefix, install.SiteFile)
	require.NoError(t, os.MkdirAll(filepath.Dir(installed), 0o700))
	require.NoError(t, os.WriteFile(installed, []byte("updates: {keys: ["+key+"]}\n"), 0o600))
	named := &site.Site{}
	keys, err := siteKeys(here, named)
	require.NoError(t, err)
	assert.Empty(t, keys, "the data of one that was uninstalled")

	receipt := filepath.Join(here.Prefix, install.Dir, "install.json")
	require.NoError(t, os.WriteFile(receipt, []byte(`{"complete": true}`), 0o600))
	keys, err = siteKeys(here, named)
	require.NoError(t, err)
	assert.Len(t, keys, 1)
	require.NoError(t, os.WriteFile(installed, []byte("updats: {}\n"), 0o600))
	_, err = siteKeys(here, named)
	assert.ErrorContains(t, err, "1 problem, nothing is changed", "nobody knows what it wants")
}
