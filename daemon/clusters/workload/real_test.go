package workload

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"firstlight.dev/firstlight/daemon/addons/chain"
	"firstlight.dev/firstlight/daemon/addons/chain/counters"
	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// TestARealAPIServerIsAsked: it answers in its own encoding, and in pages.
func TestARealAPIServerIsAsked(t *testing.T) {
	server := sandbox.APIServer(t)
	config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
	require.NoError(t, err)
	admin, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.CoreV1().Events("default").Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "web.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web"},
		Type:           "Warning",
		Reason:         "BackOff",
		Message:        "Back-off restarting failed container",
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	pod := createPod(t, admin)

	read := func(path string) []byte {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		return text
	}
	file := clientcmdapi.NewConfig()
	file.CurrentContext = "c"
	file.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: read(server.CAFile)}
	file.AuthInfos["u"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: read(server.CertFile),
		ClientKeyData:         read(server.KeyFile),
	}
	file.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	text, err := clientcmd.Write(*file)
	require.NoError(t, err)

	c, err := asker().Ask(t.Context(), text)
	require.NoError(t, err)
	assert.Regexp(t, `^v1\.\d+\.\d+`, c.Version)
	assert.Equal(t, []Node{{Name: "edge-1", State: "Unknown"}}, c.Nodes)
	assert.Len(t, c.Events, 3)
	assert.True(t, slices.ContainsFunc(c.Events, func(e Event) bool { return e.Object == "Pod default/web" }))
	require.Len(t, c.Pods, 1)
	assert.Equal(t, "api", c.Pods[0].Name)

	assert.False(t, c.HasTenants)
	shareByTenants(t, server, text)
	measureAChain(t, admin, text)

	d, err := asker().AskPod(t.Context(), text, PodRef{"team", "api"})
	require.NoError(t, err)
	assert.Equal(t, []Container{{Name: "api", Image: "api:1", State: "Waiting"}}, d.Containers)
	require.Len(t, d.Events, 1)
	assert.Equal(t, string(pod.UID), d.Events[0].Message)
	_, err = asker().AskPod(t.Context(), text, PodRef{"team", "gone"})
	assert.ErrorContains(t, err, "pod team/gone is not there any more")
	_, err = asker().AskLog(t.Context(), text, LogRef{Pod: PodRef{"team", "gone"}, Container: "api"})
	assert.ErrorContains(t, err, "pod team/gone is not there any more")
	_, err = asker().AskLog(t.Context(), text, LogRef{Pod: PodRef{"team", "api"}, Container: "other"})
	assert.ErrorContains(t, err, "container other is not valid for pod api")
}

