package nodes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
)

// bench is a rack of a test with one cluster on it.
type bench struct {
	*nodes.Rack
	t   *testing.T
	ctx context.Context
}

const cluster = "edge"

// patience only ends a test that hangs.
const patience = 30 * time.Minute

func newBench(t *testing.T, name string, servers int) *bench {
	return startBench(t, nodes.Config{Name: name}, servers)
}

// newWhole is a rack with all of the appliance.
func newWhole(t *testing.T, name string, servers int) *bench {
	return startBench(t, nodes.Config{Name: name, Full: true}, servers)
}

func startBench(t *testing.T, c nodes.Config, servers int) *bench {
	root := sandbox.RequireRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	programs, err := sandbox.BuildPrograms(ctx, t.TempDir())
	require.NoError(t, err)
	c.Root, c.Dir, c.Programs, c.Log = root, t.TempDir(), programs, t.Output()
	r, err := nodes.New(ctx, c, servers)
	require.NoError(t, err)
	b := &bench{Rack: r, t: t, ctx: ctx}
	t.Cleanup(func() {
		if t.Failed() {
			b.tell()
		}
		assert.NoError(t, r.Close())
	})
	return b
}

// tell prints the end of what everybody said.
func (b *bench) tell() {
	for _, s := range b.Servers {
		b.t.Logf("the end of the log of %s:\n%s", s.Label(), end(b.file("log/"+s.Label()+".log")))
		if s.Sandbox == nil {
			continue
		}
		for _, unit := range []string{"kubelet.service", "containerd.service"} {
			b.t.Logf("%s of %s, the end of its log:\n%s", unit, s.Label(), end(s.UnitLog(unit)))
		}
	}
	for _, unit := range []string{"mirror.service", "firstlightd.service"} {
		b.t.Logf("%s, the end of its log:\n%s", unit, end(b.Appliance.UnitLog(unit)))
	}
}

func end(s string) string { return s[max(0, len(s)-4000):] }

// file reads a file of the cluster's directory on the appliance.
func (b *bench) file(name string) string {
	text, err := os.ReadFile(b.Path(cluster, name))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (b *bench) inventory(masters int, servers ...*nodes.Server) {
	b.t.Helper()
	require.NoError(b.t, b.Inventory(cluster, masters, servers...))
}

// on runs shell text on a server.
func (b *bench) on(s *nodes.Server, text string) string {
	b.t.Helper()
	out, err := s.Run(b.ctx, "sh", "-euc", text)
	require.NoError(b.t, err)
	return out
}

func (b *bench) power(s *nodes.Server) { b.t.Helper(); require.NoError(b.t, s.PowerOn(b.ctx)) }

func (b *bench) cut(s *nodes.Server) { b.t.Helper(); require.NoError(b.t, s.CutPower()) }

// long skips what `make e2e` runs and `make test` does not.
func long(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "nodes") {
		t.Skip("takes minutes; set FIRSTLIGHT_TEST=native,nodes")
	}
}

// install runs the installer and returns its exit code and what it said.
func (b *bench) install(args ...string) (int, string) {
	b.t.Helper()
	began := time.Now()
	out, err := b.Installer(b.ctx, cluster, args...).CombinedOutput()
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		require.NoError(b.t, err)
	}
	b.t.Logf("installer %s: code %d after %s\n%s", strings.Join(args, " "), code, time.Since(began).Round(100*time.Millisecond), out)
	return code, string(out)
}

// installed runs the installer to its good end.
func (b *bench) installed(args ...string) string {
	b.t.Helper()
	code, out := b.install(args...)
	require.Zero(b.t, code)
	return out
}

// kubectl asks the cluster.
func (b *bench) kubectl(args ...string) string {
	b.t.Helper()
	out, err := b.Kubectl(b.ctx, cluster, args...)
	require.NoError(b.t, err)
	return out
}

// verified reads what the last verification found.
func (b *bench) verified() (v struct {
	Passed    bool
	Nodes     []string
	Questions []struct{ From, What, Got string }
}) {
	b.t.Helper()
	require.NoError(b.t, json.Unmarshal([]byte(b.file("artifacts/verification.json")), &v))
	return v
}

