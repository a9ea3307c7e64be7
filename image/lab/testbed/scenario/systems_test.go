package scenario_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/testbed/machines"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// systems are the machines of a test.
type systems struct {
	*machines.Machines
	t   *testing.T
	ctx context.Context
	d   *scenario.Scenario
}

func newSystems(t *testing.T, ctx context.Context, d *scenario.Scenario) *systems {
	t.Helper()
	m, err := machines.New(ctx, d, machines.Config{Root: sandbox.RequireRoot(t), Dir: t.TempDir(), Log: t.Output()})
	require.NoError(t, err)
	t.Cleanup(func() {
		for server := range m.Systems() {
			if t.Failed() {
				t.Log(m.Logs(server))
			}
		}
		assert.NoError(t, m.Close())
	})
	return &systems{Machines: m, t: t, ctx: ctx, d: d}
}

// longestWait ends a wait for what never comes, while the appliance can still say why.
const longestWait = 25 * time.Minute

// until waits for something while servers boot.
func (s *systems) until(what string, holds func() bool) {
	s.t.Helper()
	began := time.Now()
	for ; !holds(); time.Sleep(time.Second) {
		require.NoError(s.t, s.ctx.Err(), what)
		require.Less(s.t, time.Since(began), longestWait, what)
		require.NoError(s.t, s.Follow(s.ctx), what)
	}
	s.t.Logf("%s after %.0f s", what, time.Since(began).Seconds())
}

// ask is what a command prints, "" if it fails.
func (s *systems) ask(name string, args ...string) string {
	out, err := s.d.Sandbox.Run(s.ctx, name, args...)
	if err != nil {
		return ""
	}
	return out
}

// changeClass has the appliance's class give machines in sandboxes what they want.
func (s *systems) changeClass() {
	const file = "clusterclass-firstlight.yaml"
	text, err := os.ReadFile(filepath.Join(filepath.Dir(template), file))
	require.NoError(s.t, err)
	changed, err := machines.ForSandboxes(string(text))
	require.NoError(s.t, err)
	path := strings.TrimSpace(run(s.t, s.ctx, s.d, "sh", "-euc", "ls /usr/share/firstlight/cluster-api/infrastructure-metal3/*/"+file))
	require.NoError(s.t, s.d.Sandbox.WriteFile(path, []byte(changed), 0o644))
}
