package bpa

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/operator"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/clusters/kpa/builtin"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// fixture is a real API with the operator's objects applied, and operators that run against it
// with no more rights than their own.
type fixture struct {
	t                   *testing.T
	api                 client.Client
	config              *rest.Config
	rights              *rest.Config // the operator's
	dir                 string
	kubectl             func(args ...string) string
	program, kubeconfig string
	mu                  sync.Mutex
	warned              []string
}

func newFixture(t *testing.T) *fixture {
	server := sandbox.APIServer(t)
	config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
	require.NoError(t, err)
	config.QPS, config.Burst = 500, 500
	b := &fixture{t: t, config: config, dir: t.TempDir()}
	config.WarningHandler = b
	scheme, err := operator.Scheme()
	require.NoError(t, err)
	b.api, err = client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	program, err := sandbox.BuildProgram(t.Context(), "kubernetes")
	require.NoError(t, err)
	b.program, b.kubeconfig = program, server.Kubeconfig
	b.kubectl = func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), program, append([]string{"kubectl", "--kubeconfig", server.Kubeconfig}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	objects, err := Operator{Site: "rack-7", Proposal: "off", LeaseFile: "/run/x/l", LeaseDir: "/run/x", Agent: "/run/y/ssh.sock"}.Objects()
	require.NoError(t, err)
	set, err := apply.New(owner, objects...)
	require.NoError(t, err)
	var applied error
	if !assert.Eventually(t, func() bool { applied = set.Apply(t.Context(), b.api); return applied == nil }, 2*time.Minute, 100*time.Millisecond) {
		require.NoError(t, applied)
	}
	require.NoError(t, set.CheckCurrent(t.Context(), b.api))
	definition, err := sandbox.HostDefinition(t.Context())
	require.NoError(t, err)
	b.apply(string(definition))
	require.Eventually(t, func() bool { return b.api.List(t.Context(), &metal3api.BareMetalHostList{}) == nil }, time.Minute, 100*time.Millisecond)
	require.NoError(t, b.api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "metal3"}}))
	b.rights = rest.CopyConfig(config)
	b.rights.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + Namespace + ":" + Name, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	return b
}

// HandleWarningHeader hears what the API server warns of.
func (b *fixture) HandleWarningHeader(_ int, _, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.warned = append(b.warned, text)
}

func (b *fixture) apply(text string) {
	b.t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(b.t, yaml.Unmarshal([]byte(text), &u.Object))
	err := b.api.Apply(b.t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("test"), client.ForceOwnership)
	require.NoError(b.t, err)
}

func (b *fixture) host(n int) {
	h := &metal3api.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: fmt.Sprintf("node-%d", n), Labels: map[string]string{label.Verified: "true"}},
		Spec:       metal3api.BareMetalHostSpec{Online: true, BootMACAddress: fmt.Sprintf("52:54:00:00:00:%02x", n)},
	}
	require.NoError(b.t, b.api.Create(b.t.Context(), h))
	h.Status = metal3api.BareMetalHostStatus{OperationalStatus: metal3api.OperationalStatusOK, Provisioning: metal3api.ProvisionStatus{State: metal3api.StateProvisioned}, HardwareDetails: &metal3api.HardwareDetails{
		CPU: metal3api.CPU{Count: 8}, RAMMebibytes: 16384, NIC: []metal3api.NIC{{Name: "eno1", MAC: h.Spec.BootMACAddress, IP: fmt.Sprintf("172.22.0.%d", 10+n)}},
	}}
	require.NoError(b.t, b.api.Status().Update(b.t.Context(), h))
}

