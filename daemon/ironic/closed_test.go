package ironic

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func modeOf(t *testing.T, path string) os.FileMode {
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Mode().Perm()
}

func TestTheStateIsRootsAlone(t *testing.T) {
	top := t.TempDir()
	p := Pod{StateDir: filepath.Join(top, "ironic"), FilesDir: filepath.Join(top, "http")}
	require.NoError(t, os.Mkdir(p.StateDir, 0o755)) // by an earlier version
	for range 2 {
		require.NoError(t, p.makeDirs())
		assert.Equal(t, os.FileMode(0o700), modeOf(t, p.StateDir))
		assert.Equal(t, os.FileMode(0o755), modeOf(t, p.FilesDir), "it is served")
	}
	assert.DirExists(t, filepath.Join(p.StateDir, "log"))
}

func TestThePodGainsNoPrivileges(t *testing.T) {
	spec := Pod{Config: sample()}.spec()
	require.NotNil(t, spec.SecurityContext)
	require.NotNil(t, spec.SecurityContext.SeccompProfile)
	assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, spec.SecurityContext.SeccompProfile.Type)
	for _, c := range append(spec.InitContainers, spec.Containers...) {
		if assert.NotNil(t, c.SecurityContext, c.Name) && assert.NotNil(t, c.SecurityContext.AllowPrivilegeEscalation, c.Name) {
			assert.False(t, *c.SecurityContext.AllowPrivilegeEscalation, c.Name)
		}
	}
}

// The script of the image's init container, with other paths and a program that makes what ironic-dbsync makes.
func TestTheDatabaseIsMadeForRootAlone(t *testing.T) {
	text, err := os.ReadFile("../../overlays/ironic/usr/lib/firstlight/ironic-database")
	require.NoError(t, err)
	for name, before := range map[string]func(state string){
		"new": func(string) {},
		"of an earlier version": func(state string) {
			require.NoError(t, os.Mkdir(state, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(state, "ironic.sqlite"), []byte("rows"), 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			state, conf, bin := filepath.Join(top, "ironic"), filepath.Join(top, "ironic.conf"), filepath.Join(top, "bin")
			script := strings.NewReplacer(StateDir, state, ConfDir+"/ironic.conf", conf, "/tmp/new.conf", filepath.Join(top, "new.conf")).Replace(string(text))
			require.NoError(t, os.WriteFile(conf, []byte("[database]\nconnection = sqlite:///"+state+"/ironic.sqlite\n"), 0o644))
			require.NoError(t, os.Mkdir(bin, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(bin, "ironic-dbsync"), []byte(`#!/bin/sh
set -eu
db=$(sed -n 's|^connection = sqlite:///||p' "$2")
echo "$3" >>"$db"
`), 0o755))
			before(state)
			defer syscall.Umask(syscall.Umask(0o022)) // as in a container
			for range 2 {                             // as after a restart
				cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
				cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s", out)
			}
			rows, err := os.ReadFile(filepath.Join(state, "ironic.sqlite"))
			require.NoError(t, err)
			assert.Contains(t, string(rows), "upgrade\nupgrade\n")
			assert.Equal(t, os.FileMode(0o700), modeOf(t, state))
			assert.Equal(t, os.FileMode(0o600), modeOf(t, filepath.Join(state, "ironic.sqlite")))
		})
	}
}