func (b *bench) ready() []string {
	b.t.Helper()
	out := b.kubectl("get", "nodes", "-o", `jsonpath={range .items[?(@.status.conditions[-1:].status=="True")]}{.metadata.name}{" "}{end}`)
	return strings.Fields(out)
}

func TestTwoNodesBecomeACluster(t *testing.T) {
	b := newBench(t, "two", 2)
	b.inventory(1, b.Servers...)
	b.installed()
	t.Log("\n" + b.kubectl("get", "nodes,pods,services", "-A", "-o", "wide"))
	v := b.verified()
	assert.True(t, v.Passed)
	assert.Equal(t, []string{"node-1", "node-2"}, v.Nodes)
	var answers strings.Builder
	for _, q := range v.Questions {
		fmt.Fprintf(&answers, "from %s, %s: %s\n", q.From, q.What, q.Got)
	}
	t.Log("\n" + answers.String())
	goldentest.WriteBlock(t, "../../../../../docs/tests.md", "questions", answers.String())
	assert.Equal(t, []string{"node-1", "node-2"}, b.ready())
	for _, s := range b.Servers {
		assert.Empty(t, b.on(s, "ip route show default"), "a way out of the rack")
	}
	// One that can join is nobody's to read, and none is there but the one that node-2 was given.
	for _, s := range b.Servers {
		assert.NotRegexp(t, `\b[a-z0-9]{6}\.[a-z0-9]{16}\b`, b.file("log/"+s.Label()+".log"), "a token")
	}
	assert.Len(t, strings.Fields(b.kubectl("-n", "kube-system", "get", "secrets", "--field-selector", "type=bootstrap.kubernetes.io/token", "-o", "name")), 1)

	// A second run finds everything as it is.
	kubelet := b.on(b.Servers[1], "systemctl show kubelet")
	config := b.file("artifacts/admin.conf")
	b.installed()
	assert.Equal(t, kubelet, b.on(b.Servers[1], "systemctl show kubelet"), "the kubelet was started again")
	assert.Equal(t, config, b.file("artifacts/admin.conf"))

	// Its packages are whole, and the newest that the appliance has.
	assert.Empty(t, b.on(b.Servers[1], "dpkg --audit; dpkg --verify kubelet kubeadm kubectl kubernetes-cni firstlight-kubernetes firstlight-node"))
	assert.Empty(t, b.on(b.Servers[1], "apt-get -qq update; apt-get -qq install --yes kubelet kubeadm kubectl"))
	assert.Equal(t, kubelet, b.on(b.Servers[1], "systemctl show kubelet"), "the kubelet was started again")

	// A proxy that starts again, as one does that looks at all rules each hour, leaves those that hold.
	services := b.services(b.Servers[1])
	assert.Contains(t, services, " . tcp . 443 : goto ")
	b.on(b.Servers[1], "pkill -f '^/usr/local/bin/kube-proxy '")
	b.await(b.Servers[1], `bash -c "exec 3<>/dev/tcp/127.0.0.1/10256; printf 'GET /healthz HTTP/1.0\r\n\r\n' >&3; cat <&3"`, " 200 OK")
	assert.Equal(t, services, b.services(b.Servers[1]))

	// Its Provisioning was deleted and is created again: the cluster lives on, with the networks that it has.
	require.NoError(t, os.Remove(b.Path(cluster, "cluster.json")))
	code, out := b.install("--network", "10.9.0.0/16")
	assert.Equal(t, 2, code)
	assert.Contains(t, out, "the cluster has the networks 10.244.64.0/18 for pods")
	b.installed()
	assert.Equal(t, kubelet, b.on(b.Servers[1], "systemctl show kubelet"), "the kubelet was started again")
	assert.Contains(t, b.file("cluster.json"), `"born": true`, "its control plane might be made again")
}

