package nodes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/manifest"
)

// TestAuthoritiesOfAClusterAreReplaced: while somebody asks a Service all the time, a cluster gets other authorities. The
// installer is killed in the middle. What was handed out before works until the former ones are dropped, and not after.
func TestAuthoritiesOfAClusterAreReplaced(t *testing.T) {
	long(t)
	b := newBench(t, "rotate", 2)
	b.inventory(1, b.Servers...)
	b.installed()
	b.applyToCluster(fmt.Sprintf(twoWebPods, manifest.NodeImage))
	b.kubectl("rollout", "status", "deployment/web", "--timeout=5m")
	first := b.Servers[0]
	b.on(first, "apt-get -qq update; apt-get -qq install --yes curl >/dev/null")
	before := b.handedOut()
	const pods = `jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.status.containerStatuses[*].restartCount}{"\n"}{end}`
	running := b.kubectl("get", "pods", "-o", pods)
	system := b.kubectl("get", "pods", "-n", "kube-system", "-l", "k8s-app", "-o", pods)
	client := b.startClient(first, b.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"))

	cmd := b.Installer(b.ctx, cluster, "--rotate-authorities", "november")
	ended := make(chan struct{})
	require.NoError(t, cmd.Start())
	go func() {
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	_, doing := b.upTo([]string{"The next authorities sign"}, ended)
	require.NotEmpty(t, doing, "it ended before")
	_ = cmd.Process.Kill()
	_, err := b.Appliance.Run(b.ctx, "pkill", "-KILL", "-f", "^firstlightd installer")
	t.Logf("killed at %s (%v)", doing, err)
	<-ended
	b.installed("--rotate-authorities", "november")
	assert.Contains(t, b.file("artifacts/rotation.json"), `"stage":"signed"`)

	after := b.handedOut()
	assert.NotEqual(t, before.authority, after.authority)
	assert.Contains(t, before.ask(b), "Forbidden", "the kubeconfig of before is the administrator's")
	assert.Contains(t, after.ask(b), "node/node-1")
	for _, token := range []string{before.token, after.token} {
		assert.Contains(t, b.askByToken(before, token), "system:serviceaccount:default:default",
			"a pod of before, or the token of one, is refused")
	}

	b.installed("--rotate-authorities", "november") // not by now
	assert.Equal(t, after, b.handedOut().with(after.token))
	b.installed("--rotate-authorities", "november", "--settle", "0s")
	assert.Contains(t, b.file("artifacts/rotation.json"), `"stage":"done"`)
	assert.Contains(t, before.ask(b), "Unauthorized")
	assert.Contains(t, after.ask(b), "node/node-1", "the kubeconfig was replaced twice")
	assert.Contains(t, b.askByToken(before, before.token), "Unauthorized")
	assert.Contains(t, b.askByToken(before, after.token), "system:serviceaccount:default:default",
		"a pod that knows the former authority alone does not reach the API server")
	b.installed("--rotate-authorities", "november") // nothing is left to do

	asked, failed := client()
	t.Logf("the Service was asked %d times, and did not answer %d times", asked, failed)
	assert.Greater(t, asked, 50, "it was not asked all the time")
	assert.Zero(t, failed)
	assert.Equal(t, running, b.kubectl("get", "pods", "-o", pods), "a pod ended")
	assert.Equal(t, system, b.kubectl("get", "pods", "-n", "kube-system", "-l", "k8s-app", "-o", pods), "a pod ended")
	for _, s := range b.Servers {
		assert.Equal(t, "1\n", b.on(s, "grep -c BEGIN /etc/kubernetes/pki/ca.crt"))
		b.on(s, "openssl verify -CAfile /etc/kubernetes/pki/ca.crt /var/lib/kubelet/pki/kubelet-client-current.pem")
	}
	b.on(first, `cd /etc/kubernetes/pki; if grep PRIVATE firstlight-rotation.json; then exit 1; fi
for pair in ca:apiserver-kubelet-client ca:apiserver front-proxy-ca:front-proxy-client etcd/ca:etcd/server etcd/ca:etcd/peer etcd/ca:apiserver-etcd-client; do
	openssl verify -CAfile ${pair%%:*}.crt ${pair#*:}.crt
done`)

	b.installed()
	assert.Equal(t, []string{"node-1", "node-2"}, b.ready())
	assert.True(t, b.verified().Passed)
}

// access is what somebody was given at some moment: a kubeconfig, an authority, and the token of a service account.
type access struct{ kubeconfig, authority, token string }

// handedOut is what is given out now.
func (b *bench) handedOut() access {
	b.t.Helper()
	return access{
		kubeconfig: b.file("artifacts/admin.conf"),
		authority:  b.on(b.Servers[0], "cat /etc/kubernetes/pki/ca.crt"),
		token:      strings.TrimSpace(b.kubectl("create", "token", "default")),
	}
}

func (a access) with(token string) access { a.token = token; return a }

// ask asks the cluster for a node by the kubeconfig, and returns the answer or the refusal.
func (a access) ask(b *bench) string {
	b.t.Helper()
	const path = "/root/asked.conf"
	require.NoError(b.t, b.Appliance.WriteFile(path, []byte(a.kubeconfig), 0o600))
	out, err := b.Appliance.Command(b.ctx, "kubectl", "--kubeconfig", path, "get", "node", "node-1", "-o", "name").CombinedOutput()
	b.t.Logf("%s(%v)", out, err)
	return string(out)
}

// askByToken asks the API server who somebody is, as a pod would that knows the authority of an access alone.
func (b *bench) askByToken(a access, token string) string {
	b.t.Helper()
	s := b.Servers[0]
	require.NoError(b.t, s.WriteFile("/root/asked.crt", []byte(a.authority), 0o644))
	const text = `curl --silent --show-error --cacert /root/asked.crt --header 'Authorization: Bearer %s' --json '{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}' https://%s:6443/apis/authentication.k8s.io/v1/selfsubjectreviews`
	return b.on(s, fmt.Sprintf(text, token, s.Addr))
}