// shareByTenants makes, changes and removes a Tenant of a real API server as people of the roles, with what the add-on gives.
func shareByTenants(t *testing.T, server *sandbox.API, text []byte) {
	as := func(role string) Asker {
		a := asker()
		a.As = rest.ImpersonationConfig{UserName: "firstlight:ann@laptop", Groups: []string{"firstlight:" + role}}
		return a
	}
	spec := map[string]any{"namespaces": []any{"alpha-dev"}, "quota": map[string]any{"hard": map[string]any{"pods": "50"}}}
	one := TenantSpec{TenantID{Name: "alpha"}, spec}
	assert.ErrorContains(t, as("owner").PutTenant(t.Context(), text, one, true), "install it or bring it up to date")

	kubectl, err := sandbox.BuildProgram(t.Context(), "kubernetes")
	require.NoError(t, err)
	run := func(args ...string) {
		args = append([]string{"kubectl", "--kubeconfig", server.Kubeconfig}, args...)
		out, err := exec.CommandContext(t.Context(), kubectl, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	all, err := os.ReadFile("../kpa/builtin/tenants/tenants.yaml")
	require.NoError(t, err)
	rights := filepath.Join(t.TempDir(), "rights.yaml")
	require.NoError(t, os.WriteFile(rights, []byte(strings.Join(slices.DeleteFunc(strings.Split(string(all), "\n---\n"),
		func(o string) bool { return !strings.Contains(o, "firstlight-tenants-owners") }), "\n---\n")), 0o600))
	run("create", "-f", "../kpa/builtin/tenants/definition.yaml", "-f", rights)
	run("wait", "--for=condition=Established", "crd/tenants.tenant.akraino.org", "--timeout=600s")

	assert.ErrorContains(t, as("operator").PutTenant(t.Context(), text, one, false), "the cluster does not allow it")
	require.Eventually(t, func() bool { return as("owner").PutTenant(t.Context(), text, one, true) == nil }, 10*time.Minute, 100*time.Millisecond)
	_, err = as("owner").ReadTenant(t.Context(), text, "alpha")
	require.ErrorIs(t, err, ErrTenantChanged, "a trial makes nothing")
	require.NoError(t, as("owner").PutTenant(t.Context(), text, one, false))
	assert.ErrorContains(t, as("owner").PutTenant(t.Context(), text, one, false), "already exists")

	is, err := as("owner").ReadTenant(t.Context(), text, "alpha")
	require.NoError(t, err)
	assert.Equal(t, []any{"alpha-dev"}, is.Spec["namespaces"])
	wrong := is
	wrong.Spec = map[string]any{"namespaces": []any{"kube-system"}}
	assert.ErrorContains(t, as("owner").PutTenant(t.Context(), text, wrong, true), "the cluster's own; choose another name")
	wrong.Spec = map[string]any{"namespace": []any{"x"}}
	assert.ErrorContains(t, as("owner").PutTenant(t.Context(), text, wrong, true), `unknown field "spec.namespace"`)

	more := is
	more.Spec = map[string]any{"namespaces": []any{"alpha-dev", "alpha-prod"}, "reclaim": "Delete"}
	require.NoError(t, as("owner").PutTenant(t.Context(), text, more, false))
	assert.ErrorIs(t, as("owner").PutTenant(t.Context(), text, is, false), ErrTenantChanged)
	assert.ErrorIs(t, as("owner").RemoveTenant(t.Context(), text, is.TenantID), ErrTenantChanged)
	c, err := asker().Ask(t.Context(), text)
	require.NoError(t, err)
	require.Len(t, c.Tenants, 1)
	assert.Equal(t, []string{"alpha-dev", "alpha-prod"}, c.Tenants[0].Namespaces)
	assert.True(t, c.HasTenants && c.Tenants[0].Deletes && c.Tenants[0].Isolated && !c.Tenants[0].IsReady)

	assert.Error(t, as("operator").RemoveTenant(t.Context(), text, c.Tenants[0].TenantID))
	require.NoError(t, as("owner").RemoveTenant(t.Context(), text, c.Tenants[0].TenantID))
	c, err = asker().Ask(t.Context(), text)
	require.NoError(t, err)
	assert.Empty(t, c.Tenants)
	require.Eventually(t, func() bool {
		entries, err := audit.Read([]string{server.AuditLog}, time.Time{})
		require.NoError(t, err)
		return slices.ContainsFunc(entries, func(e audit.Entry) bool {
			return e.As == "firstlight:ann@laptop" && e.Verb == "delete" && e.Code == 200 && strings.Contains(e.Object, "tenants")
		})
	}, 10*time.Minute, 100*time.Millisecond, "the cluster's own log names the person")
}

// measureAChain reads what a real generator and a real sink count through the proxy of a real API server, twice.
func measureAChain(t *testing.T, admin kubernetes.Interface, text []byte) {
	all, err := asker().AskChains(t.Context(), text)
	require.NoError(t, err)
	require.Empty(t, all)

	const rate, size = 500, 64
	at, ctx := ownAddress(t), t.Context()
	to := freePort(t, "udp4", at)
	run := func(part string, serve func(listen string) error) {
		listen := freePort(t, "tcp4", at)
		ended := make(chan struct{})
		go func() { defer close(ended); assert.NoError(t, serve(listen.String()), part) }()
		t.Cleanup(func() { <-ended })
		runPart(t, admin, part, listen)
	}
	run("sink", func(listen string) error {
		return (&chain.Sink{At: to.String(), Listen: listen, Interval: time.Minute, Log: slog.New(slog.DiscardHandler)}).Run(ctx)
	})
	run("generator", func(listen string) error {
		return (&chain.Generator{
			To: to.String(), Rate: rate, Size: size, Listen: listen, Interval: time.Minute, Log: slog.New(slog.DiscardHandler),
		}).Run(ctx)
	})

	read := func() (hops []Hop) {
		require.Eventually(t, func() bool {
			all, err := asker().AskChains(t.Context(), text)
			require.NoError(t, err)
			require.Len(t, all, 1)
			hops = all[0].Hops
			return hops[0].Error == "" && hops[2].Counters[counters.ReceivedPackets] > 0
		}, 10*time.Minute, 100*time.Millisecond, "they have just started")
		return hops
	}
	before := read()
	time.Sleep(2 * time.Second)
	after := read()
	for i, names := range map[int][2]string{
		0: {counters.SentPackets, counters.SentBytes}, 2: {counters.ReceivedPackets, counters.ReceivedBytes},
	} {
		r := after[i].RatesSince(before[i])
		t.Logf("%s: %+v", after[i].Part, r)
		require.Empty(t, r.Unknown, after[i].Part)
		assert.Positive(t, r.PerSecond[names[0]], after[i].Part)
		assert.InDelta(t, r.PerSecond[names[0]]*size, r.PerSecond[names[1]], size*rate/10, "each packet has so many bytes")
	}
	assert.Equal(t, "it has no pod", after[1].RatesSince(before[1]).Unknown, "no firewall runs here")
}

// ownAddress is one of this machine where an API server proxies to: it does not to a loopback.
func ownAddress(t *testing.T) netip.Addr {
	all, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr()
		}
	}
	t.Fatal("this machine has no address but its loopback")
	return netip.Addr{}
}

