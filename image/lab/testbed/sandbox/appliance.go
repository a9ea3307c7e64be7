package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/assets/status"
)

// Kind is what FIRSTLIGHT_TEST must contain for tests in the sandbox.
const Kind = "native"

// KindEarlier is what it must contain for tests on EarlierVersion, which takes minutes to compile.
const KindEarlier = "earlier"

// HasKind says whether FIRSTLIGHT_TEST has a kind of tests.
func HasKind(kind string) bool {
	return slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), kind)
}

// RootTree is the tree that tests use: $FIRSTLIGHT_ROOT (a directory, squashfs or image), else the image
// that was built in this repository.
func RootTree() (string, error) {
	if root := os.Getenv("FIRSTLIGHT_ROOT"); root != "" {
		return root, nil
	}

	top, err := bench.FindTop()
	if err != nil {
		return "", err
	}

	image := filepath.Join(top, "build", "firstlight.img")
	if _, err := os.Stat(image); err != nil {
		return "", fmt.Errorf("find root tree: %w; run firstlight build, or set FIRSTLIGHT_ROOT", err)
	}

	return image, nil
}

// RequireRoot skips a test, with the reason, unless sandboxes were asked for and are possible here.
func RequireRoot(t testing.TB) (root string) {
	t.Helper()
	if !HasKind(Kind) {
		t.Skip("brings up the appliance's root tree in namespaces; set FIRSTLIGHT_TEST=" + Kind)
	}

	if os.Geteuid() != 0 {
		t.Skip("needs root for namespaces and mounts")
	}

	root, err := RootTree()
	if err != nil {
		t.Skip(err)
	}

	return root
}

// Programs are what a sandbox needs that is compiled from the sources at hand.
type Programs struct{ Manager, Daemon string }

// BuildPrograms compiles them into dir.
func BuildPrograms(ctx context.Context, dir string) (p Programs, err error) {
	if p.Manager, err = Build(ctx, ".", "./image/lab/testbed/sandbox/systemctl", dir); err != nil {
		return p, err
	}
	p.Daemon, err = Build(ctx, ".", "./cmd/firstlightd", dir)
	return p, err
}

// StartAppliance starts a sandbox with the daemon of the sources at hand, its units and users in place of the tree's.
func (p Programs) StartAppliance(ctx context.Context, c Config) (*Sandbox, error) {
	c.Manager = p.Manager
	c.Add = maps.Clone(c.Add)
	if c.Add == nil {
		c.Add = map[string]string{}
	}

	c.Add["/usr/bin/firstlightd"] = p.Daemon
	own, err := findOwnFiles()
	if err != nil {
		return nil, err
	}

	maps.Copy(c.Add, own)
	return Start(ctx, c)
}

// findOwnFiles are the units, users and settings of sshd of the sources at hand, by their place in the root.
func findOwnFiles() (map[string]string, error) {
	top, err := bench.FindTop()
	if err != nil {
		return nil, err
	}

	overlay := filepath.Join(top, "overlays", "appliance")
	found := map[string]string{}
	for _, pattern := range []string{"usr/lib/systemd/system/*.service", "usr/lib/sysusers.d/*.conf", "etc/ssh/sshd_config.d/*.conf"} {
		files, err := filepath.Glob(filepath.Join(overlay, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			found[strings.TrimPrefix(file, overlay)] = file
		}
	}

	return found, nil
}

// StartAppliance starts an appliance for a test: the root of RequireRoot, in dir.
// It is closed with the test; if the test failed, the units' logs are in the test's.
func StartAppliance(t testing.TB, root string, p Programs, name, dir string) *Sandbox {
	t.Helper()
	appliance, err := p.StartAppliance(t.Context(), Config{Name: name, Root: root, Dir: dir, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if t.Failed() {
			for _, unit := range []string{
				"containerd.service", "kubelet.service", "firstlightd.service", "firstlight-registry.service",
			} {
				t.Logf("%s, the end of its log:\n%s", unit, lastBytes(appliance.UnitLog(unit), 3000))
			}
			t.Log("Kubernetes, as it was then:\n" + appliance.diagnostics(context.WithoutCancel(t.Context())))
		}
		if err := appliance.Close(); err != nil {
			t.Error(err)
		}
	})
	return appliance
}

// diagnostics is what kubectl knows of what runs, and the end of what the pods say. It is for a person who reads
// why a test failed: where something does not answer, its error stands instead.
func (b *Sandbox) diagnostics(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var told strings.Builder
	for _, line := range []string{
		"kubectl get pods,jobs -A -o wide",
		"kubectl get bmh,bpa -A -o wide",
		"kubectl get events -A --sort-by=.lastTimestamp | tail -n 30",
		"kubectl describe nodes | tail -n 40",
		"for f in /var/log/pods/*/*/*.log; do echo; echo \"$f:\"; tail -n 12 $f | cut -c 1-400; done",
	} {
		out, err := b.Run(ctx, "sh", "-c", line)
		fmt.Fprintf(&told, "%s\n%s\n", line, out)
		if err != nil {
			fmt.Fprintln(&told, err)
		}
	}

	return told.String()
}

func lastBytes(s string, n int) string { return s[max(0, len(s)-n):] }

// WriteSite writes the site document, as on the stick's SITE partition.
func (b *Sandbox) WriteSite(text string) error {
	return b.WriteFile("/run/firstlight/site/site.yaml", []byte(text), 0o644)
}

// Status asks the daemon how it is.
func (b *Sandbox) Status(ctx context.Context) (status.Document, error) {
	out, err := b.Run(ctx, "firstlightd", "status", "-o", "json")
	var d status.Document
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		return d, fmt.Errorf("read status of sandbox %s: %w", b.Name(), err)
	}

	return d, nil
}

// AwaitStage asks the daemon until a stage is ready and returns its part of the document. At every change of
// what it says a line goes to log, which may be nil.
func (b *Sandbox) AwaitStage(ctx context.Context, stage string, log io.Writer) (status.Stage, error) {
	said, last := "", errors.New("never asked")
	for ; ; time.Sleep(100 * time.Millisecond) {
		if ctx.Err() != nil {
			return status.Stage{}, fmt.Errorf("await %s in sandbox %s: %w: %s %w", stage, b.Name(), ctx.Err(), said, last)
		}

		var d status.Document
		if d, last = b.Status(ctx); last != nil {
			continue
		}

		for _, s := range d.Stages {
			if s.Name == stage && s.State == status.StateReady {
				return s, nil
			}
		}

		if d.Summary != said && log != nil {
			fmt.Fprintf(log, "%s %s\n", time.Now().Format("15:04:05.000"), d.Summary)
		}

		said = d.Summary
	}
}
