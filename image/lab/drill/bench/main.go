// Command bench measures how fast the ramdisk's agent writes the nodes' system to a disk, beside dd; and
// how many hosts the appliance provisions in which time: 1, 10 and 50 fake ones, each time with an
// appliance from nothing; what it takes in memory and processor time; and how long the phases are. The
// peer of fifty is three times ten. It prints a row per figure and writes build/bench/metal.json.
//
// A fake host is up 3 s after its power is on and takes half a second for what a real one takes minutes
// for, so the figures are those of Ironic, the operator and the daemon, not of servers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab/drill"
	"firstlight.dev/firstlight/image/lab/fleet"
	"firstlight.dev/firstlight/image/lab/native"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	runs := flag.Int("runs", 1, "runs of each; figures are medians")
	var hosts []int
	flag.Func("hosts", "how many, may be repeated (default 1, 10 and 50)", func(s string) error {
		n, err := strconv.Atoi(s)
		hosts = append(hosts, n)
		return err
	})
	flag.Parse()
	if hosts == nil {
		hosts = []int{1, 10, 50}
	}
	if err := run(ctx, *runs, hosts); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// figures are all measurements of one name.
type figures struct {
	values map[string][]float64
	order  []string
}

func (f *figures) add(name string, v float64) {
	if _, there := f.values[name]; !there {
		f.order = append(f.order, name)
	}
	f.values[name] = append(f.values[name], v)
}

func run(ctx context.Context, runs int, counts []int) error {
	root, err := native.Root()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "firstlight-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	programs, err := native.BuildPrograms(ctx, dir)
	if err != nil {
		return err
	}
	f := &figures{values: map[string][]float64{}}
	if err := disk(ctx, f, root, programs, dir); err != nil {
		return fmt.Errorf("measure the writing of disks: %w", err)
	}
	for i := range runs {
		for _, hosts := range counts {
			c := drill.Config{Name: "bench-metal", Dir: filepath.Join(dir, fmt.Sprint(hosts, "-", i)), Root: root, Programs: programs, Log: os.Stderr, Fleet: fleet.Config{Hosts: hosts}}
			if err := one(ctx, f, c); err != nil {
				return err
			}
		}
	}
	return report(f, runs)
}

// one provisions hosts once and measures it.
func one(ctx context.Context, f *figures, c drill.Config) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Minute)
	defer cancel()
	d, err := drill.Start(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close(), os.RemoveAll(c.Dir)) }()
	if err := d.Begin(ctx, d.Fleet.Site("eth0", drill.OS(drill.ImageA, drill.Sum(drill.ImageA)))); err != nil {
		return err
	}
	if _, err := d.Bed.Await(ctx, "hosts-guarded", nil); err != nil {
		return err
	}
	before, err := d.Usage(ctx)
	if err != nil {
		return err
	}
	n := c.Fleet.Hosts
	began := time.Now()
	phases, err := d.Follow(ctx, began, drill.All(n, metal3api.StateProvisioned))
	if err != nil {
		return err
	}
	name := func(figure string) string { return fmt.Sprintf("metal/%d-hosts-%s", n, figure) }
	for _, state := range []metal3api.ProvisioningState{metal3api.StateInspecting, metal3api.StateProvisioning, metal3api.StateProvisioned} {
		f.add(name("last-"+string(state)), phases[string(state)].Seconds())
	}
	f.add(name("per-minute"), float64(n)/phases[string(metal3api.StateProvisioned)].Minutes())
	after, err := d.Usage(ctx)
	if err != nil {
		return err
	}
	for _, part := range []string{"ironic", "operator", "apiserver", "etcd", "firstlightd"} {
		f.add(name("cpu-"+part), after[part].CPU-before[part].CPU)
		f.add(name("memory-"+part), after[part].MiB)
	}
	return nil
}

func report(f *figures, runs int) error {
	note := fmt.Sprintf("median of %d; native, fake hosts; the clock starts when the first may be handed over; load of the machine at the end %s", runs, bench.Load())
	ten := f.values["metal/10-hosts-last-provisioned"]
	var rows []bench.Row
	for _, name := range f.order {
		r := bench.Row{Name: name, Unit: "s", Ours: bench.Median(f.values[name]), Note: note}
		switch {
		case name == "metal/ramdisk-size":
			r.Unit, r.Note = "MiB", "kernel's modules, firmware and agent, packed"
		case name == "metal/disk-write-dd":
			continue
		case name == "metal/disk-write-agent":
			r.Note = fmt.Sprintf("the nodes' system from HTTP to a file, its sha256 taken; natively, median of %d; the peer is curl, sha256sum and sparse dd", writes)
			r = r.Less("dd", bench.Median(f.values["metal/disk-write-dd"]), 0)
		case name == "metal/50-hosts-last-provisioned" && ten != nil:
			r = r.Less("three-times-10-hosts", 3*bench.Median(ten), 1)
		case strings.HasSuffix(name, "per-minute"):
			r.Unit = "hosts/min"
		case strings.Contains(name, "-memory-"):
			r.Unit = "MiB"
			r.Note = "resident when all are provisioned"
		case strings.Contains(name, "-cpu-"):
			r.Note = "processor time of the part while the hosts were provisioned; " + strconv.Itoa(runs) + " runs"
		}
		rows = append(rows, r)
	}
	top, err := native.Top()
	if err != nil {
		return err
	}
	return bench.Write(os.Stdout, filepath.Join(top, bench.Dir), "metal", rows)
}
