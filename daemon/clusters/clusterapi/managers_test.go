package clusterapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/freeport"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/image/lab/process"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// patience ends a run that hangs; the machine may be busy.
const patience = 10 * time.Minute

// management is a management cluster: a real API server, some of Kubernetes' controllers, and the managers as processes,
// each with the rights that its manifest gives it.
type management struct {
	t        *testing.T
	api      *sandbox.API
	client   client.Client
	program  string
	dir      string
	managers map[string]*manager
}

type manager struct {
	provider Provider
	args     []string // of its Deployment
	local    []string // its addresses and files in this test
	env      []string
	health   string
	log      string
	child    *process.Child
}

// newManagement applies what the appliance applies. Two things differ: an API server without pods calls webhooks at the
// loopback, and so their certificates are valid for it too.
func newManagement(t *testing.T) *management {
	api := sandbox.APIServer(t)
	require.NoError(t, api.RunControllers(t.Context(),
		"garbage-collector-controller", "clusterrole-aggregation-controller", "namespace-controller"))
	binary, err := sandbox.BuildProgram(t.Context(), "cluster-api")
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", api.Kubeconfig)
	require.NoError(t, err)
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	called := filepath.Join(t.TempDir(), filepath.Base(program)) // as in the managers' images
	require.NoError(t, os.Symlink(binary, called))
	m := &management{t: t, api: api, client: c, program: called, dir: t.TempDir(), managers: map[string]*manager{}}

	authority, err := ca.Open(filepath.Join(m.dir, "ca"), time.Now)
	require.NoError(t, err)
	a := Appliance{Repository: writeRepository(t, m.repository()), CA: authority.PEM(), Certs: map[string]ca.Pair{}}
	urls := map[string]string{}
	for _, p := range Providers() {
		names := p.names()
		names.Addrs = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
		a.Certs[p.Name], _, err = authority.Issue(p.service(), names)
		require.NoError(t, err)
		urls[p.Namespace] = m.prepare(p, a.Certs[p.Name])
	}

	all, err := a.Objects()
	require.NoError(t, err)
	for _, o := range all {
		switch o := o.(type) {
		case *unstructured.Unstructured:
			redirect(t, o, urls)
		case *appsv1.Deployment:
			for _, m := range m.managers {
				if m.provider.Deployment() == o.Name {
					m.args = o.Spec.Template.Spec.Containers[0].Args
				}
			}
		}
	}

	metal3 := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Infrastructure().Namespace}} // there before this stage
	require.NoError(t, c.Create(t.Context(), metal3))
	set, err := apply.New(owner, all...)
	require.NoError(t, err)
	m.until("everything is applied", func() error { return set.Apply(t.Context(), c) })
	require.NoError(t, set.CheckCurrent(t.Context(), c))
	for _, p := range Providers() {
		m.login(m.managers[p.Name])
		m.start(p.Name)
	}
	return m
}

func (m *management) repository() string { return filepath.Join(m.dir, "repository") }

// prepare gives a manager its ports and its certificate, and says where its webhook is.
func (m *management) prepare(p Provider, pair ca.Pair) (url string) {
	dir := filepath.Join(m.dir, p.Name)
	require.NoError(m.t, os.MkdirAll(dir, 0o700))
	require.NoError(m.t, os.WriteFile(filepath.Join(dir, "tls.crt"), pair.Cert, 0o600))
	require.NoError(m.t, os.WriteFile(filepath.Join(dir, "tls.key"), pair.Key, 0o600))
	webhook, health := freePort(m.t), freePort(m.t)
	m.managers[p.Name] = &manager{
		provider: p,
		health:   fmt.Sprintf("127.0.0.1:%d", health),
		log:      filepath.Join(dir, "log"),
		local: []string{
			p.Name,
			"--kubeconfig=" + filepath.Join(dir, "kubeconfig"),
			fmt.Sprintf("--webhook-port=%d", webhook),
			"--webhook-cert-dir=" + dir,
			fmt.Sprintf("--health-addr=127.0.0.1:%d", health),
		},
		env: []string{"POD_NAMESPACE=" + p.Namespace, "POD_NAME=" + p.Name, "POD_UID=" + p.Name, "GOGC=50"},
	}
	return fmt.Sprintf("https://127.0.0.1:%d", webhook)
}

func freePort(t *testing.T) int {
	port, err := freeport.FindTCP()
	require.NoError(t, err)
	return port
}

// redirect replaces the Services that are called by addresses.
func redirect(t *testing.T, u *unstructured.Unstructured, urls map[string]string) {
	to := func(config map[string]any) {
		service, found, _ := unstructured.NestedStringMap(config, "service")
		if !found {
			return
		}
		require.Contains(t, urls, service["namespace"], u.GetName())
		config["url"] = urls[service["namespace"]] + service["path"]
		delete(config, "service")
	}
	if config, found, _ := unstructured.NestedMap(u.Object, "spec", "conversion", "webhook", "clientConfig"); found {
		to(config)
		require.NoError(t, unstructured.SetNestedMap(u.Object, config, "spec", "conversion", "webhook", "clientConfig"))
	}
	if hooks, found, _ := unstructured.NestedSlice(u.Object, "webhooks"); found {
		for _, h := range hooks {
			to(h.(map[string]any)["clientConfig"].(map[string]any))
		}
		require.NoError(t, unstructured.SetNestedSlice(u.Object, hooks, "webhooks"))
	}
}