// services are the elements of a node's map of Services, in order, but for that of the verification, which is being removed.
func (b *bench) services(s *nodes.Server) string {
	b.t.Helper()
	return b.on(s, `nft list map ip kube-proxy service-ips | sed -n 's/.*\(10\.[^,]* goto [^ ,]*\).*/\1/p' | grep -v firstlight-verify | sort`)
}

// TestKilledAtEveryStage kills each run in the first stage in which none was killed before, until one comes to
// its end: those that hold at once are not seen.
func TestKilledAtEveryStage(t *testing.T) {
	long(t)
	b := newBench(t, "kills", 2)
	b.inventory(1, b.Servers...)
	left := slices.Clone(stages)
	for b.ctx.Err() == nil {
		_ = os.Remove(b.Path(cluster, "progress.json")) // of the run before, if there was one
		cmd := b.Installer(b.ctx, cluster)
		require.NoError(t, cmd.Start())
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait() // it is killed, most of the time
			close(ended)
		}()
		stage, doing := b.upTo(left, ended)
		if stage == "" {
			<-ended
			break
		}
		_ = cmd.Process.Kill() // nsenter, and with it the installer's life line
		_, err := b.Appliance.Run(b.ctx, "pkill", "-KILL", "-f", "^firstlightd installer")
		t.Logf("killed at %s (%v)", doing, err)
		<-ended
		left = slices.DeleteFunc(left, func(s string) bool { return s == stage })
	}
	t.Logf("not seen: %s", strings.Join(left, ", "))
	for _, takesTime := range []string{
		"Packages of Kubernetes are installed", "Container images are put in place", "The control plane is made",
		"The node joins the cluster", "Nodes become ready",
	} {
		assert.NotContains(t, left, takesTime)
	}
	b.installed()
	assert.True(t, b.verified().Passed)
}

// upTo waits until a run is at one of some stages, by their titles, and says which and what it does there; "" is a run that
// ended before.
func (b *bench) upTo(stages []string, ended <-chan struct{}) (stage, doing string) {
	for b.ctx.Err() == nil {
		select {
		case <-ended:
			return "", ""
		case <-time.After(20 * time.Millisecond):
		}
		var p struct {
			Doing string
			Nodes map[string]string
		}
		if json.Unmarshal([]byte(b.file("progress.json")), &p) != nil {
			continue
		}
		for _, doing := range []string{p.Doing, p.Nodes["node-1"], p.Nodes["node-2"]} {
			name, _, _ := strings.Cut(doing, ":")
			if slices.Contains(stages, name) {
				return name, doing
			}
		}
	}
	return "", ""
}

func TestAClusterGrowsAndShrinks(t *testing.T) {
	long(t)
	b := newBench(t, "grow", 3)
	b.inventory(1, b.Servers[:2]...)
	b.installed()
	b.kubectl("create", "deployment", "web", "--image=firstlight.internal/pause:3.10.2", "--replicas=4")
	b.kubectl("rollout", "status", "deployment/web", "--timeout=2m")

	b.inventory(1, b.Servers...)
	b.installed()
	assert.Equal(t, []string{"node-1", "node-2", "node-3"}, b.ready())
	assert.Len(t, b.verified().Nodes, 3)

	b.installed("--remove", "node-2")
	assert.Equal(t, []string{"node-1", "node-3"}, b.ready())
	b.kubectl("rollout", "status", "deployment/web", "--timeout=2m")
	assert.NotContains(t, b.kubectl("get", "pods", "-o", "wide"), "node-2")
	assert.Equal(t, "inactive\n", b.on(b.Servers[1], "ls /etc/kubernetes/*.conf /etc/firstlight/cluster.json 2>/dev/null || true; ip route show proto 70; systemctl is-active kubelet || true"))

	// The same machine again, and a dead one replaced.
	b.installed()
	assert.Equal(t, []string{"node-1", "node-2", "node-3"}, b.ready())
	b.cut(b.Servers[2])
	require.NoError(t, b.Servers[2].Wipe())
	b.installed("--remove", "node-3")
	assert.Equal(t, []string{"node-1", "node-2"}, b.ready())
	b.power(b.Servers[2])
	b.forgetHostKey(b.Servers[2])
	b.installed()
	assert.Equal(t, []string{"node-1", "node-2", "node-3"}, b.ready())

	// Another machine under the name of one that nobody removed, before the cluster has noticed.
	was := b.kubectl("get", "node", "node-3", "-o", "jsonpath={.metadata.uid}")
	b.cut(b.Servers[2])
	require.NoError(t, b.Servers[2].Wipe())
	b.power(b.Servers[2])
	b.forgetHostKey(b.Servers[2])
	b.installed()
	assert.Equal(t, []string{"node-1", "node-2", "node-3"}, b.ready())
	assert.NotEqual(t, was, b.kubectl("get", "node", "node-3", "-o", "jsonpath={.metadata.uid}"))
	assert.True(t, b.verified().Passed)

	code, out := b.install("--remove", "node-1")
	assert.Equal(t, 2, code)
	assert.Contains(t, out, "node-1 is a control plane; only workers are removed")
}

