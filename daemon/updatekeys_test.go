package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/away"
	"firstlight.dev/firstlight/daemon/appliance/host"
)

// TestWithoutSITENoOneKnowsTheKeys: that there is no document there is no word that any image may be taken.
func TestWithoutSITENoOneKnowsTheKeys(t *testing.T) {
	const key = "RWS4KWn0sKQJ22PjUNC7QlA+j46xhp5k5I0f5Ono181vfqsl+6FUjC5V"
	c := &Copier{place: away.Place{Root: t.TempDir()}}
	keys, err := c.updateKeys()
	require.NoError(t, err, "not a stick")
	assert.Empty(t, keys)

	for _, name := range []string{stick.StorageInfoFile, filepath.Join(stick.SiteDir, host.SiteName)} {
		require.NoError(t, os.MkdirAll(filepath.Dir(c.path(name)), 0o755))
	}
	require.NoError(t, stick.Save(c.path(stick.StorageInfoFile), stick.StorageInfo{State: stick.StorageData}))
	_, err = c.updateKeys()
	require.ErrorContains(t, err, "was not mounted when this machine started")
	_, err = c.Recipients()
	require.ErrorContains(t, err, "was not mounted when this machine started", "copies would be sealed to another key")

	require.NoError(t, stick.Save(c.path(stick.StorageInfoFile), stick.StorageInfo{State: stick.StorageData, Site: true}))
	mounts := c.path("/proc/self/mountinfo")
	require.NoError(t, os.MkdirAll(filepath.Dir(mounts), 0o755))
	require.NoError(t, os.WriteFile(mounts, nil, 0o600))
	_, err = c.updateKeys()
	require.ErrorContains(t, err, "SITE, where site.yaml is, is not mounted any more; restart")
	require.NoError(t, os.WriteFile(mounts, []byte("30 28 8:3 / "+stick.SiteDir+" ro - vfat /dev/sda3 ro\n"), 0o600))
	keys, err = c.updateKeys()
	require.NoError(t, err)
	assert.Empty(t, keys, "its owner names none")
	document := filepath.Join(stick.SiteDir, host.SiteName)
	require.NoError(t, os.WriteFile(c.path(document), []byte("updates: {keys: ["+key+"]}\n"), 0o600))
	keys, err = c.updateKeys()
	require.NoError(t, err)
	assert.Equal(t, signature.Keys{key}, keys)
}
