// Package bench_test measures the operator of Components: how long it takes to install twenty of them on ten clusters, and
// what it takes of the machine while nothing happens. Its peer is helm: a loop of `helm install --wait` of the same
// objects, one chart on one cluster after the other, as a script does it. Its rows are build/bench/kpa.json.
//
// Clusters are real API servers, each with its etcd and with Kubernetes' controllers of Deployments and ReplicaSets, all
// of them processes of this machine. Nothing runs pods: Deployments have no replicas, so both sides wait for the same
// words of the same controllers. Each side begins with new clusters.
//
// What each guarantees: both return when every object is there and says that it is ready, by the same library (kstatus).
// Ours asks the API before each write whether it would take it, and keeps a list of objects on the cluster; helm keeps
// the release.
package bench_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// How long the operator is left alone, and then looked at: for as long as one interval of a Component, in which it applies
// everything once again.
const (
	idleBefore = time.Minute
	idleTime   = 10 * time.Minute
)

// Names of what is measured.
const (
	install    = "install"
	byLoop     = "helm-loop"
	sideBySide = "helm-loops-side-by-side"
	installCPU = "install-cpu"
	loopCPU    = "helm-loop-cpu"
	idleCPU    = "idle-cpu"
	idleMemory = "idle-memory"
	peakMemory = "memory-peak"
)

func BenchmarkComponents(b *testing.B) {
	m := measurement{
		dir:        bench.TempDir(b),
		clusters:   bench.Counts(b, "CLUSTERS", 10)[0],
		components: bench.Counts(b, "COMPONENTS", 20)[0],
		runs:       bench.Runs(b, 3),
	}
	bench.Run(b, "kpa", func(ctx context.Context) ([]bench.Row, error) {
		err := m.measure(ctx)
		return m.rows(), err
	})
}

// measurement is so many Components on so many clusters.
type measurement struct {
	dir        string
	clusters   int
	components int
	runs       int

	daemon string // the programs
	helm   string
	series bench.Series
}

func (m *measurement) measure(ctx context.Context) (err error) {
	if m.daemon, err = sandbox.Build(ctx, ".", "./cmd/firstlightd", m.dir); err != nil {
		return err
	}
	if m.helm, err = buildHelm(ctx, m.dir); err != nil {
		return err
	}
	charts := filepath.Join(m.dir, "charts")
	for i := range m.components {
		if err := newBundle(i).writeChart(charts); err != nil {
			return err
		}
	}

	for run := range m.runs {
		dir := filepath.Join(m.dir, strconv.Itoa(run))
		err := errors.Join(
			m.onNewClusters(ctx, dir+"-ours", func(f fleet) error {
				return m.measureOperator(ctx, f, filepath.Join(dir+"-ours", "appliance"), run == m.runs-1)
			}),
			m.onNewClusters(ctx, dir+"-loop", func(f fleet) error { return m.measureLoop(ctx, f, charts) }),
			m.onNewClusters(ctx, dir+"-loops", func(f fleet) error { return m.measureLoops(ctx, f, charts) }),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// onNewClusters has do work with clusters that have nothing, and sees that they have everything afterwards.
func (m *measurement) onNewClusters(ctx context.Context, dir string, do func(fleet) error) error {
	defer os.RemoveAll(dir) // what is left goes with the benchmark
	f, err := startFleet(ctx, dir, m.clusters)
	if err != nil {
		return err
	}
	defer f.close()

	if err := do(f); err != nil {
		return err
	}
	return f.check(ctx, m.components)
}

// rows are those of what was measured.
func (m *measurement) rows() []bench.Row {
	on := fmt.Sprintf(
		"%d Components on %d API servers on the same machine; median of %d; load of the machine at the end %s",
		m.components, m.clusters, m.runs, bench.LoadAverage(),
	)
	idle := fmt.Sprintf(
		"over %v, in which all is applied once again; %d Components on %d clusters; load of the machine at the end %s",
		idleTime, m.components, m.clusters, bench.LoadAverage(),
	)

	var all []bench.Row
	for _, name := range m.series.Names() {
		r := bench.Row{Name: "kpa/" + name, Unit: "s", Ours: m.series.Median(name), Note: on}
		switch name {
		case byLoop, sideBySide, loopCPU:
			continue // they are peers
		case install:
			r.Note = "from the first Component to the last that is Ready; " + on
			if loop := m.series.Median(byLoop); loop > 0 {
				all = append(all, r.Less("helm-install-in-a-loop", loop, 2))
			}
			if loops := m.series.Median(sideBySide); loops > 0 {
				r = r.Less("one-such-loop-for-each-cluster-at-once", loops, 0)
			}
		case installCPU:
			r.Note = "processor time of the operator until then; " + on
			if cpu := m.series.Median(loopCPU); cpu > 0 {
				r = r.Less("helm-install-in-a-loop", cpu, 0)
			}
		case idleCPU:
			r.Unit, r.Note = "%", "of one processor, "+idle
			r = r.Less("limit", 1, 1)
		case idleMemory:
			r.Unit, r.Note = "MiB", "resident at the end (VmRSS), "+idle
			r = r.Less("limit", 100, 1)
		case peakMemory:
			r.Unit, r.Note = "MiB", "most that was resident at once (VmHWM), "+idle
		}
		all = append(all, r)
	}
	return all
}
