// Command bench measures the bring-up natively: a bed from nothing to a node that is Ready and to system
// pods that run, five times, each with a second run of the plan; the memory of every process of
// Kubernetes; and one first boot of the stick in QEMU. It prints a row per figure and writes
// build/bench/kube.json and build/bench/kube-boot.json.
//
//	go run ./image/lab/testbed/sandbox/bench [native] [boot]    both, or those named
//
// The peer of the bring-up is the bar itself: no other way to a Kubernetes from this image exists on
// this machine. Other load on the machine makes every figure worse; the load is in the note.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

const runs = 5

// last is the stage after which Kubernetes can be used.
const last = "system-pods"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measurements collects the measurements of all runs by name.
type measurements struct {
	seconds map[string][]float64
	memory  map[string][]float64
	order   []string
}

func (f *measurements) add(to map[string][]float64, name string, v float64) {
	if !slices.Contains(f.order, name) {
		f.order = append(f.order, name)
	}
	to[name] = append(to[name], v)
}

// run measures what is named, or all there is.
func run(ctx context.Context, names []string) error {
	for _, name := range names {
		if name != "native" && name != "boot" {
			return fmt.Errorf("nothing is called %q; there is native and boot", name)
		}
	}
	if len(names) == 0 || slices.Contains(names, "native") {
		if err := benchNative(ctx); err != nil {
			return err
		}
	}
	if len(names) == 0 || slices.Contains(names, "boot") {
		rows, err := benchBoot(ctx)
		if err != nil {
			return fmt.Errorf("measure a boot: %w", err)
		}
		return bench.Write(os.Stdout, bench.Dir, "kube-boot", rows)
	}
	return nil
}

func benchNative(ctx context.Context) error {
	root, err := sandbox.RootTree()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "firstlight-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	programs, err := sandbox.BuildPrograms(ctx, dir)
	if err != nil {
		return err
	}
	f := &measurements{seconds: map[string][]float64{}, memory: map[string][]float64{}}
	for i := range runs {
		if err := measureOnce(ctx, f, root, programs, filepath.Join(dir, strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return writeReport(f)
}

// measureOnce brings up a bed from nothing, runs the plan again, and measures memory.
func measureOnce(ctx context.Context, f *measurements, root string, p sandbox.Programs, dir string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	bed, err := sandbox.Start(ctx, sandbox.Config{Name: "bench", Root: root, Dir: dir, Manager: p.Manager, Log: os.Stderr,
		Add: map[string]string{"/usr/bin/firstlightd": p.Daemon}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	for _, again := range []string{"", "again-"} {
		verb := "start"
		if again != "" {
			verb = "restart"
		}
		if _, err := bed.Run(ctx, "systemctl", verb, "firstlightd"); err != nil {
			return err
		}
		if _, err := bed.AwaitStage(ctx, last, nil); err != nil {
			return err
		}
		d, err := bed.Status(ctx)
		if err != nil {
			return err
		}
		sum := 0.0
		for _, s := range d.Stages {
			sum += s.Seconds
			f.add(f.seconds, again+s.Name, s.Seconds)
			if s.Name == "node-ready" || s.Name == last {
				f.add(f.seconds, again+"plan-to-"+s.Name, sum)
			}
			if s.Name == last { // what follows is not measured here
				break
			}
		}
	}
	return measureMemory(ctx, f, bed)
}

// measureMemory reads the resident memory of the processes of Kubernetes and of the daemon, summed by name.
func measureMemory(ctx context.Context, f *measurements, bed *sandbox.Sandbox) error {
	out, err := bed.Run(ctx, "ps", "-eo", "rss=,comm=")
	if err != nil {
		return err
	}
	sums := map[string]float64{}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		if kib, err := strconv.ParseFloat(words[0], 64); err == nil {
			sums[words[1]] += kib / 1024
		}
	}
	for _, name := range []string{"firstlightd", "containerd", "containerd-shim", "kubelet", "etcd", "kube-apiserver", "kube-controller", "kube-scheduler", "kube-proxy", "coredns", "pause"} {
		if v, there := sums[name]; there {
			f.add(f.memory, "memory-"+name, v)
		}
	}
	return nil
}

func writeReport(f *measurements) error {
	note := fmt.Sprintf("median of %d; native, in namespaces; etcd syncs; load of the machine at the end %s", runs, bench.LoadAverage())
	bars := map[string]float64{"plan-to-node-ready": 15, "again-plan-to-" + last: 1}
	var rows []bench.Row
	for _, name := range f.order {
		if v := f.seconds[name]; v != nil {
			r := bench.Row{Name: "kube/" + name, Unit: "s", Ours: bench.Median(v), Note: note}
			if bar := bars[name]; bar > 0 {
				r = r.Less("bar", bar, 1)
			}
			rows = append(rows, r)
			continue
		}
		rows = append(rows, bench.Row{Name: "kube/" + name, Unit: "MiB", Ours: bench.Median(f.memory[name]), Note: "resident right after the second run; pages of the shared program count in each"})
	}
	return bench.Write(os.Stdout, bench.Dir, "kube", rows)
}
