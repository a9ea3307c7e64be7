package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"firstlight.dev/firstlight/assets/status"
)

// Kind is what FIRSTLIGHT_TEST must contain for tests on the bed.
const Kind = "native"

// Root is the tree that tests use: $FIRSTLIGHT_ROOT (a directory, squashfs or image), else the image
// that was built in this repository.
func Root() (string, error) {
	if root := os.Getenv("FIRSTLIGHT_ROOT"); root != "" {
		return root, nil
	}
	top, err := Top()
	if err != nil {
		return "", err
	}
	image := filepath.Join(top, "build", "firstlight.img")
	if _, err := os.Stat(image); err != nil {
		return "", fmt.Errorf("find root tree: %w; run firstlight build, or set FIRSTLIGHT_ROOT", err)
	}
	return image, nil
}

// Need skips a test, with the reason, unless beds were asked for and are possible here.
func Need(t testing.TB) (root string) {
	t.Helper()
	if !strings.Contains(","+os.Getenv("FIRSTLIGHT_TEST")+",", ","+Kind+",") {
		t.Skip("brings up the appliance's root tree in namespaces; set FIRSTLIGHT_TEST=" + Kind)
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root for namespaces and mounts")
	}
	root, err := Root()
	if err != nil {
		t.Skip(err)
	}
	return root
}

// Programs are what a bed needs that is compiled from the sources at hand.
type Programs struct{ Manager, Daemon string }

// BuildPrograms compiles them into dir.
func BuildPrograms(ctx context.Context, dir string) (p Programs, err error) {
	if p.Manager, err = Build(ctx, ".", "./image/lab/native/systemctl", dir); err != nil {
		return p, err
	}
	p.Daemon, err = Build(ctx, ".", "./cmd/firstlightd", dir)
	return p, err
}

// Appliance starts a bed for a test: the root of Need with the daemon of the sources at hand, in dir.
// It is closed with the test; if the test failed, the units' logs are in the test's.
func Appliance(t testing.TB, root string, p Programs, name, dir string) *Bed {
	t.Helper()
	bed, err := Start(t.Context(), Config{Name: name, Root: root, Dir: dir, Manager: p.Manager, Log: t.Output(),
		Add: map[string]string{"/usr/bin/firstlightd": p.Daemon}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, unit := range []string{"firstlightd.service", "kubelet.service", "containerd.service"} {
				t.Logf("%s, the end of its log:\n%s", unit, end(bed.Log(unit), 6000))
			}
		}
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	})
	return bed
}

func end(s string, n int) string { return s[max(0, len(s)-n):] }

// Status asks the daemon how it is.
func (b *Bed) Status(ctx context.Context) (status.Document, error) {
	out, err := b.Run(ctx, "firstlightd", "status", "-o", "json")
	var d status.Document
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		return d, fmt.Errorf("read status of bed %s: %w", b.Name(), err)
	}
	return d, nil
}

// Await asks the daemon until a stage is ready and returns its part of the document. At every change of
// what it says a line goes to log, which may be nil.
func (b *Bed) Await(ctx context.Context, stage string, log io.Writer) (status.Stage, error) {
	said, last := "", errors.New("never asked")
	for ; ; time.Sleep(100 * time.Millisecond) {
		if ctx.Err() != nil {
			return status.Stage{}, fmt.Errorf("await %s in bed %s: %w: %s %w", stage, b.Name(), ctx.Err(), said, last)
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
