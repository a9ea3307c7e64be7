// Package apttest is the apt of this machine, for tests: with a configuration, sources and a memory of its own.
package apttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Client is one apt. It trusts what is in the file Key.
type Client struct {
	Key string
	dir string
}

// Require skips the test on a machine that has no apt.
func Require(t testing.TB) {
	for _, program := range []string{"apt-get", "apt-cache", "gpgv"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s of Debian", program)
		}
	}
}

// New is an apt that has one suite of one repository as its source, and nothing installed.
func New(t testing.TB, key, uri, suite string) Client {
	Require(t)
	c := Client{Key: key, dir: t.TempDir()}
	for _, d := range []string{"lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d", "dpkg"} {
		require.NoError(t, os.MkdirAll(filepath.Join(c.dir, d), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "dpkg/status"), nil, 0o644))
	source := fmt.Appendf(nil, "deb [signed-by=%s check-date=no] %s %s main\n", key, uri, suite)
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "etc/sources.list"), source, 0o644))
	config := fmt.Appendf(nil, `Dir::State "%[1]s"; Dir::State::status "%[1]s/dpkg/status"; Dir::Cache "%[1]s/cache";
Dir::Etc "%[1]s/etc"; APT::Sandbox::User "root"; APT::Architecture "amd64"; Acquire::Languages "none";
Acquire::http::Proxy "DIRECT";
`, c.dir)
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "apt.conf"), config, 0o644))
	return c
}

// Run returns what a command of apt prints. Files that it fetches are in the directory of the client's own.
func (c Client) Run(program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "APT_CONFIG="+c.dir+"/apt.conf")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
