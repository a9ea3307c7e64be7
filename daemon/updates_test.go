package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/daemon/appliance/stickupdate"
	"firstlight.dev/firstlight/daemon/uploads/publish"
)

// TestUploadedVersionsAreThoseOfThisProduct: other images are passed over, and nothing outside their folder is opened.
func TestUploadedVersionsAreThoseOfThisProduct(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "images/alpha/edge"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "images/alpha/edge/debian.raw"), make([]byte, 4096), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), nil, 0o600))
	log := slog.New(slog.DiscardHandler)
	u := &uploadedUpdates{
		Background: stickupdate.Background{Updater: &stickupdate.Updater{Log: log, Dir: dir, Run: dir}},
		dir:        dir,
	}

	s, err := u.state()
	require.ErrorContains(t, err, "one slot", "it was not started from a stick")
	assert.Empty(t, s.Images)
	for _, name := range []string{"", "../secret", "alpha/edge/../../../secret", "../x/secret", "/etc/passwd", "alpha/edge"} {
		assert.ErrorContains(t, u.begin(name), "there is no such image", name)
		_, err := u.preview(name)
		assert.ErrorContains(t, err, "there is no such image", name)
	}
	path, err := u.path("alpha/edge/debian.raw")
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "images/alpha/edge/debian.raw"), path)

	u.Updater.Keys = func() (signature.Keys, error) { return nil, nil }
	mark := publish.Folder(dir).ObjectPath(artifact.Key{
		Collection: artifact.Binary, Owner: "alpha", Cluster: "edge", Name: "debian.raw.minisig",
	})
	require.NoError(t, os.MkdirAll(filepath.Dir(mark), 0o755))
	require.NoError(t, os.WriteFile(mark, nil, 0o600))
	assert.Empty(t, u.options("alpha/edge/debian.raw").Signature, "no key is known")
	u.Updater.Keys = func() (signature.Keys, error) { return signature.Keys{""}, nil }
	assert.Equal(t, mark, u.options("alpha/edge/debian.raw").Signature)
	assert.Empty(t, u.options("alpha/edge/other.raw").Signature)
}
