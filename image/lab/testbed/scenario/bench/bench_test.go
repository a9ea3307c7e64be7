// Package bench_test measures how many hosts the appliance provisions in which time: 10, 50 and 200 simulated ones
// (HOSTS=10,50,200), each time with an appliance from nothing; what it takes in memory and processor time; and how
// long the phases are. The peer of fifty is one and a half times ten. With them it measures how fast the ramdisk's
// agent writes the nodes' system to a disk, and what an appliance that waits takes. Its rows are
// build/bench/{metal,metal-registered,metal-disk,idle}.json.
//
// A simulated host is up 3 s after its power is on and takes half a second for what a real one takes minutes
// for, so these are measurements of Ironic, the operator and the daemon, not of servers.
package bench_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// goal is how far hosts are to come.
type goal struct {
	until  metal3api.ProvisioningState
	phases []metal3api.ProvisioningState // of which the time of the last host is a row
	rate   string                        // name of the row of hosts in a minute
	within time.Duration
}

// BenchmarkProvision provisions hosts.
func BenchmarkProvision(b *testing.B) {
	run(b, "metal", bench.Counts(b, "HOSTS", 10, 50, 200), goal{
		until:  metal3api.StateProvisioned,
		phases: []metal3api.ProvisioningState{metal3api.StateInspecting, metal3api.StateProvisioning, metal3api.StateProvisioned},
		rate:   "per-minute",
		within: time.Hour,
	})
}

// BenchmarkRegister registers and inspects hosts and no more: their disks hold data, so the appliance stops there.
func BenchmarkRegister(b *testing.B) {
	run(b, "metal-registered", bench.Counts(b, "HOSTS", 1000), goal{
		until:  metal3api.StateAvailable,
		phases: []metal3api.ProvisioningState{metal3api.StateRegistering, metal3api.StateInspecting, metal3api.StateAvailable},
		rate:   "registered-per-minute",
		within: 3 * time.Hour,
	})
}

// run measures one appliance for each number of hosts, as often as RUNS says. What was measured before a failure is
// reported as well.
func run(b *testing.B, name string, hosts []int, g goal) {
	runs, dir := bench.Runs(b, 1), b.TempDir()
	bench.Run(b, name, func(ctx context.Context) ([]bench.Row, error) {
		root, err := sandbox.RootTree()
		if err != nil {
			return nil, err
		}
		programs, err := sandbox.BuildPrograms(ctx, dir)
		if err != nil {
			return nil, err
		}

		a := appliance{root: root, programs: programs, dir: filepath.Join(dir, "appliance")}
		var s bench.Series
		for range runs {
			for _, n := range hosts {
				if err := a.measure(ctx, &s, n, g); err != nil {
					return rows(&s, runs), err
				}
			}
		}
		return rows(&s, runs), nil
	})
}

func rows(s *bench.Series, runs int) []bench.Row {
	note := fmt.Sprintf("median of %d; native, simulated hosts; the clock starts when the first may be registered; "+
		"load of the machine at the end %s", runs, bench.LoadAverage())
	var all []bench.Row
	for _, name := range s.Names() {
		r := bench.Row{Name: name, Unit: "s", Ours: s.Median(name), Note: note}
		ten := s.Median("metal/10-hosts-last-provisioned")
		switch {
		case name == "metal/50-hosts-last-provisioned" && ten > 0:
			r = r.Less("one-and-a-half-times-10-hosts", 1.5*ten, 1)
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
		all = append(all, r)
	}
	return all
}
