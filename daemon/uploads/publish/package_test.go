package publish_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/publish"
)

func TestWhatABinaryIsCalledAsAPackage(t *testing.T) {
	folder := publish.Folder(t.TempDir())
	at := func(name string) artifact.Key {
		return artifact.Key{Collection: artifact.Binary, Owner: "alpha", Cluster: "beta", Name: name}
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(folder.ObjectPath(at("x"))), 0o755))
	tree := t.TempDir()
	require.NoError(t, os.Chmod(tree, 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(tree, "DEBIAN"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(tree, "DEBIAN", "control"),
		[]byte("Package: greeting\nVersion: 1.0\nArchitecture: all\nMaintainer: Alpha <alpha@example.org>\nDescription: a greeting\n"), 0o644))
	out, err := exec.Command("dpkg-deb", "--root-owner-group", "--build", tree, filepath.Join(tree, "x.deb")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Rename(filepath.Join(tree, "x.deb"), folder.ObjectPath(at("brought"))))
	require.NoError(t, os.WriteFile(folder.ObjectPath(at("tool")), []byte("#!/bin/sh\n"), 0o755))

	for name, want := range map[string][2]string{"brought": {"greeting", "1.0"}, "tool": {}, "not-there": {}} {
		is, version, err := folder.PackageName(at(name))
		require.NoError(t, err, name)
		assert.Equal(t, want, [2]string{is, version}, name)
	}
}
