package bench_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// How long an appliance that waits is left alone, and then looked at.
const (
	idleBefore = 90 * time.Second
	idleTime   = 2 * time.Minute
)

// lastStage is the last of all stages: after it an appliance only waits.
const lastStage = "site-clusters-applied"

// BenchmarkIdle measures an appliance with one simulated server.
//
// What an idle appliance takes is what its servers lack where all of them share the two cores of one rack.
func BenchmarkIdle(b *testing.B) { idle{name: "idle", servers: 1, until: "hosts-guarded"}.run(b) }

// BenchmarkIdleAllStages measures one that has no servers, so that what follows Ready comes at once: Cluster API's
// managers above all.
func BenchmarkIdleAllStages(b *testing.B) { idle{name: "idle-all-stages", until: lastStage}.run(b) }

// idle is an appliance that waits once it has reached a stage.
type idle struct {
	name    string
	servers int
	until   string
}

// run measures what the appliance takes of the processor natively: from its start until that stage, by process, in
// seconds; and while it waits, in percent of one core.
func (a idle) run(b *testing.B) {
	dir := b.TempDir()
	bench.Run(b, a.name, func(ctx context.Context) ([]bench.Row, error) {
		root, err := sandbox.RootTree()
		if err != nil {
			return nil, err
		}
		programs, err := sandbox.BuildPrograms(ctx, dir)
		if err != nil {
			return nil, err
		}
		return a.measure(ctx, scenario.Config{
			Name:     "bench-" + a.name,
			Dir:      filepath.Join(dir, "data"),
			Root:     root,
			Programs: programs,
			Log:      os.Stderr,
			Servers:  simulator.Config{Hosts: a.servers},
		})
	})
}

func (a idle) measure(ctx context.Context, c scenario.Config) (rows []bench.Row, err error) {
	s, err := scenario.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	site := s.Servers.SiteDocument("eth0", scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))
	if err := s.Begin(ctx, site); err != nil {
		return nil, err
	}
	if _, err := s.Sandbox.AwaitStage(ctx, a.until, nil); err != nil {
		return nil, err
	}

	started, err := s.Usage(ctx)
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, idleBefore); err != nil {
		return nil, err
	}
	before, err := s.Usage(ctx)
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, idleTime); err != nil {
		return nil, err
	}
	after, err := s.Usage(ctx)
	if err != nil {
		return nil, err
	}

	load := bench.LoadAverage()
	for _, name := range slices.Sorted(maps.Keys(after)) {
		now, then := after[name], before[name]
		rows = append(rows, bench.Row{
			Name: a.name + "/" + name,
			Unit: "%",
			Ours: 100 * (now.CPU - then.CPU) / idleTime.Seconds(),
			Note: fmt.Sprintf("of one core, natively, over %v; %.0f context switches a second; %.0f MiB resident; load of the machine %s",
				idleTime, (now.Switches-then.Switches)/idleTime.Seconds(), now.MiB, load),
		})
	}
	for _, name := range slices.Sorted(maps.Keys(started)) {
		rows = append(rows, bench.Row{
			Name: a.name + "/start-" + name,
			Unit: "s",
			Ours: started[name].CPU,
			Note: fmt.Sprintf("of processor time until %s, natively; load of the machine %s", a.until, load),
		})
	}
	return rows, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
