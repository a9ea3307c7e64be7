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

// The scripts of the image's init container, with other paths and a program that does what ironic-dbsync does, as
// far as it matters, and writes down what it was asked for.
func TestTheDatabaseIsMadeForRootAloneAndBroughtUpToDateOnce(t *testing.T) {
	for name, c := range map[string]struct {
		before string   // SQL of a database that is there already
		asked  []string // of ironic-dbsync: at the first start, and after another version came
	}{
		"new":                   {"", []string{"create_schema", "upgrade"}},
		"of an earlier version": {"CREATE TABLE rows (r)", []string{"upgrade", "upgrade"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t)
			if c.before != "" {
				require.NoError(t, os.Mkdir(d.state, 0o755))
				d.sql(t, c.before)
			}
			defer syscall.Umask(syscall.Umask(0o022)) // as in a container

			d.start(t)
			d.start(t)
			assert.Equal(t, c.asked[:1], d.asked(t))
			migration := filepath.Join(d.packages, "ironic/db/sqlalchemy/alembic/versions/new.py")
			require.NoError(t, os.WriteFile(migration, nil, 0o644))
			d.start(t)
			d.start(t)
			assert.Equal(t, c.asked, d.asked(t))

			assert.Equal(t, os.FileMode(0o700), modeOf(t, d.state))
			assert.Equal(t, os.FileMode(0o600), modeOf(t, filepath.Join(d.state, "ironic.sqlite")))
		})
	}
}

// database is the place where the init container works.
type database struct{ top, state, packages string }

func newDatabase(t *testing.T) database {
	t.Helper()
	top := t.TempDir()
	d := database{top: top, state: filepath.Join(top, "ironic"), packages: filepath.Join(top, "packages")}
	for _, dir := range []string{"bin", "packages/ironic-29.0.5.egg-info", "packages/ironic/db/sqlalchemy/alembic/versions"} {
		require.NoError(t, os.MkdirAll(filepath.Join(top, dir), 0o755))
	}

	paths := strings.NewReplacer(
		StateDir, d.state,
		ConfDir+"/ironic.conf", filepath.Join(top, "ironic.conf"),
		"/tmp/new.conf", filepath.Join(top, "new.conf"),
		"/usr/lib/firstlight/ironic-version", filepath.Join(top, "bin/ironic-version"),
		"/usr/lib/python3/dist-packages", d.packages,
	)
	for _, name := range []string{"ironic-database", "ironic-version"} {
		text, err := os.ReadFile("../../overlays/ironic/usr/lib/firstlight/" + name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(top, "bin", name), []byte(paths.Replace(string(text))), 0o755))
	}
	conf := "[database]\nconnection = sqlite:///" + d.state + "/ironic.sqlite\n"
	require.NoError(t, os.WriteFile(filepath.Join(top, "ironic.conf"), []byte(conf), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(top, "bin/ironic-dbsync"), []byte(`#!/bin/sh
set -eu
db=$(sed -n 's|^connection = sqlite:///||p' "$2")
echo "$3" >>`+top+`/asked
python3 -c 'import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute("CREATE TABLE IF NOT EXISTS rows (r)")' "$db"
`), 0o755))
	return d
}

// start is a start of the pod.
func (d database) start(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(d.top, "bin/ironic-database"))
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(d.top, "bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func (d database) sql(t *testing.T, text string) {
	t.Helper()
	const program = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute(sys.argv[2])"
	out, err := exec.CommandContext(t.Context(), "python3", "-c", program, filepath.Join(d.state, "ironic.sqlite"), text).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// asked is what ironic-dbsync was told, oldest first.
func (d database) asked(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(d.top, "asked"))
	require.NoError(t, err)
	return strings.Fields(string(text))
}
