// Command bench measures the build of the stick: what a rebuild takes after a one-line change
// in the daemon and after none, step by step; how large each part of the image is; what a boot
// to the daemon costs in QEMU; and, when asked with -cold, a build from nothing beside mmdebstrap
// alone. It needs a built image and writes build/bench/image.json.
//
// Other load on the machine makes every wall time worse; processor seconds stand beside them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image"
)

const runs = 5

func main() {
	cold := flag.Bool("cold", false, "also build from nothing: half an hour and more")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *cold); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cold bool) error {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	top, err := image.FindTop(here)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "firstlight-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(top, "build", "firstlight.img")
	measures := []func() ([]bench.Row, error){
		func() ([]bench.Row, error) { return measureRebuilds(ctx, top, filepath.Join(dir, "rebuild")) },
		func() ([]bench.Row, error) { return measureSizes(ctx, path, filepath.Join(dir, "size")) },
		func() ([]bench.Row, error) { return measureBoots(ctx, path, filepath.Join(dir, "boot")) },
	}
	if cold {
		measures = append(measures, func() ([]bench.Row, error) { return fromNothing(ctx, top, filepath.Join(dir, "cold")) })
	}
	var rows []bench.Row
	for _, measure := range measures {
		more, err := measure()
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	return bench.Write(os.Stdout, filepath.Join(top, bench.Dir), "image", rows)
}

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
	said, err := cmd.CombinedOutput()
	if err != nil {
		return cost{}, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, said)
	}
	return cost{time.Since(began).Seconds(), (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), string(said)}, nil
}
