// Package bench_test measures uploads and downloads of artifacts, and in the same run those of the store alone and of
// nginx, and the agent's memory while eight uploads run. Its rows are build/bench/artifact-*.json.
//
// It runs in a network namespace of its own: no root, and TCP as it is on the appliance (reexecInNamespace).
package bench_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"firstlight.dev/firstlight/assets/bench"
)

const (
	runs  = 7
	bytes = 1 << 30 // of one file
	many  = 8       // uploads at a time, for the memory
)

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(within) != "" || flag.Lookup("test.bench").Value.String() == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := reexecInNamespace(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func BenchmarkUpload(b *testing.B)   { run(b, "artifact-upload", measureUpload) }
func BenchmarkDownload(b *testing.B) { run(b, "artifact-download", measureDownload) }
func BenchmarkFetch(b *testing.B)    { run(b, "artifact-fetch", measureFetch) }
func BenchmarkMemory(b *testing.B)   { run(b, "artifact-memory", measureMemory) }

// run measures with a fixture of its own.
func run(b *testing.B, name string, measure func(context.Context, *fixture) ([]bench.Row, error)) {
	dir := bench.TempDir(b)
	bench.Run(b, name, func(ctx context.Context) ([]bench.Row, error) {
		f, err := newFixture(ctx, dir)
		if err != nil {
			return nil, err
		}
		defer f.close()
		return measure(ctx, f)
	})
}
