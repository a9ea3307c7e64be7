package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
	"firstlight.dev/firstlight/image/lab/testbed/simulator"
)

// appliance is what hosts are brought to.
type appliance struct {
	root     string
	programs sandbox.Programs
	dir      string // made and removed
}

// work is a number of hosts and how far they are to come.
type work struct {
	hosts  int
	until  metal3api.ProvisioningState
	phases []metal3api.ProvisioningState // of which the time of the last host is a figure
	rate   string                        // name of the figure: hosts in a minute
	within time.Duration
}

func (p plan) work() []work {
	var all []work
	for _, n := range p.provisioned {
		all = append(all, work{
			hosts:  n,
			until:  metal3api.StateProvisioned,
			phases: []metal3api.ProvisioningState{metal3api.StateInspecting, metal3api.StateProvisioning, metal3api.StateProvisioned},
			rate:   "per-minute",
			within: time.Hour,
		})
	}
	for _, n := range p.registered {
		all = append(all, work{
			hosts:  n,
			until:  metal3api.StateAvailable,
			phases: []metal3api.ProvisioningState{metal3api.StateRegistering, metal3api.StateInspecting, metal3api.StateAvailable},
			rate:   "registered-per-minute",
			within: 3 * time.Hour,
		})
	}
	return all
}

// parts of the appliance of which processor time and memory are told; "all" is every process of it.
var parts = []string{"ironic", "operator", "apiserver", "etcd", "firstlightd", "all"}

// measure brings hosts to a new appliance once.
func (a appliance) measure(ctx context.Context, f *measurements, w work) (err error) {
	ctx, cancel := context.WithTimeout(ctx, w.within)
	defer cancel()

	d, err := scenario.Start(ctx, scenario.Config{
		Name:     "bench-metal",
		Dir:      a.dir,
		Root:     a.root,
		Programs: a.programs,
		Log:      os.Stderr,
		Servers:  simulator.Config{Hosts: w.hosts},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close(), os.RemoveAll(a.dir)) }()

	if w.until == metal3api.StateAvailable {
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
	phases, failed := d.WaitForHosts(ctx, time.Now(), scenario.AllInState(w.hosts, w.until))
	simulator = ownTime() - simulator
	if errors.Is(failed, context.Canceled) {
		return failed // somebody interrupted it; when the time is over, what was reached is told
	}

	name := func(figure string) string { return fmt.Sprintf("metal/%d-hosts-%s", w.hosts, figure) }
	for _, state := range w.phases {
		if took, reached := phases[string(state)]; reached {
			f.add(name("last-"+string(state)), took.Seconds())
		}
	}
	if failed == nil {
		f.add(name(w.rate), float64(w.hosts)/phases[string(w.until)].Minutes())
	}

	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute) // also after the time is over
	defer done()
	after, err := d.Usage(ctx)
	if err != nil {
		return errors.Join(failed, err)
	}
	for _, part := range parts {
		f.add(name("cpu-"+part), after[part].CPU-before[part].CPU)
		f.add(name("memory-"+part), after[part].MiB)
	}
	f.add(name("cpu-simulator"), simulator.Seconds())
	return errors.Join(failed, count(ctx, d, f, w, name))
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
func count(ctx context.Context, d *scenario.Scenario, f *measurements, w work, name func(string) string) error {
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
		if _, known := nodes[h.Name]; !known || status.Provisioning.State != w.until || status.ErrorMessage != "" {
			lost++
		}
	}
	f.add(name("lost"), float64(lost))

	objects, err := d.Objects(ctx)
	if err != nil {
		return err
	}
	all := 0
	for kind, n := range objects {
		all += n
		if strings.HasSuffix(kind, ".metal3.io") || kind == "secrets" || kind == "events" {
			f.add(name("objects-"+kind), float64(n))
		}
	}
	f.add(name("objects-all"), float64(all))
	return nil
}

// ownTime is the processor time of this process so far: the fake hosts', and that of looking on.
func ownTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