// operate runs an operator until the returned function is called, which waits for its end.
func (b *fixture) operate(log string) (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	c := operator.Config{Namespace: Namespace, Dir: b.dir, Installer: "example/installer:1", AddOns: builtin.Names(), Proposal: "off", Elect: true, Metrics: "0", Health: "0"}
	f, err := os.OpenFile(filepath.Join(b.dir, log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(b.t, err)
	go func() { ended <- operator.Run(ctx, b.rights, c, slog.New(slog.NewTextHandler(f, nil))) }()
	return sync.OnceFunc(func() {
		cancel()
		assert.NoError(b.t, <-ended)
		f.Close()
	})
}

func (b *fixture) until(name string, ok func(*v1alpha1.Provisioning) bool) *v1alpha1.Provisioning {
	b.t.Helper()
	p := &v1alpha1.Provisioning{}
	require.Eventually(b.t, func() bool {
		return b.api.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, p) == nil && p.Status.ObservedGeneration == p.Generation && ok(p)
	}, 3*time.Minute, 50*time.Millisecond, "%s: %s", name, &lazy{p})
	return p
}

type lazy struct{ p *v1alpha1.Provisioning }

func (l *lazy) String() string { return l.p.Status.Phase + " " + l.p.Status.Message }

func phaseIs(phase string) func(*v1alpha1.Provisioning) bool {
	return func(p *v1alpha1.Provisioning) bool { return p.Status.Phase == phase }
}

// finish ends the Job of a cluster well, as its controller and an installer would.
func (b *fixture) finish(cluster string) {
	j := &batchv1.Job{}
	require.Eventually(b.t, func() bool {
		return b.api.Get(b.t.Context(), client.ObjectKey{Namespace: Namespace, Name: kud.JobName(cluster)}, j) == nil
	}, time.Minute, 20*time.Millisecond)
	path := filepath.Join(b.dir, cluster, contract.FileKubeconfig)
	require.NoError(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(b.t, os.WriteFile(path, []byte("kubeconfig"), 0o600))
	now := metav1.Now()
	j.Status.StartTime, j.Status.CompletionTime, j.Status.Succeeded = &now, &now, 1
	for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now, LastProbeTime: now, Reason: "Test", Message: "done"})
	}
	require.NoError(b.t, b.api.Status().Update(b.t.Context(), j))
}

func document(name, spec string) string {
	return fmt.Sprintf("{apiVersion: bpa.akraino.org/v1alpha1, kind: Provisioning, metadata: {name: %s, namespace: default, labels: {cluster: %s, owner: c1}}, spec: %s}", name, name, spec)
}

// event waits until a Provisioning has an Event of a reason.
func (b *fixture) event(reason string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		var all eventsv1.EventList
		require.NoError(b.t, b.api.List(b.t.Context(), &all))
		for _, e := range all.Items {
			if e.Reason == reason && e.Regarding.Kind == "Provisioning" {
				return true
			}
		}
		return false
	}, time.Minute, 100*time.Millisecond, "no Event %s", reason)
}

