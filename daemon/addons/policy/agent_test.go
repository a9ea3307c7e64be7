package policy

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/knftables"

	"firstlight.dev/firstlight/assets/goldentest"
)

// TestRulesOfAPlan shows what nft is given.
func TestRulesOfAPlan(t *testing.T) {
	s := stateOf(t, "n1", policyOf(`{podSelector: {}, policyTypes: [Ingress, Egress], ingress: [
{from: [{namespaceSelector: {matchLabels: {team: b}}}, {ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.128/25]}}], ports: [{port: http}, {port: 90, endPort: 99}, {protocol: UDP}]},
{from: [{podSelector: {}}]}], egress: [{ports: [{port: http}, {port: 53, protocol: UDP}]}]}`))
	starts := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "starts"}}
	starts.Spec.NodeName = "n1"
	s.Pods = append(s.Pods, starts)
	nft := knftables.NewFake(knftables.InetFamily, TableName)
	tx := nft.NewTransaction()
	NewPlan(s).write(tx)
	require.NoError(t, nft.Run(t.Context(), tx))
	goldentest.Check(t, "testdata/rules.nft", tx.String())
}

// cluster is an API server and a node's tables that do not exist.
type cluster struct {
	t      *testing.T
	client *fake.Clientset
	nft    *knftables.Fake
	events *record.FakeRecorder
	addr   string
}

func newCluster(t *testing.T) *cluster {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}}}
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Name}}
	objects := []runtime.Object{n, d}
	for _, o := range read[*corev1.Namespace](t, clusterNamespaces) {
		objects = append(objects, o)
	}
	for _, o := range read[*corev1.Pod](t, clusterPods) {
		objects = append(objects, o)
	}
	return &cluster{
		t: t, client: fake.NewClientset(objects...), nft: knftables.NewFake(knftables.InetFamily, TableName), events: record.NewFakeRecorder(9),
	}
}

// run starts an agent. What it returns ends it, and waits for that.
func (c *cluster) run() (stop func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(c.t, err)
	c.addr = l.Addr().String()
	require.NoError(c.t, l.Close())
	a := Agent{
		Node:   "n1",
		Health: c.addr,
		Client: c.client,
		Table:  &Table{nft: c.nft, list: func(context.Context) (string, error) { return "", nil }},
		Events: c.events,
		Log:    slog.New(slog.NewTextHandler(c.t.Output(), nil)),
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(c.t, <-ended)
	}
}

// await waits until the table has a text, or has it no more.
func (c *cluster) await(text string, want bool) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return c.healthy() && strings.Contains(c.nft.Dump(), text) == want }, 2*time.Minute, 20*time.Millisecond, text)
}

func (c *cluster) healthy() bool {
	r, err := http.Get("http://" + c.addr)
	if err != nil {
		return false
	}
	return r.Body.Close() == nil && r.StatusCode == http.StatusOK
}

// TestAgentFollowsTheCluster: policies and pods come and go, and so does the agent.
func TestAgentFollowsTheCluster(t *testing.T) {
	c := newCluster(t)
	policies := c.client.NetworkingV1().NetworkPolicies("shop")
	stop := c.run()
	c.await("chain inet firstlight-policy ingress ", true)
	assert.NotContains(t, c.nft.Dump(), "ingress-1")

	p := read[*networkingv1.NetworkPolicy](t, policyOf("{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}, {from: [{ipBlock: {cidr: x}}]}]}"))[0]
	p.UID = "p"
	_, err := policies.Create(t.Context(), p, metav1.CreateOptions{})
	require.NoError(t, err)
	c.await(`comment "shop/web"`, true)
	assert.Equal(t, `Warning NotEnforced spec.ingress[1].from[0].ipBlock.cidr: "x" is no range of addresses; write ADDRESS/BITS; this part allows nothing`, <-c.events.Events)

	pod, err := c.client.CoreV1().Pods("shop").Get(t.Context(), "db", metav1.GetOptions{})
	require.NoError(t, err)
	pod.Status.PodIP, pod.Status.PodIPs = "10.244.1.77", nil
	_, err = c.client.CoreV1().Pods("shop").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	c.await("10.244.1.77", true)
	assert.Empty(t, c.events.Events, "a sentence is said once")

	// One that starts again: the table of before is there until it knows more.
	stop()
	assert.Contains(t, c.nft.Dump(), `comment "shop/web"`)
	require.NoError(t, policies.Delete(t.Context(), "p", metav1.DeleteOptions{}))
	stop = c.run()
	c.await(`comment "shop/web"`, false)

	// With the add-on its table goes.
	require.NoError(t, c.client.AppsV1().DaemonSets(Namespace).Delete(t.Context(), Name, metav1.DeleteOptions{}))
	stop()
	assert.Empty(t, c.nft.Dump())
}

// TestUnimportantChangesAreNone: a heartbeat of a node or a restart of a container makes no new table.
func TestUnimportantChangesAreNone(t *testing.T) {
	pod := read[*corev1.Pod](t, clusterPods)[0]
	trimmed := func(o *corev1.Pod) any {
		small, err := trim(o)
		require.NoError(t, err)
		return small
	}
	next := pod.DeepCopy()
	next.ResourceVersion, next.Annotations, next.Status.Message = "7", map[string]string{"a": "b"}, "x"
	assert.True(t, isSame(trimmed(pod), trimmed(next)))
	assert.Equal(t, "7", trimmed(next).(*corev1.Pod).ResourceVersion)
	for _, change := range []func(*corev1.Pod){
		func(p *corev1.Pod) { p.Labels["app"] = "other" },
		func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		func(p *corev1.Pod) { p.Status.PodIPs = p.Status.PodIPs[:1] },
		func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} },
	} {
		next := pod.DeepCopy()
		change(next)
		assert.False(t, isSame(trimmed(pod), trimmed(next)))
	}
}
