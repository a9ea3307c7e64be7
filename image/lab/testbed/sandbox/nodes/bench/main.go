// Command bench measures the installation of clusters natively: servers in namespaces with the system that the
// appliance installs, from the first SSH connection to a verified cluster, for one, two and three nodes, by
// stage. Beside it the same servers by hand: kubeadm with the same images, programs and configuration,
// commands without any question in between, all nodes at once where that is possible. It prints a row per
// figure and writes build/bench/clusters.json.
//
// What each guarantees: ours asks every node how it is before and after each step, flushes disks, and ends
// with questions from a pod on every node; by hand ends when nodes and system pods are Ready.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
)

func main() {
	runs := flag.Int("runs", 5, "how often each is run")
	sizes := flag.String("nodes", "1,2,3", "sizes of clusters, commas between")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *runs, strings.Split(*sizes, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, runs int, sizes []string) (err error) {
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
	rack, err := nodes.New(ctx, nodes.Config{Name: "bench", Root: root, Dir: dir, Programs: programs}, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rack.Close()) }()
	f := &measurements{seconds: map[string][]float64{}}
	for _, text := range sizes {
		size, err := strconv.Atoi(text)
		if err != nil || size < 1 {
			return fmt.Errorf("--nodes: %q is not a size", text)
		}
		for len(rack.Servers) < size {
			if _, err := rack.Add(ctx); err != nil {
				return err
			}
		}
		for range runs {
			if err := measureOnce(ctx, f, rack, rack.Servers[:size]); err != nil {
				return err
			}
		}
	}
	return f.report(runs)
}

// measureOnce installs a cluster on new machines, takes what that wrote, and makes another one of it by hand, on
// machines that are new again.
func measureOnce(ctx context.Context, f *measurements, rack *nodes.Rack, servers []*nodes.Server) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Minute)
	defer cancel()
	if err := measureInstaller(ctx, f, rack, servers); err != nil {
		return err
	}
	kept, err := prepareFiles(ctx, rack, servers)
	if err != nil {
		return err
	}
	if err := resetServers(ctx, rack, servers); err != nil {
		return err
	}
	began := time.Now()
	if err := kept.byHand(ctx, servers); err != nil {
		return fmt.Errorf("make cluster by hand: %w", err)
	}
	f.add(fmt.Sprintf("%d/by-hand", len(servers)), time.Since(began).Seconds())
	return resetServers(ctx, rack, servers)
}

// resetServers makes the servers new machines.
func resetServers(ctx context.Context, rack *nodes.Rack, servers []*nodes.Server) error {
	for _, s := range servers {
		if err := errors.Join(s.CutPower(), s.Wipe()); err != nil {
			return err
		}
		if err := s.PowerOn(ctx); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Dir(rack.Path(cluster, "hosts.ini")))
}

const cluster = "bench"

// stageLine is what the installer prints when a stage begins to hold.
var stageLine = regexp.MustCompile(`(?m)^ *([0-9.]+) s  (?:[a-z0-9-]+: )?([a-z-]+): ok$`)

func measureInstaller(ctx context.Context, f *measurements, rack *nodes.Rack, servers []*nodes.Server) error {
	if err := rack.Inventory(cluster, 1, servers...); err != nil {
		return err
	}
	began := time.Now()
	out, err := rack.Installer(ctx, cluster).CombinedOutput()
	if err != nil {
		return fmt.Errorf("install: %w: %s", err, out)
	}
	f.add(fmt.Sprintf("%d/verified", len(servers)), time.Since(began).Seconds())
	last := map[string]float64{} // of several nodes the slowest counts
	var order []string
	for _, m := range stageLine.FindAllStringSubmatch(string(out), -1) {
		at, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return err
		}
		if !slices.Contains(order, m[2]) {
			order = append(order, m[2])
		}
		last[m[2]] = max(last[m[2]], at)
	}
	for _, stage := range order {
		f.add(fmt.Sprintf("%d/%s", len(servers), stage), last[stage])
	}
	return nil
}

// measurements collects the measurements of all runs by name, in the order of their first.
type measurements struct {
	seconds map[string][]float64
	order   []string
}

func (f *measurements) add(name string, v float64) {
	if !slices.Contains(f.order, name) {
		f.order = append(f.order, name)
	}
	f.seconds[name] = append(f.seconds[name], v)
}

func (f *measurements) report(runs int) error {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	note := fmt.Sprintf("median of %d; seconds from the installer's start; native, in namespaces; load of the machine at the end %s", runs, strings.Fields(string(load))[0])
	var rows []bench.Row
	for _, name := range f.order {
		r := bench.Row{Name: "clusters/" + name, Unit: "s", Ours: bench.Median(f.seconds[name]), Note: note}
		if size, verified := strings.CutSuffix(name, "/verified"); verified {
			r = r.Less("kubeadm-by-hand", bench.Median(f.seconds[size+"/by-hand"]), 1/1.3)
			r.Note += "; ours ends with a verified cluster, by hand with nodes and system pods that are Ready"
		}
		rows = append(rows, r)
	}
	return bench.Write(os.Stdout, bench.Dir, "clusters", rows)
}