// TestTheOperatorWithItsOwnRights runs the whole operator: watches, leader lock, Events and
// logs, with the rights of its ServiceAccount and no others; two at once, one killed.
func TestTheOperatorWithItsOwnRights(t *testing.T) {
	b := newFixture(t)
	for n := 1; n <= 4; n++ {
		b.host(n)
	}
	stop := b.operate("first.log")
	defer stop()
	b.apply(document("edge", "{masters: [{master-1: {mac-address: '52:54:00:00:00:01'}}], workers: [{worker-1: {cpu: 4, memory: 8Gi}}]}"))
	b.until("edge", phaseIs(v1alpha1.PhaseInstalling))
	second := b.operate("second.log") // waits for the lock
	defer second()
	b.finish("edge")
	b.until("edge", phaseIs(v1alpha1.PhaseReady))
	b.event("Ready") // Events are sent beside the work: one that is on its way ends with its operator
	stop()
	b.apply(document("edge", "{masters: [{master-1: {mac-address: '52:54:00:00:00:01'}}], workers: [{worker-1: {cpu: 4, memory: 8Gi}}, {worker-2: {cpu: 4}}]}"))
	p := b.until("edge", phaseIs(v1alpha1.PhaseChanging))
	assert.Equal(t, "2/3", p.Status.NodesReady, "the second operator did not take over")

	for name, spec := range map[string]string{
		"claimed":     "{masters: [{master-1: {mac-address: '52-54-00-00-00-01'}}], hostfile: /opt/hosts.ini}",
		"typo":        "{masters: [{master-1: {mac-address: <pn4-IF2-mac>}}], workers: [{worker-1: }], KUDPlugins: [emco, bpa]}",
		"too-greedy":  "{masters: [{master-1: {cpu: 4}}], workers: [{worker-1: {cpu: 64, qat: true}}]}",
		"not-cabled":  "{masters: [{master-1: {mac-address: '52:54:00:00:00:99'}}]}",
		"will-be-one": "{masters: [{master-1: {host: node-9}}]}",
	} {
		b.apply(document(name, spec))
	}
	for _, name := range []string{"claimed", "typo", "too-greedy"} {
		b.until(name, phaseIs(v1alpha1.PhaseRefused))
	}
	b.until("not-cabled", phaseIs(v1alpha1.PhaseWaiting))
	b.until("will-be-one", phaseIs(v1alpha1.PhaseWaiting))
	b.mu.Lock()
	assert.Contains(t, strings.Join(b.warned, "\n"), "spec.hostfile is of an older version and does nothing", "nobody was warned at once")
	b.mu.Unlock()
	b.apply("{apiVersion: bpa.akraino.org/v1alpha1, kind: Software, metadata: {name: tools, namespace: default, labels: {cluster: nowhere}}, spec: {masterSoftware: [htop, jq: {version: 1.7.1-6}]}}")
	sw := &v1alpha1.Software{}
	require.Eventually(t, func() bool {
		return b.api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "tools"}, sw) == nil && sw.Status.Phase == v1alpha1.PhaseWaiting
	}, time.Minute, 50*time.Millisecond)
	for _, reason := range []string{"HostClaimed", "InvalidMAC", "NoHostFits", "HostNotFound", "OldField"} {
		b.event(reason)
	}
	t.Log("\n" + b.kubectl("get", "bpa,sw", "-A"))
	const guide = "../../../docs/bpa.md"
	goldentest.CheckTable(t, guide, "get", b.kubectl("get", "bpa,sw", "-A", "-o", "wide"))
	t.Log("\n" + b.kubectl("get", "bmh", "-A"))
	for _, name := range []string{"claimed", "typo", "too-greedy"} {
		out := b.kubectl("describe", "bpa", name)
		t.Log("\n" + out)
		goldentest.CheckTable(t, guide, "describe "+name, excerpt(out))
	}
	// A host that appears is seen without being asked for.
	b.host(9)
	b.until("will-be-one", phaseIs(v1alpha1.PhaseInstalling))
	require.NoError(t, b.api.Delete(t.Context(), &v1alpha1.Provisioning{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "edge"}}))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(b.api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "edge"}, &v1alpha1.Provisioning{}))
	}, 2*time.Minute, 50*time.Millisecond)
	b.until("claimed", phaseIs(v1alpha1.PhaseInstalling))
	second()
	for _, log := range []string{"first.log", "second.log"} {
		text, err := os.ReadFile(filepath.Join(b.dir, log))
		require.NoError(t, err)
		assert.NotContains(t, string(text), "forbidden", "a right is missing")
	}
}

// excerpt is what the page shows of kubectl's description of a resource: neither names, nor conditions, nor times of
// changes, and Events of one second in the order of their names.
func excerpt(description string) string {
	_, spec, _ := strings.Cut(description, "\nSpec:\n")
	spec, status, _ := strings.Cut(spec, "\nStatus:\n")
	_, message, _ := strings.Cut(status, "\n  Message:")
	var lines []string
	for line := range strings.Lines("  Message:" + message) {
		if !changeTime.MatchString(line) {
			lines = append(lines, line)
		}
	}

	if i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "Events:") }); i >= 0 {
		slices.Sort(lines[min(i+3, len(lines)):])
	}
	return "Spec:\n" + spec + "\nStatus:\n  ...\n" + strings.Join(lines, "")
}

var changeTime = regexp.MustCompile(`^ +[A-Za-z ]+: +"?\d{4}-\d\d-\d\dT`)

