package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/assets/bench"
)

// buildHelm compiles helm, of the version that the folder helm pins.
func buildHelm(ctx context.Context, dir string) (string, error) {
	top, err := bench.FindTop()
	if err != nil {
		return "", err
	}

	out := filepath.Join(dir, "helm")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "helm.sh/helm/v4/cmd/helm")
	cmd.Dir = filepath.Join(top, "daemon", "clusters", "kpa", "bench", "helm")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile helm: %w: %s", err, text)
	}
	return out, nil
}

// installAll is the script: one chart after the other on a cluster, each until all of it is ready. It returns helm's
// processor time. What helm asked a cluster about its kinds it keeps in a folder, and does not ask again.
func (m *measurement) installAll(ctx context.Context, c *cluster, charts string) (time.Duration, error) {
	var cpu time.Duration
	for i := range m.components {
		name := newBundle(i).name
		cmd := exec.CommandContext(ctx, m.helm, "install", name, filepath.Join(charts, name), "--kubeconfig", c.Kubeconfig,
			"--namespace", name, "--create-namespace", "--wait", "--timeout", "5m")
		cmd.Env = []string{"HOME=" + filepath.Dir(c.Kubeconfig), "PATH=" + os.Getenv("PATH")}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("helm install %s on %s: %w: %s", name, c.name, err, &out)
		}
		cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return cpu, nil
}

// measureLoop installs on one cluster after the other.
func (m *measurement) measureLoop(ctx context.Context, f fleet, charts string) error {
	var cpu time.Duration
	seconds, err := bench.MeasureSeconds(func() error {
		for _, c := range f {
			took, err := m.installAll(ctx, c, charts)
			if err != nil {
				return err
			}
			cpu += took
		}
		return nil
	})
	if err == nil {
		m.series.Add(byLoop, seconds)
		m.series.Add(loopCPU, cpu.Seconds())
	}
	return err
}

// measureLoops runs a loop for each cluster, all at once.
func (m *measurement) measureLoops(ctx context.Context, f fleet, charts string) error {
	seconds, err := bench.MeasureSeconds(func() error {
		var loops errgroup.Group
		for _, c := range f {
			loops.Go(func() error { _, err := m.installAll(ctx, c, charts); return err })
		}
		return loops.Wait()
	})
	if err == nil {
		m.series.Add(sideBySide, seconds)
	}
	return err
}
