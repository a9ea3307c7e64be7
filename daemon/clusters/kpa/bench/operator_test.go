package bench_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/assets/crd"
	"firstlight.dev/firstlight/daemon/clusters/kpa"
	"firstlight.dev/firstlight/daemon/clusters/kpa/operator"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/image/lab/process"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// measureOperator installs by the operator, the program that its pod runs, beside an appliance's API server of its own. In
// the last run it is then left alone.
func (m *measurement) measureOperator(ctx context.Context, f fleet, dir string, isLast bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	appliance, err := sandbox.StartAPI(ctx, dir)
	if err != nil {
		return err
	}
	defer appliance.Close()
	api, err := connect(appliance)
	if err != nil {
		return err
	}
	if err := prepare(ctx, api, f); err != nil {
		return err
	}

	log, err := os.Create(filepath.Join(dir, "operator.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(m.daemon, "kpa", "--own", "--kubeconfig", appliance.Kubeconfig, "--namespace", kpa.Namespace)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start operator: %w", err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	if err := awaitLock(ctx, api); err != nil {
		return err
	}

	before := process.CPU(cmd.Process.Pid)
	seconds, err := bench.MeasureSeconds(func() error { return m.installComponents(ctx, api, f) })
	if err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("install Components: %w\n%s", err, text[max(0, len(text)-2000):])
	}
	m.series.Add(install, seconds)
	m.series.Add(installCPU, (process.CPU(cmd.Process.Pid) - before).Seconds())
	if !isLast {
		return nil
	}
	return m.measureIdle(ctx, api, cmd.Process.Pid)
}

// prepare gives an API what the appliance's has for the operator: kinds, its namespace, and clusters to log in to.
func prepare(ctx context.Context, api client.Client, f fleet) error {
	objects, err := kpa.Objects("bench")
	if err != nil {
		return err
	}
	own, err := apply.New("bench", objects...)
	if err != nil {
		return err
	}
	if err := poll(ctx, time.Minute, func() error { return own.Apply(ctx, api) }); err != nil {
		return err
	}
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(crd.BPA), 4096); ; {
		kind := &unstructured.Unstructured{}
		if err := d.Decode(kind); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if len(kind.Object) == 0 {
			continue
		}
		if err := api.Create(ctx, kind); err != nil {
			return err
		}
	}
	if err := poll(ctx, time.Minute, func() error { return api.List(ctx, &v1alpha1.ComponentList{}) }); err != nil {
		return err
	}

	for _, c := range f {
		text, err := readKubeconfig(c.Kubeconfig)
		if err != nil {
			return err
		}
		err = api.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: c.name + "-kubeconfig"},
			Data:       map[string][]byte{"value": text},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readKubeconfig reads one with the files that it names in it.
func readKubeconfig(path string) ([]byte, error) {
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, err
	}
	if err := clientcmdapi.FlattenConfig(config); err != nil {
		return nil, err
	}
	return clientcmd.Write(*config)
}

// awaitLock waits until the operator has its lock, and with it begins.
func awaitLock(ctx context.Context, api client.Client) error {
	key := client.ObjectKey{Namespace: kpa.Namespace, Name: operator.FieldManager + "-lock"}
	return poll(ctx, 2*time.Minute, func() error {
		var lock coordinationv1.Lease
		err := api.Get(ctx, key, &lock)
		if err == nil && lock.Spec.HolderIdentity == nil {
			err = errors.New("nobody has the operator's lock")
		}
		return err
	})
}

// installComponents creates all Components at once, and waits until each is Ready everywhere.
func (m *measurement) installComponents(ctx context.Context, api client.Client, f fleet) error {
	var names []string
	for _, c := range f {
		names = append(names, c.name)
	}
	for i := range m.components {
		b := newBundle(i)
		err := api.Create(ctx, &v1alpha1.Component{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: b.name},
			Spec: v1alpha1.ComponentSpec{
				Clusters: names, TargetNamespace: b.name, Source: v1alpha1.Source{Inline: b.text()},
			},
		})
		if err != nil {
			return err
		}
	}

	return poll(ctx, 30*time.Minute, func() error {
		var all v1alpha1.ComponentList
		if err := api.List(ctx, &all); err != nil {
			return err
		}
		for _, c := range all.Items {
			if !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReady) {
				return fmt.Errorf("Component %s: %s: %s", c.Name, c.Status.Phase, c.Status.Message)
			}
		}
		return nil
	})
}

// measureIdle measures what the operator takes while nobody asks for anything.
func (m *measurement) measureIdle(ctx context.Context, api client.Client, pid int) error {
	if err := sleep(ctx, idleBefore); err != nil {
		return err
	}
	before := process.CPU(pid)
	if err := sleep(ctx, idleTime); err != nil {
		return err
	}
	took := process.CPU(pid) - before
	m.series.Add(idleCPU, max(100*took.Seconds()/idleTime.Seconds(), 0.01)) // the kernel counts in hundredths of a second

	now, err := bench.Memory(pid, bench.Resident)
	if err != nil {
		return err
	}
	peak, err := bench.Memory(pid, bench.PeakResident)
	if err != nil {
		return err
	}
	m.series.Add(idleMemory, now/(1<<20))
	m.series.Add(peakMemory, peak/(1<<20))
	return checkRepeated(ctx, api)
}

// checkRepeated sees that everything was applied again in that time: else too little was measured.
func checkRepeated(ctx context.Context, api client.Client) error {
	var all v1alpha1.ComponentList
	if err := api.List(ctx, &all); err != nil {
		return err
	}
	for _, c := range all.Items {
		for _, s := range c.Status.Clusters {
			if s.Phase != v1alpha1.PhaseReady || s.Checked == nil || time.Since(s.Checked.Time) > idleTime+30*time.Second {
				return fmt.Errorf("Component %s on %s: it is %s and was not applied again", c.Name, s.Name, s.Phase)
			}
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
