// Command idle measures what an appliance that waits takes of the processor: it brings one up natively
// with nodes in its site whose BMCs nobody can reach, waits until it has settled, and adds up the
// processor time and the context switches of every process for two minutes. It prints a row per part, in
// percent of one core, and writes build/bench/idle.json.
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
	"strconv"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab/drill"
	"firstlight.dev/firstlight/image/lab/fleet"
	"firstlight.dev/firstlight/image/lab/native"
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
	root, err := native.Root()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "firstlight-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	programs, err := native.BuildPrograms(ctx, dir)
	if err != nil {
		return err
	}
	d, err := drill.Start(ctx, drill.Config{Name: "bench-idle", Dir: filepath.Join(dir, "data"), Root: root, Programs: programs, Log: os.Stderr, Fleet: fleet.Config{Hosts: 1}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.Begin(ctx, d.Fleet.Site("eth0", drill.OS(drill.ImageA, drill.Sum(drill.ImageA)))); err != nil {
		return err
	}
	if _, err := d.Bed.Await(ctx, "hosts-guarded", nil); err != nil {
		return err
	}
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	before, err := takes(ctx, d.Bed)
	if err != nil {
		return err
	}
	if err := sleep(ctx, look); err != nil {
		return err
	}
	after, err := takes(ctx, d.Bed)
	if err != nil {
		return err
	}
	var rows []bench.Row
	for _, name := range slices.Sorted(maps.Keys(after)) {
		a, b := after[name], before[name]
		rows = append(rows, bench.Row{Name: "idle/" + name, Unit: "%", Ours: 100 * (a.seconds - b.seconds) / look.Seconds(),
			Note: fmt.Sprintf("of one core, natively, over %v; %.0f context switches a second; load of the machine %s", look, float64(a.switches-b.switches)/look.Seconds(), bench.Load())})
	}
	top, err := native.Top()
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

// taken is what a part has taken so far, its ended children with it.
type taken struct {
	seconds  float64
	switches int
}

// takes adds it up by the names of the processes in the bed, and as "all".
func takes(ctx context.Context, bed *native.Bed) (map[string]taken, error) {
	out, err := bed.Run(ctx, "sh", "-c", `for p in /proc/[0-9]*; do
		read -r name < $p/comm || continue
		set -- $(sed 's/.*) //' $p/stat); echo "$name $((${12}+${13}+${14}+${15})) $(cat $p/task/*/status | awk '/ctxt_switches/ {n += $2} END {print n}')"
	done 2>/dev/null`)
	if err != nil {
		return nil, err
	}
	sums := map[string]taken{}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) < 3 {
			continue
		}
		ticks, errTicks := strconv.ParseFloat(words[len(words)-2], 64)
		switches, errSwitches := strconv.Atoi(words[len(words)-1])
		if errTicks != nil || errSwitches != nil {
			continue
		}
		for _, name := range []string{strings.Join(words[:len(words)-2], "-"), "all"} {
			was := sums[name]
			sums[name] = taken{was.seconds + ticks/100, was.switches + switches}
		}
	}
	return sums, nil
}
