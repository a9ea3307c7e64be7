package sandbox_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rotationTimeout only ends a test that hangs: the control plane starts again three times.
const rotationTimeout = time.Hour

// TestAnApplianceNoticesNoRotationOfKubernetes: everything that signs in the appliance's Kubernetes is replaced while it
// works. The control plane starts again in each stage, and no other pod does; kube-proxy, which has read the former
// authority when it started, follows the API to the end; what the former ones signed is refused then.
func TestAnApplianceNoticesNoRotationOfKubernetes(t *testing.T) {
	b := newCold(t, "authorities")
	ctx, cancel := context.WithTimeout(t.Context(), rotationTimeout)
	t.Cleanup(cancel)
	b.ctx = ctx
	b.power()
	b.ready()
	b.write("before")
	b.run("cp", "-a", "/etc/kubernetes/pki", "/tmp/former")
	token := strings.TrimSpace(b.run("kubectl", "create", "token", "default", "--duration=48h"))
	pods := b.otherPods()
	t.Log(pods)

	t.Log(b.run("firstlightd", "rotate", "kubernetes"))
	b.inEffect("is there and signs nothing yet, until")
	b.served("trusted")
	b.kubectlAs(token) // the former ones are good still
	assert.Equal(t, pods, b.otherPods())

	b.dateBack("next.json")
	b.exists("former.json", true)
	b.run("systemctl", "kill", "--signal=SIGKILL", "firstlightd")
	b.inEffect("signs, and the former one is trusted still, until")
	b.exists("next.json", false)
	b.served("signed")
	b.kubectlAs(token)
	b.proxied("signed")
	assert.Equal(t, pods, b.otherPods())
	assert.Equal(t, 2, strings.Count(b.run("kubectl", "get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data}"), "BEGIN CERTIFICATE"))

	b.dateBack("former.json")
	b.exists("former.json", false)
	b.eventually("what the former authority signed is refused", func() bool {
		return strings.Contains(b.kubectlFormer("--client-certificate=/tmp/former/admin.crt", "--client-key=/tmp/former/admin.key"), "must be logged in")
	})
	b.eventually("what the former key signed is refused", func() bool {
		return strings.Contains(b.kubectlFormer("--token="+token), "must be logged in")
	})
	b.ready()
	b.served("dropped")
	b.proxied("dropped")
	b.holds("before")
	assert.Equal(t, pods, b.otherPods())
	assert.Equal(t, 1, strings.Count(b.run("cat", "/etc/kubernetes/pki/ca.crt"), "BEGIN CERTIFICATE"))
	b.noRotation()
}

// otherPods are the pods that are no part of the control plane, and how often they were started.
func (b *box) otherPods() string {
	b.t.Helper()
	return b.run("kubectl", "get", "pods", "--namespace=kube-system", "--selector=tier!=control-plane", "--output=jsonpath="+
		`{range .items[*]}{.metadata.name} {.metadata.uid} {.status.containerStatuses[0].restartCount}{"\n"}{end}`)
}

func (b *box) eventually(what string, holds func() bool) {
	b.t.Helper()
	began := time.Now()
	for !holds() {
		require.NoError(b.t, b.ctx.Err(), what)
		time.Sleep(time.Second)
	}
	b.t.Logf("%s: after %s", what, time.Since(began).Round(time.Second))
}

// inEffect waits until the status says that a stage is in effect, and waits for nobody.
func (b *box) inEffect(note string) {
	b.t.Helper()
	b.eventually(note, func() bool {
		d, err := b.appliance.Status(b.ctx)
		return err == nil && strings.Contains(strings.Join(d.Notes, "\n"), "authority of the appliance's Kubernetes "+note)
	})
}

func (b *box) noRotation() {
	b.t.Helper()
	b.eventually("the status says nothing of a rotation", func() bool {
		d, err := b.appliance.Status(b.ctx)
		return err == nil && !strings.Contains(strings.Join(d.Notes, "\n"), "authority of the appliance's Kubernetes")
	})
}

// dateBack lets a stage have begun days ago.
func (b *box) dateBack(file string) { b.run("touch", "-d", "3 days ago", "/etc/kubernetes/pki/"+file) }

func (b *box) exists(file string, want bool) {
	b.t.Helper()
	path := b.appliance.DataPath("/etc/kubernetes/pki/" + file)
	b.eventually(file, func() bool { _, err := os.Stat(path); return (err == nil) == want })
}

// kubectlFormer asks the API server as a client of before does, which trusts the former authority alone.
func (b *box) kubectlFormer(credentials ...string) string {
	args := append([]string{"--kubeconfig=/dev/null", "--server=https://172.22.0.1:6443", "--request-timeout=20s",
		"--certificate-authority=/tmp/former/ca.crt"}, credentials...)
	out, err := b.appliance.Run(b.ctx, "kubectl", append(args, "get", "--raw", "/api/v1/namespaces/default")...)
	if err != nil {
		return out + err.Error()
	}
	return out
}

// kubectlAs waits until a token is taken: who may do nothing is Forbidden.
func (b *box) kubectlAs(token string) {
	b.t.Helper()
	b.eventually("a token of before is taken", func() bool { return strings.Contains(b.kubectlFormer("--token="+token), "orbidden") })
}

// proxied waits until kube-proxy has rules for a Service that is made now.
func (b *box) proxied(name string) {
	b.t.Helper()
	b.run("kubectl", "create", "service", "clusterip", name, "--tcp=80")
	b.eventually("kube-proxy follows", func() bool {
		out, err := b.appliance.Run(b.ctx, "nft", "list", "ruleset")
		return err == nil && strings.Contains(out, "default/"+name)
	})
}
