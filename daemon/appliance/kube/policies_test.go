package kube_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// pod is one that a tenant might make; change takes away what keeps it within the standard "restricted".
func pod(name string, change func(*corev1.PodSpec)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		AutomountServiceAccountToken: ptr.To(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](1000),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{Name: "c", Image: "x", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}},
	}}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

// TestPoliciesOfARealAPIServer: whom it answers, which pods it admits and what it writes down.
func TestPoliciesOfARealAPIServer(t *testing.T) {
	server := sandbox.APIServer(t)
	config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
	require.NoError(t, err)
	admin, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)

	t.Run("without credentials", func(t *testing.T) {
		anybody := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		ask := func(path string) (int, string) {
			r, err := anybody.Get(server.URL + path)
			require.NoError(t, err, path)
			defer r.Body.Close()
			text, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			return r.StatusCode, string(text)
		}
		for _, path := range []string{"/livez", "/readyz", "/healthz", "/version"} { // the kubelet's probes among them
			code, text := ask(path)
			assert.Equal(t, http.StatusOK, code, "%s: %s", path, text)
		}
		for _, path := range []string{"/", "/api", "/apis", "/openapi/v2", "/metrics", "/readyz/etcd", "/api/v1/namespaces/kube-public/configmaps/cluster-info"} {
			code, _ := ask(path)
			assert.Equal(t, http.StatusUnauthorized, code, path)
		}
	})

	for _, name := range []string{"alpha", "metal3", "bpa", "artifacts"} {
		_, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	harms := map[string]func(*corev1.PodSpec){
		"privileged": func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext.Privileged, s.Containers[0].SecurityContext.AllowPrivilegeEscalation = ptr.To(true), nil
		},
		"host-network": func(s *corev1.PodSpec) { s.HostNetwork = true },
		"host-path": func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/firstlight"}}}}
		},
		"root": func(s *corev1.PodSpec) { s.SecurityContext.RunAsUser = ptr.To[int64](0) },
		"capabilities": func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
		},
		"host-pid": func(s *corev1.PodSpec) { s.HostPID = true },
	}
	t.Run("pods", func(t *testing.T) {
		create := func(namespace string, p *corev1.Pod) error {
			_, err := admin.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
			return err
		}
		for _, namespace := range []string{"alpha", "default"} {
			assert.NoError(t, create(namespace, pod("harmless", nil)), namespace)
			for name, harm := range harms {
				err := create(namespace, pod(name, harm))
				assert.True(t, apierrors.IsForbidden(err), "%s in %s: %v", name, namespace, err)
				assert.ErrorContains(t, err, "violates PodSecurity", name)
			}
		}
		for _, namespace := range []string{"metal3", "bpa", "artifacts", "kube-system"} {
			assert.NoError(t, create(namespace, pod("host-network", harms["host-network"])), namespace)
		}
	})

	t.Run("audit", func(t *testing.T) {
		_, err := admin.RbacV1().RoleBindings("alpha").Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "readers"}, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: "mallory"}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		const value = "correct horse battery staple"
		_, err = admin.CoreV1().Secrets("alpha").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "login"}, StringData: map[string]string{"password": value}}, metav1.CreateOptions{})
		require.NoError(t, err)
		as := rest.CopyConfig(config)
		as.CertFile, as.KeyFile = server.OwnerCert, server.OwnerKey // what the daemon's own user reads is left out
		as.Impersonate = rest.ImpersonationConfig{UserName: "mallory", Groups: []string{"system:authenticated"}}
		mallory, err := kubernetes.NewForConfig(as)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, err := mallory.CoreV1().Secrets("alpha").Get(t.Context(), "login", metav1.GetOptions{})
			return err == nil
		}, time.Minute, 50*time.Millisecond)
		_, err = mallory.CoreV1().Secrets("metal3").List(t.Context(), metav1.ListOptions{})
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		_, err = mallory.CoreV1().ConfigMaps("alpha").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)

		var log string
		line := func(parts ...string) bool {
			for l := range strings.Lines(log) {
				all := true
				for _, p := range parts {
					all = all && strings.Contains(l, p)
				}
				if all {
					return true
				}
			}
			return false
		}
		wanted := [][]string{
			{`"verb":"get"`, `"impersonatedUser":{"username":"mallory"`, `"resource":"secrets","namespace":"alpha","name":"login"`},
			{`"verb":"list"`, "mallory", `"namespace":"metal3"`, `"code":403`},
			{`"verb":"create"`, `"resource":"rolebindings"`, `"readers"`},
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		for ctx.Err() == nil {
			text, _ := os.ReadFile(server.AuditLog)
			if log = string(text); line(wanted[0]...) && line(wanted[1]...) && line(wanted[2]...) {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		for _, w := range wanted {
			assert.True(t, line(w...), "nothing was written of %v", w)
		}
		assert.NotContains(t, log, value, "a secret is in the log")
		assert.NotContains(t, log, "requestObject")
		assert.False(t, line(`"resource":"configmaps"`, "mallory"), "who reads what is no secret is written down")
		assert.False(t, line("/readyz"), "probes are written down")

		entries, err := audit.Read([]string{server.AuditLog}, time.Time{})
		require.NoError(t, err)
		assert.True(t, slices.ContainsFunc(entries, func(e audit.Entry) bool {
			return e.As == "mallory" && e.Verb == "list" && e.Object == "metal3/secrets" && e.Code == http.StatusForbidden &&
				e.Program == "kube.test" && e.From == "127.0.0.1" && e.Reason != ""
		}), "%+v", entries)
		t.Logf("%d requests, %d bytes each", len(entries), len(log)/len(entries))
	})
}
