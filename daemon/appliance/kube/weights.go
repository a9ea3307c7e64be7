package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/procfs"
)

// Weights are shares of the processor where it is not enough for all, by systemd's CPUWeight=.
type weights struct {
	system  int // of all units together; pods together have 79 on two processors
	kubelet int // among the units, of which the daemon and containerd have 100 each
}

var (
	// The image's own units have these (system.slice.d/50-firstlight.conf, kubelet.service): pods come first.
	podsFirst = weights{system: 30, kubelet: 50}
	// Without etcd or API server nothing that pods do leads anywhere, and only the kubelet and containerd
	// can start them again.
	kubeletFirst = weights{system: 300, kubelet: 200}
)

const (
	weightsInterval = 10 * time.Second
	// The kubelet needs less than this to start an ended part again, where the processor is enough for all.
	patienceWithKubelet = time.Minute
)

// wantedWeights are those of an appliance whose etcd or API server has not run for a time.
func wantedWeights(missingFor time.Duration) weights {
	if missingFor < patienceWithKubelet {
		return podsFirst
	}
	return kubeletFirst
}

// KeepRestartable gives units the processor before pods while etcd or the API server does not run, and
// takes it back when both do. It returns when ctx ends, or with the error of /proc or systemd, and is then called again.
func (c *Cluster) KeepRestartable(ctx context.Context) error {
	var current weights // unknown: an earlier daemon may have set others
	if c.seen.IsZero() {
		c.seen = time.Now()
	}
	for {
		running, err := controlPlaneRuns(c.path(procfs.DefaultMountPoint))
		if err != nil {
			return err
		}
		if running {
			c.seen = time.Now()
		}

		if want := wantedWeights(time.Since(c.seen)); want != current {
			if err := c.setWeights(ctx, want); err != nil {
				return err
			}
			current = want
		}

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(weightsInterval):
		}
	}
}

// setWeights has systemd use weights until the next boot.
func (c *Cluster) setWeights(ctx context.Context, w weights) error {
	for _, u := range []struct {
		name   string
		weight int
	}{
		{"system.slice", w.system},
		{"kubelet.service", w.kubelet},
	} {
		_, err := c.Run(
			ctx, nil, "systemctl", "set-property", "--runtime", u.name, fmt.Sprintf("CPUWeight=%d", u.weight),
		)
		if err != nil {
			return err
		}
	}

	return nil
}

// controlPlaneRuns tells whether etcd and the API server are processes of this machine.
func controlPlaneRuns(proc string) (bool, error) {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return false, fmt.Errorf("open %s: %w", proc, err)
	}
	processes, err := fs.AllProcs()
	if err != nil {
		return false, fmt.Errorf("list processes: %w", err)
	}

	missing := []string{"etcd", "kube-apiserver"}
	for _, p := range processes {
		name, err := p.Comm()
		if err != nil {
			continue // it has ended
		}
		missing = slices.DeleteFunc(missing, func(m string) bool { return m == name })
	}

	return len(missing) == 0, nil
}
