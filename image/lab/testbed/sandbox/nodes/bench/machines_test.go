package bench_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/machines"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// template is what clusterctl makes a cluster of.
const template = "assets/build/cluster-api/cluster-template.yaml"

// machineEndpoint is the address of the clusters of Cluster API.
const machineEndpoint = "172.22.0.200"

// objects are an appliance that makes clusters by Cluster API, and its servers.
type objects struct {
	scenario *scenario.Scenario
	machines *machines.Machines
}

// newMachines brings up an appliance with servers that are inspected and free.
func newMachines(ctx context.Context, root, dir string, programs sandbox.Programs, servers int) (o *objects, err error) {
	o = &objects{}
	o.scenario, err = scenario.Start(ctx, scenario.Config{
		Name:     "bench-objects",
		Root:     root,
		Dir:      filepath.Join(dir, "objects"),
		Programs: programs,
		Servers:  simulator.Config{Hosts: servers},
	})
	if err != nil {
		return nil, err
	}
	if err := o.begin(ctx, root, dir); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

func (o *objects) begin(ctx context.Context, root, dir string) (err error) {
	systems := filepath.Join(dir, "systems")
	if err := os.MkdirAll(systems, 0o755); err != nil {
		return err
	}
	if o.machines, err = machines.New(ctx, o.scenario, machines.Config{Root: root, Dir: systems}); err != nil {
		return err
	}

	if err := o.scenario.Begin(ctx, "name: objects\nnetworks: {provisioning: {interface: eth0}}\nclusters: []\n"); err != nil {
		return err
	}
	for _, stage := range []string{"cluster-api-ready", "packages-ready"} {
		if _, err := o.scenario.Sandbox.AwaitStage(ctx, stage, os.Stderr); err != nil {
			return err
		}
	}
	if err := o.apply(ctx, machines.Hosts(o.scenario)); err != nil {
		return err
	}
	if err := o.awaitFree(ctx); err != nil {
		return err
	}
	// What one cluster leaves on a disk is lost to the next one.
	_, err = o.scenario.Sandbox.Run(ctx, "kubectl", "-n", "metal3", "annotate", "bmh", "--all", "firstlight.dev/overwrite=released")
	if err != nil {
		return err
	}

	top, err := bench.FindTop()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(top, template))
	if err != nil {
		return err
	}
	changed, err := machines.ForSandboxes(string(text))
	if err != nil {
		return err
	}
	return o.scenario.Sandbox.WriteFile("/root/template.yaml", []byte(changed), 0o644)
}

func (o *objects) Close() error {
	if o.machines == nil {
		return o.scenario.Close()
	}
	return errors.Join(o.machines.Close(), o.scenario.Close())
}

func (o *objects) apply(ctx context.Context, text string) error {
	return o.scenario.Sandbox.Apply(ctx, text, "-n", "metal3")
}

// awaitFree waits until all servers are inspected, proven and nobody's.
func (o *objects) awaitFree(ctx context.Context) error {
	for ; ; time.Sleep(time.Second) {
		if err := errors.Join(ctx.Err(), o.machines.Follow(ctx)); err != nil {
			return err
		}
		out, err := o.scenario.Sandbox.Run(ctx, "kubectl", "-n", "metal3", "get", "bmh", "-o", "jsonpath={range .items[*]}"+
			`{.status.provisioning.state}/{.metadata.labels.firstlight\.dev/verified}/{.spec.consumerRef.name} {end}`)
		if err == nil && out == strings.Repeat("available/hardware/ ", len(o.scenario.Servers.Hosts())) {
			return nil
		}
	}
}

// measure makes a cluster of so many nodes, and gives its servers back.
func (o *objects) measure(ctx context.Context, s *bench.Series, size int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Minute)
	defer cancel()
	memory, err := o.memory(ctx)
	if err != nil {
		return err
	}
	s.Add("0/memory", memory)

	text, err := o.scenario.Sandbox.Run(ctx, "env", "CONTROL_PLANE_ENDPOINT_HOST="+machineEndpoint,
		"IMAGE_URL="+scenario.Boot+"/"+scenario.ImageA+".raw", "IMAGE_CHECKSUM="+scenario.ImageSum(scenario.ImageA),
		"clusterctl", "--kubeconfig", "/etc/kubernetes/admin.conf", "generate", "cluster", cluster, "-n", "metal3", "--from", "/root/template.yaml",
		"--kubernetes-version", assets.KubernetesVersion, "--control-plane-machine-count", "1", "--worker-machine-count", fmt.Sprint(size-1))
	if err != nil {
		return err
	}

	began := time.Now()
	if err := o.apply(ctx, text); err != nil {
		return err
	}
	spans, err := o.awaitBoots(ctx, size, began)
	if err != nil {
		return err
	}
	if err := o.awaitReady(ctx, size); err != nil {
		return err
	}
	took, installing := time.Since(began), sum(spans, time.Now())
	s.Add(fmt.Sprintf("%d/cluster-api", size), (took - installing).Seconds())
	s.Add(fmt.Sprintf("%d/installing-servers", size), installing.Seconds())
	o.printTimeline(ctx, began, spans)

	if _, err := o.scenario.Sandbox.Run(ctx, "kubectl", "-n", "metal3", "delete", "cluster", cluster); err != nil {
		return err
	}
	return o.awaitFree(ctx)
}

