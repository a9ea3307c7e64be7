package bench_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// appliance is what hosts are brought to.
type appliance struct {
	root     string
	programs sandbox.Programs
	dir      string // made and removed
}

// parts of the appliance of which processor time and memory are measured; "all" is every process of it.
var parts = []string{"ironic", "operator", "apiserver", "etcd", "firstlightd", "all"}

// measure brings hosts to a new appliance once.
func (a appliance) measure(ctx context.Context, s *bench.Series, hosts int, g goal) (err error) {
	ctx, cancel := context.WithTimeout(ctx, g.within)
	defer cancel()

	d, err := scenario.Start(ctx, scenario.Config{
		Name:     "bench-metal",
		Dir:      a.dir,
		Root:     a.root,
		Programs: a.programs,
		Log:      os.Stderr,
		Servers:  simulator.Config{Hosts: hosts},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close(), os.RemoveAll(a.dir)) }()

	if g.until == metal3api.StateAvailable {
		holdData(d.Servers)
	}
	if err := d.Begin(ctx, d.Servers.SiteDocument("eth0", scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))); err != nil {
		return err
	}
	if _, err := d.Sandbox.AwaitStage(ctx, "hosts-guarded", nil); err != nil {
		return err
	}

	before, err := d.Usage(ctx)
	if err != nil {
		return err
	}
	simulator := ownTime()
	phases, failed := d.WaitForHosts(ctx, time.Now(), scenario.AllInState(hosts, g.until))
	simulator = ownTime() - simulator
	if errors.Is(failed, context.Canceled) {
		return failed // somebody interrupted it; when the time is over, what was reached is told
	}

	name := func(what string) string { return fmt.Sprintf("metal/%d-hosts-%s", hosts, what) }
	for _, state := range g.phases {
		if took, reached := phases[string(state)]; reached {
			s.Add(name("last-"+string(state)), took.Seconds())
		}
	}
	if failed == nil {
		s.Add(name(g.rate), float64(hosts)/phases[string(g.until)].Minutes())
	}

	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute) // also after the time is over
	defer done()
	after, err := d.Usage(ctx)
	if err != nil {
		return errors.Join(failed, err)
	}
	for _, part := range parts {
		s.Add(name("cpu-"+part), after[part].CPU-before[part].CPU)
		s.Add(name("memory-"+part), after[part].MiB)
	}
	s.Add(name("cpu-simulator"), simulator.Seconds())
	return errors.Join(failed, count(ctx, d, s, g, name))
}

// holdData puts a partition table on every disk: without consent the appliance inspects such hosts and no more.
func holdData(servers *simulator.Simulator) {
	for _, h := range servers.Hosts() {
		disks := h.Disks()
		for i := range disks {
			disks[i].Holds = []string{"gpt"}
		}
		h.SetDisks(disks...)
	}
}

// settle is longer than the API server takes to count its objects anew.
const settle = 65 * time.Second

// count tells, after a while, how many hosts are not where they belong, and how many objects the API has.
func count(ctx context.Context, d *scenario.Scenario, s *bench.Series, g goal, name func(string) string) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settle):
	}
	hosts, err := d.Hosts(ctx)
	if err != nil {
		return err
	}
	nodes, err := d.Nodes(ctx)
	if err != nil {
		return err
	}
	lost := 0
	for _, h := range d.Servers.Hosts() {
		status := hosts[h.Name].Status
		if _, known := nodes[h.Name]; !known || status.Provisioning.State != g.until || status.ErrorMessage != "" {
			lost++
		}
	}
	s.Add(name("lost"), float64(lost))

	objects, err := d.Objects(ctx)
	if err != nil {
		return err
	}
	all := 0
	for kind, n := range objects {
		all += n
		if strings.HasSuffix(kind, ".metal3.io") || kind == "secrets" || kind == "events" {
			s.Add(name("objects-"+kind), float64(n))
		}
	}
	s.Add(name("objects-all"), float64(all))
	return nil
}

// ownTime is the processor time of this process so far: the simulated hosts', and that of looking on.
func ownTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
