// Command bench measures how fast the ramdisk's agent writes the nodes' system to a disk, beside dd; and
// how many hosts the appliance provisions in which time: 10, 50 and 200 fake ones, each time with an
// appliance from nothing; what it takes in memory and processor time; and how long the phases are. The
// peer of fifty is one and a half times ten. It prints a row per figure and writes build/bench/metal.json.
// With -registered 1000, hosts are registered and inspected only: their disks hold data, so the appliance
// holds them there.
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

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var p plan
	flag.IntVar(&p.runs, "runs", 1, "runs of each; figures are medians")
	flag.BoolVar(&p.disk, "disk", true, "measure the writing of disks as well")
	flag.Func("hosts", "how many to provision, may be repeated (default 10, 50 and 200, none with -registered)", counts(&p.provisioned))
	flag.Func("registered", "how many to register and inspect only, may be repeated (default none)", counts(&p.registered))
	flag.Parse()
	if p.provisioned == nil && p.registered == nil {
		p.provisioned = []int{10, 50, 200}
	}
	if err := run(ctx, p); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// counts is a flag's function that adds a number to a list.
func counts(list *[]int) func(string) error {
	return func(s string) error {
		n, err := strconv.Atoi(s)
		*list = append(*list, n)
		return err
	}
}

// plan is what is measured.
type plan struct {
	runs        int
	disk        bool
	provisioned []int // hosts
	registered  []int // hosts
}

// measurements are all measurements of one name.
type measurements struct {
	values map[string][]float64
	order  []string
}

func (f *measurements) add(name string, v float64) {
	if _, there := f.values[name]; !there {
		f.order = append(f.order, name)
	}
	f.values[name] = append(f.values[name], v)
}

func run(ctx context.Context, p plan) error {
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

	f := &measurements{values: map[string][]float64{}}
	if p.disk {
		if err := measureDisk(ctx, f, root, programs, dir); err != nil {
			return fmt.Errorf("measure the writing of disks: %w", err)
		}
	}
	var failed error
	for range p.runs {
		for _, work := range p.work() {
			a := appliance{root: root, programs: programs, dir: filepath.Join(dir, "appliance")}
			if failed = a.measure(ctx, f, work); failed != nil {
				return errors.Join(failed, writeReport(f, p.runs))
			}
		}
	}
	return writeReport(f, p.runs)
}

func writeReport(f *measurements, runs int) error {
	note := fmt.Sprintf("median of %d; native, fake hosts; the clock starts when the first may be handed over; "+
		"load of the machine at the end %s", runs, bench.LoadAverage())
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
			r = r.Less("one-and-a-half-times-10-hosts", 1.5*bench.Median(ten), 1)
		case strings.HasSuffix(name, "per-minute"):
			r.Unit = "hosts/min"
		case strings.Contains(name, "-memory-"):
			r.Unit = "MiB"
			r.Note = "resident at the end"
		case strings.Contains(name, "-objects-"):
			r.Unit = "objects"
			r.Note = "in the API at the end"
		case strings.HasSuffix(name, "-lost"):
			r.Unit = "hosts"
			r.Note = "not in the API or not in Ironic, in another state, or with an error"
		case strings.Contains(name, "-cpu-"):
			r.Note = "processor time of the part meanwhile; " + strconv.Itoa(runs) + " runs"
		}
		rows = append(rows, r)
	}
	top, err := sandbox.RepositoryRoot()
	if err != nil {
		return err
	}
	return bench.Write(os.Stdout, filepath.Join(top, bench.Dir), "metal", rows)
}
