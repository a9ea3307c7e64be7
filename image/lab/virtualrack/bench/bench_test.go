// Package bench_test measures the rack: one, two and three blank nodes (NODES=1,2,3), each rack from power on to
// the last node that is verified, or with CLUSTER=1 to the cluster of them, with the command that people use,
// bin/firstlight. It prints how long each phase took; its rows are build/bench/rack.json. It takes an hour, with
// clusters hours.
//
// The bar for two and three nodes is what the same machine needs for one: whatever they take
// longer than that, beyond the processor time of their emulation, is waited for somewhere.
package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab/virtualrack"
)

// bar is how much longer than one node any number of them may take.
const bar = 1.4

func BenchmarkRack(b *testing.B) {
	sizes := bench.Counts(b, "NODES", 1, 2, 3) // the first is what the others are compared with
	bench.Run(b, "rack", func(ctx context.Context) ([]bench.Row, error) {
		return measureRacks(ctx, sizes, os.Getenv("CLUSTER") == "1")
	})
}

func measureRacks(ctx context.Context, sizes []int, cluster bool) ([]bench.Row, error) {
	top, err := bench.FindTop()
	if err != nil {
		return nil, err
	}
	var rows []bench.Row
	var first, firstCPU float64
	for i, n := range sizes {
		spans, err := measureRack(ctx, top, n, cluster)
		if err != nil {
			return rows, err
		}
		fmt.Printf("\n%d nodes\n%s\n", n, virtualrack.PhaseTable(spans))
		whole, cpu := totals(spans)
		name := fmt.Sprintf("rack/%d-nodes", n)
		wall := bench.Row{
			Name: name + "-to-end",
			Unit: "s",
			Ours: whole,
			Note: "one run; all under emulation on this machine; its load at the end: " + bench.LoadAverage(),
		}
		if i == 0 {
			first, firstCPU = whole, cpu
		} else {
			wall = wall.Less(fmt.Sprintf("%.1f-times-%d-nodes", bar, sizes[0]), bar*first, 1)
			wall.Note += fmt.Sprintf("; the emulation took %.1f times the processor time of the first", cpu/firstCPU)
		}
		rows = append(rows, wall,
			bench.Row{Name: name + "-cpu", Unit: "s", Ours: cpu, Note: "processor time of all machines of the rack"})
	}
	return rows, nil
}

// measureRack brings up a rack, waits for its end, and removes it.
func measureRack(ctx context.Context, top string, nodes int, cluster bool) (spans []virtualrack.Span, err error) {
	dir := filepath.Join(bench.Dir, fmt.Sprintf("rack-%d", nodes))
	lab := func(ctx context.Context, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, filepath.Join(top, "bin", "firstlight"), append([]string{"lab", "--dir", dir}, args...)...)
		cmd.Dir, cmd.Stderr = top, os.Stderr
		return cmd
	}
	defer func() { err = errors.Join(err, lab(context.WithoutCancel(ctx), "down", "--remove").Run()) }()
	up := lab(ctx, "up", "--accel", "tcg", "--nodes", fmt.Sprint(nodes), fmt.Sprintf("--cluster=%t", cluster), "--wait")
	up.Stdout = os.Stdout
	if err := up.Run(); err != nil {
		return nil, fmt.Errorf("rack of %d nodes: %w", nodes, err)
	}
	text, err := lab(ctx, "status", "-o", "json").Output()
	if err != nil {
		return nil, fmt.Errorf("rack of %d nodes: %w", nodes, err)
	}
	var s struct {
		Phases []virtualrack.Span `json:"phases"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("rack of %d nodes: read status: %w", nodes, err)
	}
	return s.Phases, nil
}

// totals are the time from power on to the end of the slowest machine, and the processor time of
// all of them, in seconds.
func totals(spans []virtualrack.Span) (whole, cpu float64) {
	each := map[string]float64{}
	for _, s := range spans {
		if !s.Open {
			each[s.Machine] += s.Seconds
		}
		cpu += s.CPU
	}
	for _, seconds := range each {
		whole = max(whole, seconds)
	}
	return whole, cpu
}