// login writes a kubeconfig with the token of the manager's own ServiceAccount.
func (m *management) login(one *manager) {
	var accounts corev1.ServiceAccountList
	require.NoError(m.t, m.client.List(m.t.Context(), &accounts, client.InNamespace(one.provider.Namespace)))
	require.Len(m.t, accounts.Items, 1)
	m.writeLogin(&accounts.Items[0], filepath.Join(m.dir, one.provider.Name, "kubeconfig"))
}

// writeLogin writes a kubeconfig with a token of an account.
func (m *management) writeLogin(account *corev1.ServiceAccount, file string) {
	request := &authenticationv1.TokenRequest{}
	require.NoError(m.t, m.client.SubResource("token").Create(m.t.Context(), account, request))
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: manager, user: {token: %q}}]
contexts: [{name: test, context: {cluster: test, user: manager}}]
current-context: test
`, m.api.URL, m.api.CAFile, request.Status.Token)
	require.NoError(m.t, os.WriteFile(file, []byte(text), 0o600))
}

// start starts a manager, and waits until it says that it is ready.
func (m *management) start(name string) {
	one := m.managers[name]
	log, err := os.OpenFile(one.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(m.t, err)
	defer log.Close()

	// Of two flags the last one counts: nothing of this machine is served by a fixed port.
	args := slices.Concat(one.local[:1], one.args, one.local[1:], []string{"--diagnostics-address=0"})
	cmd := exec.Command(m.program, args...)
	cmd.Env = append(os.Environ(), one.env...)
	cmd.Stdout, cmd.Stderr = log, log
	one.child, err = process.Start(cmd)
	require.NoError(m.t, err)
	m.t.Cleanup(func() { m.kill(name) })
	m.until(name+" is ready", func() error {
		response, err := http.Get("http://" + one.health + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
}

// kill ends a manager as a power cut does. One that was killed before stays so.
func (m *management) kill(name string) {
	if one := m.managers[name]; one.child != nil {
		one.child.Kill()
		one.child = nil
	}
}

// restart kills all managers and starts them again.
func (m *management) restart() {
	for _, p := range Providers() {
		m.kill(p.Name)
	}
	for _, p := range Providers() {
		m.start(p.Name)
	}
}

// until waits for a condition. If it does not come, the ends of the managers' logs say why.
func (m *management) until(what string, check func() error) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			logs, _ := filepath.Glob(filepath.Join(m.dir, "*", "log"))
			for _, file := range logs {
				text, _ := os.ReadFile(file)
				m.t.Logf("%s:\n%s", file, text[max(0, len(text)-4000):])
			}
			require.NoError(m.t, err, what)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// kubectl is the real one, with text as its input. Its warnings are part of what it prints only when it fails.
func (m *management) kubectl(text string, args ...string) (string, error) {
	kubernetes, err := sandbox.BuildProgram(m.t.Context(), "kubernetes")
	require.NoError(m.t, err)
	cmd := exec.CommandContext(m.t.Context(), kubernetes, append([]string{"kubectl", "--kubeconfig", m.api.Kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(text)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		out = append(out, complaints.Bytes()...)
	}
	return strings.TrimSpace(string(out)), err
}

// apply is `kubectl apply` of objects that must be accepted.
func (m *management) apply(text string) {
	m.t.Helper()
	out, err := m.kubectl(text, "apply", "-f", "-")
	require.NoError(m.t, err, out)
}

// get is one field of an object, "" if there is none.
func (m *management) get(kind, name, path string) string {
	out, err := m.kubectl("", "get", kind, name, "--ignore-not-found", "-o", "jsonpath={"+path+"}")
	if err != nil {
		return err.Error()
	}
	return out
}

// becomes waits until a field of an object has a value.
func (m *management) becomes(kind, name, path, want string) {
	m.t.Helper()
	m.until(fmt.Sprintf("%s of %s %s", path, kind, name), func() error {
		if got := m.get(kind, name, path); got != want {
			return fmt.Errorf("it is %q and not %q", got, want)
		}
		return nil
	})
}

// clusterctl runs it as on the appliance, and without a way to any network but the API's.
func (m *management) clusterctl(args ...string) string {
	m.t.Helper()
	return m.clusterctlWith(nil, args...)
}

// clusterctlWith is clusterctl with more variables in its environment.
func (m *management) clusterctlWith(variables []string, args ...string) string {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), m.program, append([]string{"clusterctl"}, args...)...)
	nowhere := fmt.Sprintf("http://127.0.0.1:%d", freePort(m.t))
	cmd.Env = []string{
		"HOME=" + m.t.TempDir(), "KUBECONFIG=" + m.api.Kubeconfig, "FIRSTLIGHT_CLUSTER_API=" + m.repository(),
		"HTTP_PROXY=" + nowhere, "HTTPS_PROXY=" + nowhere, "NO_PROXY=127.0.0.1", "PATH=" + os.Getenv("PATH"),
	}
	cmd.Env = append(cmd.Env, variables...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	require.NoError(m.t, err, "clusterctl %s: %s", strings.Join(args, " "), complaints.String())
	return strings.TrimSpace(string(out))
}

// memory is what a process has of memory, in KiB: of its own (Anonymous), and with its share of what others have too (Pss).
func (m *management) memory(name string) (anonymous, pss int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", m.managers[name].child.ID.PID))
	require.NoError(m.t, err)
	for line := range strings.Lines(string(text)) {
		var field string
		var n int
		if _, err := fmt.Sscanf(line, "%s %d kB", &field, &n); err != nil {
			continue
		}
		switch field {
		case "Anonymous:":
			anonymous = n
		case "Pss:":
			pss = n
		}
	}
	return anonymous, pss
}
