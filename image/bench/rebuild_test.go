package bench_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"firstlight.dev/firstlight/assets/bench"
)

// built is a line of a build that says how long a step took.
var built = regexp.MustCompile(`(?m)^built (.+) in ([0-9.]+) s$`)

// measureRebuilds measures `make usb-image` in a clone, with the cache of this machine: after one
// line of cmd/firstlightd changed, and after nothing did.
func measureRebuilds(ctx context.Context, top, dir string) ([]bench.Row, error) {
	if _, err := runTimed(ctx, top, nil, "git", "clone", "--quiet", ".", dir); err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if _, err := runTimed(ctx, dir, nil, "make", "usb-image"); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "cmd", "firstlightd", "main.go")
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var changed, same []cost
	var steps bench.Series
	for i := range runs {
		// A line that the compiler cannot leave out, and that no build before had.
		line := fmt.Sprintf("\nvar _ = os.Getenv(\"BENCH_%d_%d\")\n", os.Getpid(), i)
		if err := os.WriteFile(file, append(slices.Clone(source), line...), 0o644); err != nil {
			return nil, err
		}
		t, err := runTimed(ctx, dir, nil, "make", "usb-image")
		if err != nil {
			return nil, err
		}
		changed = append(changed, t)
		for _, m := range built.FindAllStringSubmatch(t.output, -1) {
			seconds, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				return nil, err
			}
			steps.Add(m[1], seconds)
		}
		if t, err = runTimed(ctx, dir, nil, "make", "usb-image"); err != nil {
			return nil, err
		}
		same = append(same, t)
	}
	note := fmt.Sprintf("median of %d; make usb-image, whole; load of the machine at the end %s", runs, bench.LoadAverage())
	rows := []bench.Row{
		bench.Row{Name: "image/rebuild-daemon", Unit: "s", Ours: median(changed, wallTime), Note: "one line of cmd/firstlightd changed; " + note}.Less("bar", 10, 1),
		{Name: "image/rebuild-daemon-cpu", Unit: "s", Ours: median(changed, cpuTime), Note: "the same in processor seconds; two processors share them"},
		bench.Row{Name: "image/rebuild-nothing", Unit: "s", Ours: median(same, wallTime), Note: "nothing changed; " + note}.Less("bar", 2, 1),
		{Name: "image/rebuild-nothing-cpu", Unit: "s", Ours: median(same, cpuTime), Note: "the same in processor seconds"},
	}
	for _, step := range steps.Names() {
		rows = append(rows, bench.Row{
			Name: "image/rebuild-step: " + step,
			Unit: "s",
			Ours: steps.Median(step),
			Note: "of image/rebuild-daemon, as the build prints it",
		})
	}
	return rows, nil
}

func wallTime(t cost) float64 { return t.wall }
func cpuTime(t cost) float64  { return t.cpu }

func median(all []cost, of func(cost) float64) float64 {
	var v []float64
	for _, t := range all {
		v = append(v, of(t))
	}
	return bench.Median(v)
}
