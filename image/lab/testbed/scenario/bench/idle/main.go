// Command idle measures what an appliance that waits takes of the processor: it brings one up natively
// with one fake server, waits until it has settled, and adds up the processor time and the context
// switches of its processes for two minutes. It prints a row per part, in percent of one core, and writes
// build/bench/idle.json.
//
// What an idle appliance takes is what its servers lack where all of them share one desk's two cores.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
	"firstlight.dev/firstlight/image/lab/testbed/simulator"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	settle := flag.Duration("settle", 90*time.Second, "how long to wait before it is looked at")
	look := flag.Duration("look", 2*time.Minute, "for how long it is looked at")
	flag.Parse()
	if err := run(ctx, *settle, *look); err != nil {
		fmt.Fprintln(os.Stderr, "idle:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, settle, look time.Duration) (err error) {
	root, err := sandbox.RootTree()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "firstlight-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	programs, err := sandbox.BuildPrograms(ctx, dir)
	if err != nil {
		return err
	}
	d, err := scenario.Start(ctx, scenario.Config{Name: "bench-idle", Dir: filepath.Join(dir, "data"), Root: root, Programs: programs, Log: os.Stderr, Servers: simulator.Config{Hosts: 1}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.Begin(ctx, d.Servers.SiteDocument("eth0", scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))); err != nil {
		return err
	}
	if _, err := d.Sandbox.AwaitStage(ctx, "hosts-guarded", nil); err != nil {
		return err
	}
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	before, err := d.Usage(ctx)
	if err != nil {
		return err
	}
	if err := sleep(ctx, look); err != nil {
		return err
	}
	after, err := d.Usage(ctx)
	if err != nil {
		return err
	}
	var rows []bench.Row
	for _, name := range slices.Sorted(maps.Keys(after)) {
		a, b := after[name], before[name]
		rows = append(rows, bench.Row{Name: "idle/" + name, Unit: "%", Ours: 100 * (a.CPU - b.CPU) / look.Seconds(),
			Note: fmt.Sprintf("of one core, natively, over %v; %.0f context switches a second; load of the machine %s", look, (a.Switches-b.Switches)/look.Seconds(), bench.LoadAverage())})
	}
	top, err := sandbox.RepositoryRoot()
	if err != nil {
		return err
	}
	return bench.Write(os.Stdout, filepath.Join(top, bench.Dir), "idle", rows)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
