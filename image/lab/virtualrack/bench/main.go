// Command bench measures the rack: one, two and three blank nodes, each rack from power on to
// the last node that is proven, or with -cluster to the cluster of them, with the command that people
// use. It prints how long each phase took and a row per figure, and writes build/bench/rack.json. It
// takes an hour, with clusters hours.
//
// The bar for two and three nodes is what the same machine needs for one: whatever they take
// longer than that, beyond the processor time of their emulation, is waited for somewhere.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab/virtualrack"
)

const program = "bin/firstlight"

// bar is how much longer than one node any number of them may take.
const bar = 1.4

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	sizes := flag.String("nodes", "1,2,3", "sizes of racks, commas between; the first is what the others are compared with")
	cluster := flag.Bool("cluster", false, "go on to the cluster of the nodes")
	flag.Parse()
	if err := run(ctx, strings.Split(*sizes, ","), *cluster); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, sizes []string, cluster bool) error {
	var rows []bench.Row
	var first, firstCPU float64
	for i, text := range sizes {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-nodes: %q is not a size", text)
		}
		spans, err := measureRack(ctx, n, cluster)
		if err != nil {
			return err
		}
		fmt.Printf("\n%d nodes\n%s\n", n, virtualrack.PhaseTable(spans))
		whole, cpu := totals(spans)
		note := "one run; all under emulation on this machine; its load at the end: " + bench.LoadAverage()
		name := fmt.Sprintf("rack/%d-nodes", n)
		wall := bench.Row{Name: name + "-to-end", Unit: "s", Ours: whole, Note: note}
		if i == 0 {
			first, firstCPU = whole, cpu
		} else {
			wall = wall.Less(fmt.Sprintf("%.1f-times-%s-nodes", bar, sizes[0]), bar*first, 1)
			wall.Note += fmt.Sprintf("; the emulation took %.1f times the processor time of the first", cpu/firstCPU)
		}
		rows = append(rows, wall, bench.Row{Name: name + "-cpu", Unit: "s", Ours: cpu, Note: "processor time of all machines of the rack"})
	}
	return bench.Write(os.Stdout, bench.Dir, "rack", rows)
}

// measureRack brings up a rack, waits for its end, and removes it.
func measureRack(ctx context.Context, nodes int, cluster bool) (spans []virtualrack.Span, err error) {
	dir := fmt.Sprintf("build/bench/rack-%d", nodes)
	lab := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, program, append([]string{"lab", "--dir", dir}, args...)...)
		cmd.Stderr = os.Stderr
		return cmd
	}
	defer func() {
		down := exec.Command(program, "lab", "--dir", dir, "down", "--remove")
		down.Stderr = os.Stderr
		err = errors.Join(err, down.Run())
	}()
	up := lab("up", "--accel", "tcg", "--nodes", fmt.Sprint(nodes), fmt.Sprintf("--cluster=%t", cluster), "--wait")
	up.Stdout = os.Stdout
	if err := up.Run(); err != nil {
		return nil, fmt.Errorf("rack of %d nodes: %w", nodes, err)
	}
	text, err := lab("status", "-o", "json").Output()
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
