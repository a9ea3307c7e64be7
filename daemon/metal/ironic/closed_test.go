package ironic

import (
	"errors"
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
			if assert.NotNil(t, c.SecurityContext.Capabilities, c.Name) {
				assert.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, c.Name)
				assert.Empty(t, c.SecurityContext.Capabilities.Add, c.Name)
			}
		}
	}
}

// The script of the image's init container, with other paths and a program that does what ironic-dbsync does to
// the row of the revision.
func TestTheDatabase(t *testing.T) {
	text, err := os.ReadFile("../../../overlays/ironic/usr/lib/firstlight/ironic-database")
	require.NoError(t, err)
	const shipped, earlier = "21c48150dea9", "163040c5513f"
	for name, c := range map[string]struct {
		had  string // revision of the database that is there; empty: none
		runs int    // of ironic-dbsync, in two starts
	}{
		"new":                   {"", 0},
		"of the same image":     {shipped, 0},
		"of an earlier version": {earlier, 1},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			state, conf, bin := filepath.Join(top, "ironic"), filepath.Join(top, "ironic.conf"), filepath.Join(top, "bin")
			schema, runs := filepath.Join(top, "schema.sqlite"), filepath.Join(top, "runs")
			script := strings.NewReplacer(StateDir, state, ConfDir+"/ironic.conf", conf, "/usr/share/ironic/schema.sqlite", schema).Replace(string(text))
			makeDatabase(t, schema, shipped)
			require.NoError(t, os.Mkdir(bin, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(bin, "ironic-dbsync"), []byte(`#!/bin/sh
set -eu
echo "$*" >>`+runs+`
cp `+schema+` `+state+`/ironic.sqlite
`), 0o755))
			if c.had != "" {
				require.NoError(t, os.Mkdir(state, 0o755))
				makeDatabase(t, filepath.Join(state, "ironic.sqlite"), c.had)
			}

			defer syscall.Umask(syscall.Umask(0o022)) // as in a container
			for range 2 {                             // as after a restart
				cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
				cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s", out)
			}

			ran, err := os.ReadFile(runs)
			if !errors.Is(err, os.ErrNotExist) {
				require.NoError(t, err)
			}
			assert.Equal(t, strings.Repeat("--config-file "+conf+" upgrade\n", c.runs), string(ran))
			assert.Equal(t, shipped, revision(t, filepath.Join(state, "ironic.sqlite")))
			assert.Equal(t, os.FileMode(0o700), modeOf(t, state))
			assert.Equal(t, os.FileMode(0o600), modeOf(t, filepath.Join(state, "ironic.sqlite")))
		})
	}
}

// makeDatabase makes a database that says which revision its schema has.
func makeDatabase(t *testing.T, path, revision string) {
	query(t, path, "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)", "INSERT INTO alembic_version VALUES ('"+revision+"')")
}

func revision(t *testing.T, path string) string {
	return query(t, path, "SELECT version_num FROM alembic_version")
}

// query runs statements and returns the last one's first value.
func query(t *testing.T, path string, statements ...string) string {
	const program = `
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as database:
    for statement in sys.argv[2:]:
        rows = database.execute(statement).fetchall()
print(rows[0][0] if rows else "")`
	out, err := exec.CommandContext(t.Context(), "python3", append([]string{"-c", program, path}, statements...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}
