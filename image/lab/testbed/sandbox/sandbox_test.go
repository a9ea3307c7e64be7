package sandbox_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox/secretscan"
)

// last is the stage after which Kubernetes can be used.
const last = "system-pods"

// patience only ends a test that hangs.
const patience = 10 * time.Minute

// box is an appliance of a test: its sandbox may be ended and made anew on the same DATA.
type box struct {
	t         *testing.T
	ctx       context.Context
	root      string
	name      string
	dir       string
	programs  sandbox.Programs
	appliance *sandbox.Sandbox
}

func newBox(t *testing.T, name string) *box {
	b := newCold(t, name)
	b.power()
	return b
}

// newCold is a box before its first power.
func newCold(t *testing.T, name string) *box {
	root := sandbox.RequireRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	programs, err := sandbox.BuildPrograms(ctx, t.TempDir())
	require.NoError(t, err)
	return &box{t: t, ctx: ctx, root: root, name: name, dir: t.TempDir(), programs: programs}
}

// power starts a sandbox on the box's DATA, and the daemon in it.
func (b *box) power() {
	b.appliance = sandbox.StartAppliance(b.t, b.root, b.programs, b.name, b.dir)
	b.run("systemctl", "start", "firstlightd")
}

// cut ends everything at once.
func (b *box) cut() { require.NoError(b.t, b.appliance.Close()) }

func (b *box) run(name string, args ...string) string {
	b.t.Helper()
	out, err := b.appliance.Run(b.ctx, name, args...)
	require.NoError(b.t, err)
	return out
}

// ready waits for the whole plan and returns how long that took.
func (b *box) ready() time.Duration {
	b.t.Helper()
	began := time.Now()
	_, err := b.appliance.AwaitStage(b.ctx, last, b.t.Output())
	require.NoError(b.t, err)
	return time.Since(began).Round(10 * time.Millisecond)
}

func (b *box) stages() []status.Stage {
	b.t.Helper()
	d, err := b.appliance.Status(b.ctx)
	require.NoError(b.t, err)
	return d.Stages
}

// upTo waits until the plan has come as far as a stage that is not ready yet, and names the one it is
// at: it may be a later one, if the awaited was quick.
func (b *box) upTo(stage string) string {
	b.t.Helper()
	for b.ctx.Err() == nil {
		d, err := b.appliance.Status(b.ctx)
		if err != nil {
			continue
		}
		at := slices.IndexFunc(d.Stages, func(s status.Stage) bool { return s.State != status.StateReady })
		want := slices.IndexFunc(d.Stages, func(s status.Stage) bool { return s.Name == stage })
		if at < 0 {
			return "the end"
		}
		if at >= want {
			return d.Stages[at].Name
		}
	}
	require.NoError(b.t, b.ctx.Err())
	return ""
}

// identity is a digest of every certificate, key and manifest.
func (b *box) identity() map[string]string {
	b.t.Helper()
	all := map[string]string{}
	top := b.appliance.DataPath("/etc/kubernetes")
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		sum := sha256.Sum256(text)
		all[strings.TrimPrefix(path, top)] = hex.EncodeToString(sum[:])
		return err
	})
	require.NoError(b.t, err)
	require.Contains(b.t, all, "/pki/ca.crt")
	return all
}

// write puts a ConfigMap into the cluster, holds looks for all that were written.
func (b *box) write(name string) {
	b.run("kubectl", "create", "configmap", name, "--from-literal=name="+name)
}

func (b *box) holds(names ...string) {
	b.t.Helper()
	for _, name := range names {
		assert.Equal(b.t, name, b.run("kubectl", "get", "configmap", name, "-o", "jsonpath={.data.name}"))
	}
}

func TestNothingToReadyAndAgain(t *testing.T) {
	b := newBox(t, "again")
	t.Logf("nothing to %s: %s", last, b.ready())
	for _, s := range b.stages() {
		t.Logf("%-18s %6.2f s  attempts %d", s.Name, s.Seconds, s.Attempts)
	}
	t.Log("\n" + b.run("kubectl", "get", "nodes,pods", "-A", "-o", "wide"))
	checkListeners(t, b.run("ss", "--no-header", "--listening", "--numeric", "--tcp", "--udp", "--processes"))
	assert.Contains(t, b.run("nft", "list", "table", "inet", "firstlight"), "hook input priority filter; policy drop;")
	secretscan.Check(t, b.ctx, b.appliance, "authority", "Kubernetes' authorities", "Kubernetes' certificates")
	identity := b.identity()

	b.run("systemctl", "restart", "firstlightd")
	t.Logf("second run: %s", b.ready())
	sum := 0.0
	for _, s := range b.stages() {
		sum += s.Seconds
		if s.Name != "site-read" { // its fact is in the daemon's memory: every daemon reads it once
			assert.Zero(t, s.Attempts, "stage %s acted again", s.Name)
		}
		if s.Name == last { // what follows is large and may have been cut off by the restart
			break
		}
	}
	t.Logf("second run of the plan: %.2f s", sum)
	assert.Equal(t, identity, b.identity(), "certificates, keys or manifests changed")
}