// freePort is a port that nobody has now.
func freePort(t *testing.T, network string, at netip.Addr) netip.AddrPort {
	if network == "udp4" {
		conn, err := net.ListenPacket(network, netip.AddrPortFrom(at, 0).String())
		require.NoError(t, err)
		defer conn.Close()
		return netip.MustParseAddrPort(conn.LocalAddr().String())
	}
	listener, err := net.Listen(network, netip.AddrPortFrom(at, 0).String())
	require.NoError(t, err)
	defer listener.Close()
	return netip.MustParseAddrPort(listener.Addr().String())
}

// runPart has the API server know a part of a chain as a pod that runs.
func runPart(t *testing.T, admin kubernetes.Interface, part string, listen netip.AddrPort) {
	const in = "service-chain"
	_, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: in, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"},
	}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		_, err = admin.CoreV1().ServiceAccounts(in).Create(t.Context(), account, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	pod, err := admin.CoreV1().Pods(in).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: part + "-1", Labels: map[string]string{"app": part}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: part, Image: "x", Ports: []corev1.ContainerPort{{ContainerPort: int32(listen.Port())}},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.PodIP = listen.Addr().String()
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	_, err = admin.CoreV1().Pods(in).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// createPod is a pod that nobody runs, with an event of its own and one of a pod of its name before it.
func createPod(t *testing.T, admin kubernetes.Interface) *corev1.Pod {
	const team = "team"
	_, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: team, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err = admin.CoreV1().ServiceAccounts(team).Create(t.Context(), account, metav1.CreateOptions{})
	require.NoError(t, err)
	pod, err := admin.CoreV1().Pods(team).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "api"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "api", Image: "api:1"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	for i, uid := range []types.UID{pod.UID, "of-one-before-it"} {
		_, err = admin.CoreV1().Events(team).Create(t.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprint("api.", i)},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: team, Name: "api", UID: uid},
			Reason:         "Created",
			Message:        string(uid),
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return pod
}
