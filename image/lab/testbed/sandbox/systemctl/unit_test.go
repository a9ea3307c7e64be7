package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

func TestLoadMergesDropIns(t *testing.T) {
	etc, lib := t.TempDir(), t.TempDir()
	write(t, lib+"/a.service", `[Unit]
Description=one
Requires=b.service c.socket
[Service]
Type=notify
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/usr/bin/a \
  --first
RestartSec=5
KillMode=process
RuntimeDirectory=a
RuntimeDirectoryMode=0700
AmbientCapabilities=CAP_DAC_READ_SEARCH
ProtectSystem=strict
`)
	write(t, lib+"/a.service.d/10-more.conf", "[Service]\nRestartSec=1min 500ms\n")
	write(t, etc+"/a.service.d/50-other.conf", "[Service]\nRestart=always\nTimerSlackNSec=4ms\nRestartSec=2\nEnvironment=X=1 \"Y=two words\"\nExecStart=\nExecStart=/usr/bin/b $ARGS ${X}\n")
	_, err := load("a.service", []string{etc, lib})
	require.Error(t, err, "a time span that cannot be read was passed over")
	write(t, lib+"/a.service.d/10-more.conf", "[Service]\nRestartSec=1min\n")
	u, err := load("a.service", []string{etc, lib})
	require.NoError(t, err)
	assert.Equal(t, "notify", u.kind)
	assert.Equal(t, "always", u.restart)
	assert.Equal(t, 2*time.Second, u.restartSec)
	assert.Equal(t, 4*time.Millisecond, u.slack)
	assert.Equal(t, "process", u.killMode)
	assert.Equal(t, []string{"b.service"}, u.requires)
	assert.Equal(t, []string{"/run/a"}, u.dirs)
	assert.Equal(t, map[string]os.FileMode{"/run": 0o700}, u.dirModes)
	assert.Equal(t, []uintptr{unix.CAP_DAC_READ_SEARCH}, u.ambient)
	assert.Equal(t, []string{"ProtectSystem"}, u.notKnown)
	assert.Equal(t, [][]string{{"-/sbin/modprobe", "overlay"}}, u.pre)
	assert.Equal(t, [][]string{{"/usr/bin/b", "$ARGS", "${X}"}}, u.start)
	write(t, lib+"/env", "# a comment\nARGS=--one --two='2 3'\n")
	u.envFiles = []string{lib + "/env", "-/not/there"}
	env, err := u.environment()
	require.NoError(t, err)
	assert.Equal(t, []string{"/usr/bin/b", "--one", "--two=2 3", "1"}, expand(u.start[0], env))
	u.envFiles = []string{"/not/there"}
	_, err = u.environment()
	require.Error(t, err)
}

func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	_, err := load("none.service", []string{dir})
	require.ErrorContains(t, err, "not found")
	require.NoError(t, os.Symlink("/dev/null", dir+"/masked.service"))
	_, err = load("masked.service", []string{dir})
	require.ErrorContains(t, err, "masked")
}

// The appliance's own units must be ones that this manager understands well enough.
func TestAppliancesUnits(t *testing.T) {
	dir := "../../../../../overlays/appliance/usr/lib/systemd/system"
	units, err := filepath.Glob(dir + "/*.service")
	require.NoError(t, err)
	require.NotEmpty(t, units)
	for _, path := range units {
		u, err := load(filepath.Base(path), []string{dir})
		require.NoError(t, err)
		assert.NotEmpty(t, u.start, path)
		assert.Contains(t, []string{"simple", "exec", "notify", "notify-reload", "oneshot"}, u.kind, path)
	}
}
