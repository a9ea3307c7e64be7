// Package bench_test measures the installation of clusters natively: servers in namespaces with the system that the
// appliance installs, from the first SSH connection to a verified cluster, for one, two and three nodes (NODES=1,2,3),
// five times each (RUNS=5), by stage. Its peer is the same by hand: kubeadm with the same images, programs and
// configuration, commands without any question in between, all nodes at once where that is possible. Its rows are
// build/bench/clusters.json.
//
// The same nodes are made by Cluster API, too: from the objects that are applied to a cluster whose nodes and system pods
// are Ready, but for the time in which Ironic installs a server, which by hand has been installed before. There all of the
// appliance runs, and it idles while the others are measured.
//
// What each guarantees: ours asks every node how it is before and after each step, flushes disks, and ends
// with questions from a pod on every node; by hand ends when nodes and system pods are Ready.
package bench_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
)

// cluster is the name of all that are made.
const cluster = "bench"

func BenchmarkClusters(b *testing.B) {
	runs, sizes, dir := bench.Runs(b, 5), bench.Counts(b, "NODES", 1, 2, 3), b.TempDir()
	bench.Run(b, "clusters", func(ctx context.Context) ([]bench.Row, error) {
		var s bench.Series
		err := measureClusters(ctx, &s, dir, runs, sizes)
		return rows(&s, runs), err
	})
}

func measureClusters(ctx context.Context, s *bench.Series, dir string, runs int, sizes []int) (err error) {
	root, err := sandbox.RootTree()
	if err != nil {
		return err
	}
	programs, err := sandbox.BuildPrograms(ctx, dir)
	if err != nil {
		return err
	}
	rack, err := nodes.New(ctx, nodes.Config{Name: "bench", Root: root, Dir: dir, Programs: programs}, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rack.Close()) }()
	objects, err := newMachines(ctx, root, dir, programs, slices.Max(sizes))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, objects.Close()) }()
	for _, size := range sizes {
		for len(rack.Servers) < size {
			if _, err := rack.Add(ctx); err != nil {
				return err
			}
		}
		for range runs {
			if err := measureOnce(ctx, s, rack, rack.Servers[:size]); err != nil {
				return err
			}
			if err := objects.measure(ctx, s, size); err != nil {
				return fmt.Errorf("make cluster by Cluster API: %w", err)
			}
		}
	}
	return nil
}

func rows(s *bench.Series, runs int) []bench.Row {
	note := fmt.Sprintf("median of %d; seconds from the installer's start; native, in namespaces; load of the machine at the end %s",
		runs, bench.LoadAverage())
	var all []bench.Row
	for _, name := range s.Names() {
		r := bench.Row{Name: "clusters/" + name, Unit: "s", Ours: s.Median(name), Note: note}
		size, step, _ := strings.Cut(name, "/")
		switch step {
		case "verified":
			r = r.Less("kubeadm-by-hand", s.Median(size+"/by-hand"), 1/1.3)
			r.Note += "; ours ends with a verified cluster, by hand with nodes and system pods that are Ready"
		case "cluster-api":
			r = r.Less("kubeadm-by-hand", s.Median(size+"/by-hand"), 1/1.3)
			r.Note += "; from the objects, without Ironic's time, to nodes and system pods that are Ready"
		case "memory":
			r = bench.Row{Name: "clusters/cluster-api-memory", Unit: "MiB", Ours: s.Median(name), Note: "the managers together, idle (Pss)"}
			r = r.Less("limit", 250, 1)
		}
		all = append(all, r)
	}
	return all
}

// measureOnce installs a cluster on new machines, takes what that wrote, and makes another one of it by hand, on
// machines that are new again.
func measureOnce(ctx context.Context, s *bench.Series, rack *nodes.Rack, servers []*nodes.Server) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Minute)
	defer cancel()
	if err := measureInstaller(ctx, s, rack, servers); err != nil {
		return err
	}
	prepared, err := prepareFiles(ctx, rack, servers)
	if err != nil {
		return err
	}
	if err := resetServers(ctx, rack, servers); err != nil {
		return err
	}
	began := time.Now()
	if err := prepared.byHand(ctx, servers); err != nil {
		return fmt.Errorf("make cluster by hand: %w", err)
	}
	s.Add(fmt.Sprintf("%d/by-hand", len(servers)), time.Since(began).Seconds())
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

// stageLine is what the installer prints when a stage begins to hold.
var stageLine = regexp.MustCompile(`(?m)^ *([0-9.]+) s  (?:[a-z0-9-]+: )?([a-z-]+): ok$`)

func measureInstaller(ctx context.Context, s *bench.Series, rack *nodes.Rack, servers []*nodes.Server) error {
	if err := rack.Inventory(cluster, 1, servers...); err != nil {
		return err
	}
	began := time.Now()
	out, err := rack.Installer(ctx, cluster).CombinedOutput()
	if err != nil {
		return fmt.Errorf("install: %w: %s", err, out)
	}
	s.Add(fmt.Sprintf("%d/verified", len(servers)), time.Since(began).Seconds())
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
		s.Add(fmt.Sprintf("%d/%s", len(servers), stage), last[stage])
	}
	return nil
}