// awaitBoots waits until so many servers have booted what was installed since then, and returns when each was being
// installed: from its image in the host to its system.
func (o *objects) awaitBoots(ctx context.Context, size int, since time.Time) (installing []span, err error) {
	began := map[string]time.Time{} // by the name of the host
	for ; ; time.Sleep(100 * time.Millisecond) {
		if err := errors.Join(ctx.Err(), o.machines.Follow(ctx)); err != nil {
			return nil, err
		}
		hosts, err := o.scenario.Hosts(ctx)
		if err != nil {
			continue
		}

		installing = nil
		for name, h := range hosts {
			if _, seen := began[name]; !seen && h.Spec.Image != nil {
				began[name] = time.Now()
			}
			if disk := o.machines.Disk(name); disk != nil && disk.Booted.After(since) {
				installing = append(installing, span{began[name], disk.Booted})
			}
		}
		if len(installing) == size {
			return installing, nil
		}
	}
}

// printTimeline prints what became of the objects and of the nodes, and when: what takes long is seen at once.
func (o *objects) printTimeline(ctx context.Context, began time.Time, installing []span) {
	var events []event
	for _, args := range [][]string{
		{"-n", "metal3", "get", "clusters.cluster.x-k8s.io,kubeadmcontrolplanes,machines.cluster.x-k8s.io,kubeadmconfigs," +
			"metal3clusters,metal3machines,metal3datas,baremetalhosts"},
		{"--kubeconfig", "/root/bench.conf", "-n", "kube-system", "get", "nodes,pods"},
	} {
		text, err := o.scenario.Sandbox.Run(ctx, "kubectl", append(args, "-o", "json")...)
		if err == nil {
			var more []event
			more, err = readEvents(text, began)
			events = append(events, more...)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "the timeline lacks objects:", err)
		}
	}

	for name, system := range o.machines.Systems() {
		events = append(events, event{o.machines.Disk(name).Booted, name, "boots"})
		for _, file := range []string{"/var/log/node.log", "/var/log/cloud-init-output.log"} { // cloud-init may write to either, or both
			log, _ := os.ReadFile(system.Path(file))
			events = append(events, readStamps(name, string(log))...)
		}
		events = append(events, readStamps(name, system.UnitLog("firstlight-float.service"))...)
		events = append(events, readSteps(name, system.Path)...)
	}
	fmt.Fprintf(os.Stderr, "Cluster API, %d servers, without the time in which one of them is being installed:\n%s", len(installing),
		writeTimeline(began, installing, events))
}

// awaitReady waits as by hand: for the nodes, and for the system's pods. What it asks with takes processors from the
// nodes, so it asks with as little as possible.
func (o *objects) awaitReady(ctx context.Context, size int) error {
	const (
		access = `clusterctl --kubeconfig /etc/kubernetes/admin.conf get kubeconfig -n metal3 "$1" >/root/bench.conf`
		ready  = `set -e
export KUBECONFIG=/root/bench.conf
[ "$(kubectl get nodes -o name | wc -l)" = "$2" ]
kubectl wait nodes --all --for=condition=Ready --timeout=10m >/dev/null
for w in ds/kube-proxy ds/firstlight-network deployment/coredns; do kubectl -n kube-system rollout status $w --timeout=10m >/dev/null; done`
	)
	for _, script := range []string{access, ready} {
		for {
			_, err := o.scenario.Sandbox.Run(ctx, "sh", "-c", script, "sh", cluster, fmt.Sprint(size))
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return err
			}
			time.Sleep(500 * time.Millisecond)
		}
	}
	return nil
}

// memory is that of Cluster API's managers, in MiB, each with its share of what others have, too.
func (o *objects) memory(ctx context.Context) (mebibytes float64, err error) {
	out, err := o.scenario.Sandbox.Run(ctx, "sh", "-c",
		`for p in $(pgrep -f '^/cluster-api '); do cat /proc/$p/smaps_rollup; done | awk '/^Pss:/ {n += $2} END {print n / 1024}'`)
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(out, &mebibytes)
	return mebibytes, err
}
