// Command bench measures uploads and downloads of artifacts beside the store alone and
// beside nginx, in one run on one machine, and the agent's memory while eight uploads run. It
// prints a row per figure and writes build/bench/artifact.json. It measures and does not judge:
// it exits 0 unless it could not measure.
//
// It runs in a network namespace of its own: no root, and TCP as it is on the appliance (enter).
//
//	go run ./daemon/uploads/bench [NAME...]    all figures, or those named
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"firstlight.dev/firstlight/assets/bench"
)

const (
	runs  = 7
	bytes = 1 << 30 // of one file
	many  = 8       // uploads at a time, for the memory
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if os.Getenv(within) == "" {
		return reexecInNamespace(ctx)
	}
	if err := setUpNetwork(ctx); err != nil {
		return err
	}
	return measure(ctx, os.Args[1:])
}

// measurements is all there is to measure, in the order of the rows.
func measurements() []measurement {
	return []measurement{{"upload", measureUpload}, {"download", measureDownload}, {"fetch", measureFetch}, {"memory", measureMemory}}
}

type measurement struct {
	name string
	run  func(context.Context, *fixture) ([]bench.Row, error)
}

func measure(ctx context.Context, names []string) (err error) {
	dir, err := os.MkdirTemp(".", ".bench-artifact-") // a disk, not a tmpfs
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b, err := newFixture(ctx, dir)
	if err != nil {
		return err
	}
	defer b.close()
	var rows []bench.Row
	for _, f := range measurements() {
		if len(names) > 0 && !slices.Contains(names, f.name) {
			continue
		}
		found, err := f.run(ctx, b)
		if err != nil {
			return fmt.Errorf("measure %s: %w", f.name, err)
		}
		rows = append(rows, found...)
	}
	return bench.Write(os.Stdout, bench.Dir, "artifact", rows)
}