// TestStagesOnARealAPIServer: the daemon's two stages, as far as they go without a node.
func TestStagesOnARealAPIServer(t *testing.T) {
	b := newFixture(t)
	s := readSite(t, "name: rack-7\nnodes:\n- {name: a, macs: ['52:54:00:00:00:01']}\nclusters:\n- {name: edge, controlPlane: [{node: a}]}\n")
	stages := Stages(func() (Operator, error) {
		return Operator{Site: "rack-7", Proposal: "off", LeaseFile: "/run/x/l", LeaseDir: "/run/x", Agent: "/run/y/ssh.sock", Digest: "other"}, nil
	}, func() []v1alpha1.Provisioning { return Provisionings(s) }, func() (client.Client, error) { return b.api, nil })
	require.Len(t, stages, 2)
	quiet := func(string) {}
	assert.ErrorContains(t, stages[0].Done(t.Context()), "is not as wanted", "another binary is no difference")
	require.NoError(t, stages[0].Do(t.Context(), quiet))
	assert.ErrorContains(t, stages[0].Done(t.Context()), "the pod of bpa-operator to be ready", "nothing runs pods here")
	assert.ErrorContains(t, stages[1].Done(t.Context()), "Provisioning default/edge does not exist")
	require.NoError(t, stages[1].Do(t.Context(), quiet))
	require.NoError(t, stages[1].Done(t.Context()))
	left := metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
		Namespace:   "metal3",
		Name:        "node-1",
		Annotations: map[string]string{label.Installed: "edge@", label.Dirty: "edge: worker-1: it did not answer"},
	}}
	provisionings, err := ListProvisionings(t.Context(), b.api)
	require.NoError(t, err)
	all := StatusOf(provisionings, nil, []metal3api.BareMetalHost{left, {}})
	require.Len(t, all, 1)
	require.Len(t, all[0].Leftovers, 1)
	assert.Equal(t, "metal3/node-1", all[0].Leftovers[0].Host)
	assert.Contains(t, all[0].Leftovers[0].Text, "host metal3/node-1 was taken out of cluster edge without being cleared: worker-1: it did not answer")
	all[0].Leftovers = nil
	text, err := json.Marshal(all)
	require.NoError(t, err)
	assert.JSONEq(t, `[{"name":"edge","state":"new","namespace":"default","kind":"Provisioning"}]`, string(text))
}

// TestTheOperatorReadsNoOtherSecrets asks the real API server what the operator's account may not.
func TestTheOperatorReadsNoOtherSecrets(t *testing.T) {
	b := newFixture(t)
	require.NoError(t, b.api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "alpha"}}))
	for _, s := range []client.ObjectKey{
		{Namespace: "metal3", Name: "n-user-data"}, {Namespace: "metal3", Name: "n-bmc-secret"}, {Namespace: "alpha", Name: "login"},
		{Namespace: "kube-system", Name: "token"}, {Namespace: "default", Name: "login"}, {Namespace: Namespace, Name: kud.KeySecret("edge")},
	} {
		require.NoError(t, b.api.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}))
	}
	objects, err := Operator{Site: "rack-7", Proposal: "off", LeaseFile: "/run/x/l", LeaseDir: "/run/x", Agent: "/run/y/ssh.sock"}.Objects()
	require.NoError(t, err)
	set, err := apply.New(owner, objects...)
	require.NoError(t, err)
	require.NoError(t, set.Apply(t.Context(), b.api))
	host := metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "n"}}
	host.Spec.UserData = &corev1.SecretReference{Name: "n-user-data"}
	granted, err := HostRights([]metal3api.BareMetalHost{host})
	require.NoError(t, err)
	require.NoError(t, granted.Apply(t.Context(), b.api))
	scheme, err := operator.Scheme()
	require.NoError(t, err)
	account, err := client.New(b.rights, client.Options{Scheme: scheme})
	require.NoError(t, err)
	read := func(namespace, name string) error {
		return account.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &corev1.Secret{})
	}
	require.Eventually(t, func() bool { return read("metal3", "n-user-data") == nil }, time.Minute, 50*time.Millisecond)
	assert.NoError(t, read("default", "login"))
	assert.NoError(t, read(Namespace, kud.KeySecret("edge")))
	for _, s := range [][2]string{{"metal3", "n-bmc-secret"}, {"alpha", "login"}, {"kube-system", "token"}} {
		err := read(s[0], s[1])
		assert.True(t, apierrors.IsForbidden(err), "%v: %v", s, err)
	}
	for _, namespace := range []string{"", "metal3", "default", Namespace} {
		err := account.List(t.Context(), &corev1.SecretList{}, client.InNamespace(namespace))
		assert.True(t, apierrors.IsForbidden(err), "list in %q: %v", namespace, err)
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kud-x"}}
	assert.True(t, apierrors.IsForbidden(account.Create(t.Context(), job)), "it makes Jobs where tenants are")

	b.apply(strings.Replace(document("x", "{masters: [{m: {cpu: 1}}]}"), "namespace: default", "namespace: alpha", 1))
	provisionings, err := ListProvisionings(t.Context(), b.api)
	require.NoError(t, err)
	require.NoError(t, GrantNamespaces(t.Context(), b.api, provisionings))
	require.Eventually(t, func() bool { return read("alpha", "login") == nil }, time.Minute, 50*time.Millisecond)
}