// forgetHostKey is what the operator does when it knows that a machine was installed anew.
func (b *bench) forgetHostKey(s *nodes.Server) {
	path := b.Path(cluster, "artifacts/known_hosts")
	text, err := os.ReadFile(path)
	require.NoError(b.t, err)
	var kept strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, s.Addr.String()+" ") {
			kept.WriteString(line)
		}
	}
	require.NoError(b.t, os.WriteFile(path, []byte(kept.String()), 0o644))
}

func TestNodesThatCannotBe(t *testing.T) {
	long(t)
	b := newBench(t, "cannot", 3)
	full, other := b.Servers[1], b.Servers[2]

	// A disk that is full, and is not any more.
	b.on(full, "mount -t tmpfs -o size=100m tmpfs /var/lib")
	b.inventory(1, b.Servers[:2]...)
	code, out := b.install("--stall", "20s")
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "MiB are free in its /var/lib, 2048 MiB are needed; free some")
	assert.Equal(t, []string{"node-1"}, b.ready(), "the rest of the cluster was held up")
	b.on(full, "umount /var/lib")
	b.installed()

	// A node of another cluster, and one that dies in the middle.
	b.on(other, `mkdir -p /etc/firstlight; echo '{"cluster":"core","id":"X","label":"node-3"}' >/etc/firstlight/cluster.json`)
	b.inventory(1, b.Servers...)
	code, out = b.install("--stall", "20s")
	assert.Equal(t, 2, code)
	assert.Contains(t, out, "node-3: The node is reached: it belongs to cluster core")
	b.on(other, "rm /etc/firstlight/cluster.json")

	cmd := b.Installer(b.ctx, cluster, "--stall", "60s")
	ended := make(chan struct{})
	require.NoError(t, cmd.Start())
	var failed error
	go func() {
		failed = cmd.Wait()
		close(ended)
	}()
	_, doing := b.upTo([]string{"Container images are put in place"}, ended)
	t.Logf("power cut at %s", doing)
	b.cut(other)
	<-ended
	var exit *exec.ExitError
	require.ErrorAs(t, failed, &exit)
	assert.Equal(t, 1, exit.ExitCode())
	assert.Equal(t, []string{"node-1", "node-2"}, b.ready())
	b.power(other)
	b.installed()
	assert.Equal(t, []string{"node-1", "node-2", "node-3"}, b.ready())

	// The whole rack loses its power.
	b.kubectl("create", "configmap", "kept", "--from-literal=a=b")
	for _, s := range b.Servers {
		b.cut(s)
	}
	for _, s := range b.Servers {
		b.power(s)
	}
	b.installed()
	assert.Equal(t, "b", b.kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.a}"))
}

func TestABareMachineGetsItsPackagesFromTheAppliance(t *testing.T) {
	long(t)
	b := newBench(t, "bare", 1)
	s := b.Servers[0]
	b.on(s, "dpkg --purge --force-depends runc nftables")
	b.inventory(1, s)
	b.installed()
	assert.Equal(t, []string{"node-1"}, b.ready())
	assert.Equal(t, "1\n", b.on(s, `apt-get install --yes jq >/dev/null; echo '{"a":1}' | jq .a`))
}
