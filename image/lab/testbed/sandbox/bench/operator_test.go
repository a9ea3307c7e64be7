package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/assets/crd"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/image/lab/process"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// What the operator of clusters is given.
const (
	hosts    = 1000
	clusters = 100
)

// BenchmarkOperator measures the operator of clusters at size: a thousand hosts, a hundred Provisionings of ten nodes
// each, a real API server. It measures how long the operator takes from its start until every cluster has its Job, and
// the memory it needs. Nothing runs pods here, so no cluster gets further than its Job.
func BenchmarkOperator(b *testing.B) {
	runs, dir := bench.Runs(b, 5), b.TempDir()
	bench.Run(b, "bpa", func(ctx context.Context) ([]bench.Row, error) {
		daemon, err := sandbox.Build(ctx, ".", "./cmd/firstlightd", dir)
		if err != nil {
			return nil, err
		}
		var s bench.Series
		for i := range runs {
			if err := measureOperator(ctx, &s, daemon, filepath.Join(dir, strconv.Itoa(i))); err != nil {
				return nil, err
			}
		}
		note := fmt.Sprintf("median of %d; 1,000 hosts, 100 clusters of 10 nodes, half of them by MAC; etcd and kube-apiserver "+
			"on the same machine, etcd does not sync; load of the machine at the end %s", runs, bench.LoadAverage())
		row := func(name, unit, of string) bench.Row {
			return bench.Row{Name: "bpa/" + name, Unit: unit, Ours: s.Median(name), Note: of + "; " + note}
		}
		return []bench.Row{
			row("all-jobs-made", "s", "from the operator's start to the Job of the last cluster"),
			row("cpu", "s", "of the operator until then"),
			row("memory-peak", "MiB", "most that was resident at once (VmHWM)").Less("bar", 128, 1),
			row("memory", "MiB", "resident half a minute later, all clusters watched").Less("bar", 128, 1),
		}, nil
	})
}

func measureOperator(ctx context.Context, s *bench.Series, daemon, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	server, err := sandbox.StartAPI(ctx, dir)
	if err != nil {
		return err
	}
	defer server.Close()
	config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 2000, 2000
	api, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	if err := createObjects(ctx, api); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "operator.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(daemon, "bpa", "--kubeconfig", server.Kubeconfig, "--dir", filepath.Join(dir, "clusters"),
		"--installer-image", "example/installer:1", "--elect=false")
	cmd.Stderr = log
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	if err := waitForJobs(ctx, api, clusters); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%w\n%s", err, text[max(0, len(text)-2000):])
	}
	s.Add("all-jobs-made", time.Since(began).Seconds())
	s.Add("cpu", process.CPU(cmd.Process.Pid).Seconds())
	select {
	case <-time.After(30 * time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	for name, line := range map[string]string{"memory-peak": bench.PeakResident, "memory": bench.Resident} {
		used, err := bench.Memory(cmd.Process.Pid, line)
		if err != nil {
			return err
		}
		s.Add(name, used/(1<<20))
	}
	return nil
}

// waitForJobs waits until there are so many Jobs.
func waitForJobs(ctx context.Context, api client.Client, n int) error {
	for {
		list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "JobList"}}
		if err := api.List(ctx, list); err != nil {
			return fmt.Errorf("wait for Jobs: %w", err)
		}
		if len(list.Items) >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for Jobs: %w: there are %d", ctx.Err(), len(list.Items))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// createObjects makes kinds, hosts and Provisionings.
func createObjects(ctx context.Context, api client.Client) error {
	definition, err := sandbox.HostDefinition(ctx)
	if err != nil {
		return err
	}
	d := yaml.NewYAMLOrJSONDecoder(io.MultiReader(bytes.NewReader(crd.BPA), strings.NewReader("\n---\n"), bytes.NewReader(definition)), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := d.Decode(u); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if err := api.Create(ctx, u); err != nil {
			return err
		}
	}
	for _, name := range []string{"metal3", "bpa"} {
		if err := createObject(ctx, api, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}); err != nil {
			return err
		}
	}
	var g errgroup.Group
	g.SetLimit(16)
	for n := range hosts {
		g.Go(func() error { return createHost(ctx, api, n) })
	}
	for c := range clusters {
		g.Go(func() error { return createObject(ctx, api, newProvisioning(c)) })
	}
	return g.Wait()
}

// createObject makes an object; a kind that was only just defined is waited for.
func createObject(ctx context.Context, api client.Client, content map[string]any) error {
	for {
		err := api.Create(ctx, &unstructured.Unstructured{Object: content})
		if err == nil || !strings.Contains(err.Error(), "no matches") && !strings.Contains(err.Error(), "could not find") {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func mac(n, nic int) string { return fmt.Sprintf("52:54:%02x:00:%02x:%02x", nic, n>>8, n&255) }

// createHost is one as inspection leaves it, with its disks and NICs, in service and proven.
func createHost(ctx context.Context, api client.Client, n int) error {
	var nics, disks []any
	for nic := range 4 {
		nics = append(nics, map[string]any{"name": fmt.Sprintf("eno%d", nic), "mac": mac(n, nic), "model": "0x8086 0x1572", "ip": fmt.Sprintf("10.%d.%d.%d", nic, n>>8, n&255), "speedGbps": int64(25)})
		disks = append(disks, map[string]any{"name": fmt.Sprintf("/dev/sd%c", 'a'+nic), "sizeBytes": int64(1) << 40, "model": "SSDSC2KB", "vendor": "INTEL", "serialNumber": fmt.Sprintf("S%d-%d", n, nic), "rotational": false})
	}
	meta := map[string]any{"name": fmt.Sprintf("node-%04d", n), "namespace": "metal3", "labels": map[string]any{label.Verified: "true"}}
	status := map[string]any{
		"errorMessage": "", "errorCount": int64(0), "operationalStatus": "OK", "poweredOn": true, "hardwareProfile": "unknown",
		"provisioning": map[string]any{"state": "provisioned", "ID": fmt.Sprint(n)},
		"hardware":     map[string]any{"cpu": map[string]any{"count": int64(8 << (n % 4)), "arch": "x86_64"}, "ramMebibytes": int64(16384 << (n % 8)), "nics": nics, "storage": disks, "hostname": meta["name"]},
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": meta,
		"spec": map[string]any{"online": true, "bootMACAddress": mac(n, 0), "automatedCleaningMode": "disabled"}}}
	if err := createObject(ctx, api, u.Object); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return api.Status().Patch(ctx, u, client.RawPatch("application/merge-patch+json", patch))
}

// newProvisioning asks for ten nodes: those with even numbers by MAC, the others for any host.
func newProvisioning(c int) map[string]any {
	var masters, workers []any
	for i := range hosts / clusters {
		body := map[string]any{"cpu": int64(8), "memory": "16Gi"}
		if i%2 == 0 {
			body = map[string]any{"mac-address": mac(c*10+i, 1)}
		}
		item := map[string]any{fmt.Sprintf("node-%d", i): body}
		if i < 3 {
			masters = append(masters, item)
		} else {
			workers = append(workers, item)
		}
	}
	name := fmt.Sprintf("cluster-%d", c)
	return map[string]any{"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning",
		"metadata": map[string]any{"name": name, "namespace": "default", "labels": map[string]any{"cluster": name}},
		"spec":     map[string]any{"masters": masters, "workers": workers, "PodSubnet": "10.244.64.0/18"}}
}
