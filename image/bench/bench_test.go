// Package bench_test measures the build of the stick: what a rebuild takes after a one-line change in the daemon and
// after none, step by step; how large each part of the image is; what a boot to the daemon costs in QEMU; and a build
// from nothing, with mmdebstrap alone as its peer. It needs a built image. Its rows are build/bench/image-*.json.
//
// Other load on the machine makes every wall time worse; processor seconds are given with them.
package bench_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"firstlight.dev/firstlight/assets/bench"
)

const runs = 5

func BenchmarkRebuild(b *testing.B) { run(b, "image-rebuild", measureRebuilds) }
func BenchmarkSize(b *testing.B)    { run(b, "image-size", measureSizes) }
func BenchmarkBoot(b *testing.B)    { run(b, "image-boot", measureBoots) }

// BenchmarkCold takes half an hour and more.
func BenchmarkCold(b *testing.B) { run(b, "image-cold", measureCold) }

// run measures the repository at top, or the image built in it, with a directory to work in that is not there yet.
func run(b *testing.B, name string, measure func(ctx context.Context, top, dir string) ([]bench.Row, error)) {
	dir := filepath.Join(b.TempDir(), "work")
	bench.Run(b, name, func(ctx context.Context) ([]bench.Row, error) {
		top, err := bench.FindTop()
		if err != nil {
			return nil, err
		}
		return measure(ctx, top, dir)
	})
}

// imageOf is the image that was built in the repository at top.
func imageOf(top string) string { return filepath.Join(top, "build", "firstlight.img") }

// cost is what one command cost.
type cost struct {
	wall, cpu float64 // seconds; cpu with all that it started and waited for
	output    string
}

// runTimed runs a command in dir and measures it.
func runTimed(ctx context.Context, dir string, env []string, name string, args ...string) (cost, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	began := time.Now()
	output, err := cmd.CombinedOutput()
	if err != nil {
		return cost{}, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, output)
	}
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return cost{time.Since(began).Seconds(), cpu.Seconds(), string(output)}, nil
}
