// Package bench_test measures the bring-up natively: a sandbox from nothing to a node that is Ready and to system
// pods that run, five times (RUNS=5), each with a second run of the plan; the memory of every process of
// Kubernetes; one first boot of the stick in QEMU; and the operator of clusters at size.
//
// The peer of the bring-up is the bar itself: no other way to a Kubernetes from this image exists on
// this machine. Other load on the machine makes every measurement worse; the load is in the note.
package bench_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// last is the stage after which Kubernetes can be used.
const last = "system-pods"

// measurements are those of all runs: of stages in seconds, of processes in MiB.
type measurements struct{ seconds, memory bench.Series }

func BenchmarkBringUp(b *testing.B) {
	runs, dir := bench.Runs(b, 5), b.TempDir()
	bench.Run(b, "kube", func(ctx context.Context) ([]bench.Row, error) {
		root, err := sandbox.RootTree()
		if err != nil {
			return nil, err
		}
		programs, err := sandbox.BuildPrograms(ctx, dir)
		if err != nil {
			return nil, err
		}
		var m measurements
		for i := range runs {
			if err := m.measureOnce(ctx, root, programs, filepath.Join(dir, strconv.Itoa(i))); err != nil {
				return nil, err
			}
		}
		return m.rows(runs), nil
	})
}

// measureOnce brings up a sandbox from nothing, runs the plan again, and measures memory.
func (m *measurements) measureOnce(ctx context.Context, root string, p sandbox.Programs, dir string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	appliance, err := p.StartAppliance(ctx, sandbox.Config{Name: "bench", Root: root, Dir: dir, Log: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, appliance.Close()) }()
	for _, again := range []string{"", "again-"} {
		verb := "start"
		if again != "" {
			verb = "restart"
		}
		if _, err := appliance.Run(ctx, "systemctl", verb, "firstlightd"); err != nil {
			return err
		}
		if _, err := appliance.AwaitStage(ctx, last, nil); err != nil {
			return err
		}
		d, err := appliance.Status(ctx)
		if err != nil {
			return err
		}
		sum := 0.0
		for _, s := range d.Stages {
			sum += s.Seconds
			m.seconds.Add(again+s.Name, s.Seconds)
			if s.Name == "node-ready" || s.Name == last {
				m.seconds.Add(again+"plan-to-"+s.Name, sum)
			}
			if s.Name == last { // what follows is not measured here
				break
			}
		}
	}
	return m.measureMemory(ctx, appliance)
}

// measureMemory reads the resident memory of the processes of Kubernetes and of the daemon, summed by name.
func (m *measurements) measureMemory(ctx context.Context, appliance *sandbox.Sandbox) error {
	out, err := appliance.Run(ctx, "ps", "-eo", "rss=,comm=")
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
	for _, name := range []string{
		"firstlightd", "containerd", "containerd-shim", "kubelet", "etcd", "kube-apiserver", "kube-controller", "kube-scheduler",
		"kube-proxy", "coredns", "pause",
	} {
		if v, there := sums[name]; there {
			m.memory.Add("memory-"+name, v)
		}
	}
	return nil
}

func (m *measurements) rows(runs int) []bench.Row {
	note := fmt.Sprintf("median of %d; native, in namespaces; etcd syncs; load of the machine at the end %s", runs, bench.LoadAverage())
	bars := map[string]float64{"plan-to-node-ready": 15, "again-plan-to-" + last: 1}
	var rows []bench.Row
	for _, name := range m.seconds.Names() {
		r := bench.Row{Name: "kube/" + name, Unit: "s", Ours: m.seconds.Median(name), Note: note}
		if bar := bars[name]; bar > 0 {
			r = r.Less("bar", bar, 1)
		}
		rows = append(rows, r)
	}
	for _, name := range m.memory.Names() {
		rows = append(rows, bench.Row{
			Name: "kube/" + name,
			Unit: "MiB",
			Ours: m.memory.Median(name),
			Note: "resident right after the second run; pages of the shared program count in each",
		})
	}
	return rows
}
