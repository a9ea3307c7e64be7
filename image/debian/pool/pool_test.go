package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/debian"
)

func TestMake(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("needs dpkg-deb")
	}
	tree := filepath.Join(t.TempDir(), "hello")
	require.NoError(t, os.MkdirAll(filepath.Join(tree, "DEBIAN"), 0o755))
	require.NoError(t, os.Chmod(tree, 0o755))
	control := "Package: hello\nVersion: 1:2.10-3\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\nDescription: hello\n"
	require.NoError(t, os.WriteFile(filepath.Join(tree, "DEBIAN/control"), []byte(control), 0o644))
	deb := filepath.Join(t.TempDir(), "x")
	out, err := exec.Command("dpkg-deb", "--root-owner-group", "--build", tree, deb).CombinedOutput()
	require.NoError(t, err, string(out))
	data, err := os.ReadFile(deb)
	require.NoError(t, err)
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	dir := filepath.Join(t.TempDir(), "pool")
	p := debian.Package{Name: "hello", Version: "1:2.10-3", Arch: "all", Size: int64(len(data)), SHA256: digest}
	require.NoError(t, Make(t.Context(), []debian.Package{p}, map[string]string{digest: deb}, dir))
	kept, err := os.ReadFile(filepath.Join(dir, "hello_2.10-3_all.deb"))
	require.NoError(t, err)
	assert.Equal(t, data, kept)
	index, err := os.ReadFile(filepath.Join(dir, IndexName))
	require.NoError(t, err)
	assert.Contains(t, string(index), "Version: 1:2.10-3\n")
	assert.Contains(t, string(index), "Filename: hello_2.10-3_all.deb\n")
	assert.Contains(t, string(index), "SHA256: "+digest+"\n")
	assert.Error(t, Make(t.Context(), []debian.Package{p}, nil, dir), "a package that was not fetched")
}
