package workload

import (
	"fmt"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

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
