package scenario_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/testbed/sandbox/secretscan"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// TestABlankStickTakesARackOverFromAnAwayCopy: 51 servers in service, the stick is gone, and so is what it knew. A
// blank one holds them; with the away copy it has them in service again, and nobody has touched them.
func TestABlankStickTakesARackOverFromAnAwayCopy(t *testing.T) {
	need(t)
	takesOver(t, "restore", 51)
}

// TestABlankStickTakesOneServerOver is that with one server, in a few minutes.
func TestABlankStickTakesOneServerOver(t *testing.T) {
	need(t)
	takesOver(t, "restore-one", 1)
}

func takesOver(t *testing.T, name string, n int) {
	ctx, d := start(t, name, n, 80*time.Minute)
	provision(t, ctx, d, n)
	site := d.Servers.SiteDocument("eth0", scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))
	secretscan.Check(t, ctx, d.Sandbox, "authority", "log-in to nodes", "password of Ironic", "key of packages")
	sealed, key := awayCopy(t, ctx, d)
	authority := digestOf(t, d, "/var/lib/firstlight/ca/ca.crt")

	d.Servers.ResetCounters()
	require.NoError(t, d.PowerCut(ctx, scenario.Stick, site))
	guarded(t, ctx, d)
	saysOf(t, ctx, d, d.Servers.Hosts(), "it runs, and this appliance has no record of it: its BMC says that it is on")
	untouched(t, d, "held by the blank stick")

	refusesOthers(t, ctx, d, sealed, key)
	require.NoError(t, d.Sandbox.WriteFile("/run/rack.age", sealed, 0o600))
	said := run(t, ctx, d, "firstlightd", "restore", "/run/rack.age", "--key", "/run/recovery.key")
	t.Log(said)
	assert.NotEqual(t, authority, digestOf(t, d, "/var/lib/firstlight/ca/ca.crt"), "the state of a running appliance was replaced")

	// The machine starts again, and the power fails while the copy is put in place.
	cut := time.Now()
	require.NoError(t, d.PowerCutWith(ctx, scenario.Etcd, func() error {
		if err := os.Truncate(d.Sandbox.DataPath("/var/lib/firstlight/ca/ca.key"), 20); err != nil {
			return err
		}
		return os.RemoveAll(d.Sandbox.DataPath("/var/lib/firstlight/secret"))
	}, site))
	guarded(t, ctx, d)
	inService(t, ctx, d, n)
	t.Logf("all %d in service again %.0f s after the machine was started with the away copy", n, time.Since(cut).Seconds())
	time.Sleep(soak)
	inService(t, ctx, d, n)
	untouched(t, d, "restored from the away copy")
	assert.Equal(t, authority, digestOf(t, d, "/var/lib/firstlight/ca/ca.crt"), "nodes trust another authority")

	require.NoError(t, d.Sandbox.WriteFile("/run/rack.age", sealed, 0o600))
	require.NoError(t, d.Sandbox.WriteFile("/run/recovery.key", key, 0o600))
	_, err := d.Sandbox.Run(ctx, "firstlightd", "restore", "/run/rack.age", "--key", "/run/recovery.key")
	require.ErrorContains(t, err, "this appliance is not blank: it has records of host node1")
}

var recoveryKey = regexp.MustCompile(`AGE-SECRET-KEY-1[0-9A-Z]+`)

// awayCopy makes one while the appliance runs, and returns it with the recovery key that was printed.
func awayCopy(t *testing.T, ctx context.Context, d *scenario.Scenario) (sealed, key []byte) {
	t.Helper()
	said := run(t, ctx, d, "firstlightd", "backup", "/run/rack.age")
	t.Log(recoveryKey.ReplaceAllString(said, "AGE-SECRET-KEY-…"))
	key = []byte(recoveryKey.FindString(said) + "\n")
	require.Greater(t, len(key), 50, said)
	sealed, err := os.ReadFile(d.Sandbox.Path("/run/rack.age"))
	require.NoError(t, err)

	// A second one is sealed to the same key, which is not printed again.
	again := run(t, ctx, d, "firstlightd", "backup", "/run/again.age")
	assert.Empty(t, recoveryKey.FindString(again))
	require.NoError(t, d.Sandbox.WriteFile("/run/recovery.key", key, 0o600))
	t.Log(run(t, ctx, d, "firstlightd", "restore", "/run/again.age", "--check", "--key", "/run/recovery.key"))
	for _, dir := range []string{"/var/lib/firstlight", "/etc/kubernetes"} {
		require.NoError(t, filepath.WalkDir(d.Sandbox.DataPath(dir), func(path string, e os.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			assert.NotContains(t, string(text), strings.TrimSpace(string(key)), "%s has the recovery key", path)
			return err
		}))
	}
	return sealed, key
}

// refusesOthers tries what must not be taken, and leaves the right key.
func refusesOthers(t *testing.T, ctx context.Context, d *scenario.Scenario, sealed, key []byte) {
	t.Helper()
	other := "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX\n"
	for _, c := range []struct {
		name      string
		text, key []byte
		says      string
	}{
		{"half of it", sealed[:len(sealed)/2], key, "it is truncated, damaged, or no away copy"},
		{"another key", sealed, []byte(other), "this recovery key does not open it"},
	} {
		require.NoError(t, d.Sandbox.WriteFile("/run/other.age", c.text, 0o600))
		require.NoError(t, d.Sandbox.WriteFile("/run/recovery.key", c.key, 0o600))
		_, err := d.Sandbox.Run(ctx, "firstlightd", "restore", "/run/other.age", "--key", "/run/recovery.key")
		require.ErrorContains(t, err, c.says, c.name)
	}
	require.NoError(t, d.Sandbox.WriteFile("/run/recovery.key", key, 0o600))
	assert.NoFileExists(t, d.Sandbox.DataPath("/var/lib/firstlight/restore/firstlight.json"))
}

// digestOf is what a file on DATA has.
func digestOf(t *testing.T, d *scenario.Scenario, path string) string {
	t.Helper()
	text, err := os.ReadFile(d.Sandbox.DataPath(path))
	require.NoError(t, err)
	return string(text)
}