// hit are the stages at which something was ended.
type hit map[string]bool

// check asks for the one that takes long on a box that begins from nothing, however fast the machine is: the
// start of a control plane. The others may hold before they are looked at.
func (h hit) check(t *testing.T) {
	t.Helper()
	require.True(t, h["control-plane"], "nothing was ended at control-plane, only at %s", slices.Sorted(maps.Keys(h)))
}

func TestPowerCutsAtEveryStage(t *testing.T) {
	b := newBox(t, "cuts")
	cuts := hit{}
	for _, stage := range []string{"images-present", "control-plane", "node-ready", last} {
		at := b.upTo(stage)
		b.cut()
		t.Logf("cut at %s", at)
		cuts[at] = true
		b.power()
	}
	cuts.check(t)
	b.ready()
	b.write("first")
	identity := b.identity()
	b.cut()
	b.power()
	t.Logf("ready again after a cut: %s", b.ready())
	b.holds("first")
	assert.Equal(t, identity, b.identity(), "certificates, keys or manifests changed")
}

func TestDaemonKilledAtEveryStage(t *testing.T) {
	b := newBox(t, "kills")
	kills := hit{}
	for _, stage := range []string{"container-runtime", "images-present", "control-plane", "node-ready", last} {
		at := b.upTo(stage)
		b.run("systemctl", "kill", "--signal=SIGKILL", "firstlightd")
		t.Logf("daemon killed at %s", at)
		kills[at] = true
		time.Sleep(3 * time.Second) // its unit starts it again after 2 s
	}
	kills.check(t)
	b.ready()
	b.write("alive")
	b.holds("alive")
}

func TestPartsKilled(t *testing.T) {
	b := newBox(t, "parts")
	b.ready()
	b.write("before")
	identity := b.identity()
	kills := map[string][]string{
		"containerd":              {"systemctl", "kill", "--signal=SIGKILL", "containerd"},
		"kubelet":                 {"systemctl", "kill", "--signal=SIGKILL", "kubelet"},
		"etcd":                    {"pkill", "-KILL", "-x", "etcd"},
		"kube-apiserver":          {"pkill", "-KILL", "-f", "^kube-apiserver"},
		"kube-controller-manager": {"pkill", "-KILL", "-f", "^kube-controller-manager"},
	}
	for part, command := range kills {
		b.run(command[0], command[1:]...)
		began := time.Now()
		b.served(part)
		t.Logf("%s killed: served again after %s", part, time.Since(began).Round(10*time.Millisecond))
		b.holds("before")
		b.write("after-" + part)
	}
	assert.Equal(t, identity, b.identity(), "certificates, keys or manifests changed")
}

// restrictedPod is what the API server asks of pods that are not the appliance's own.
const restrictedPod = `{"spec": {"securityContext": {"runAsNonRoot": true, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
"containers": [{"name": "probe", "image": "firstlight.internal/pause:3.10.2", "imagePullPolicy": "Never",
"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}}`

// served waits until Kubernetes does its work again: a new pod runs.
func (b *box) served(name string) {
	b.t.Helper()
	for b.ctx.Err() == nil {
		_, err := b.appliance.Run(b.ctx, "kubectl", "run", "probe-"+name, "--image=firstlight.internal/pause:3.10.2", "--image-pull-policy=Never",
			"--restart=Never", "--request-timeout=10s", "--overrides", restrictedPod)
		if err == nil || strings.Contains(err.Error(), "AlreadyExists") {
			if _, err = b.appliance.Run(b.ctx, "kubectl", "wait", "--for=condition=Ready", "pod/probe-"+name, "--timeout=60s"); err == nil {
				return
			}
		}
		time.Sleep(500 * time.Millisecond)
	}
	require.NoError(b.t, b.ctx.Err(), "no pod ran after %s was killed", name)
}
