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
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
	"firstlight.dev/firstlight/image/lab/testbed/simulator"
)

// How long an appliance that waits is left alone, and then looked at.
const (
	idleBefore = 90 * time.Second
	idleTime   = 2 * time.Minute
)

// BenchmarkIdle measures what an appliance that waits takes of the processor: it brings one up natively
// with one simulated server, waits until it has settled, and adds up the processor time and the context
// switches of its processes. Rows are in percent of one core.
//
// What an idle appliance takes is what its servers lack where all of them share the two cores of one rack.
func BenchmarkIdle(b *testing.B) {
	dir := b.TempDir()
	bench.Run(b, "idle", func(ctx context.Context) ([]bench.Row, error) { return measureIdle(ctx, dir) })
}

func measureIdle(ctx context.Context, dir string) (rows []bench.Row, err error) {
	root, err := sandbox.RootTree()
	if err != nil {
		return nil, err
	}
	programs, err := sandbox.BuildPrograms(ctx, dir)
	if err != nil {
		return nil, err
	}
	s, err := scenario.Start(ctx, scenario.Config{
		Name:     "bench-idle",
		Dir:      filepath.Join(dir, "data"),
		Root:     root,
		Programs: programs,
		Log:      os.Stderr,
		Servers:  simulator.Config{Hosts: 1},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	site := s.Servers.SiteDocument("eth0", scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))
	if err := s.Begin(ctx, site); err != nil {
		return nil, err
	}
	if _, err := s.Sandbox.AwaitStage(ctx, "hosts-guarded", nil); err != nil {
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

	for _, name := range slices.Sorted(maps.Keys(after)) {
		a, b := after[name], before[name]
		rows = append(rows, bench.Row{
			Name: "idle/" + name,
			Unit: "%",
			Ours: 100 * (a.CPU - b.CPU) / idleTime.Seconds(),
			Note: fmt.Sprintf("of one core, natively, over %v; %.0f context switches a second; load of the machine %s",
				idleTime, (a.Switches-b.Switches)/idleTime.Seconds(), bench.LoadAverage()),
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
