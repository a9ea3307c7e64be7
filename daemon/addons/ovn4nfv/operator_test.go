package ovn4nfv

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/addons/ovsdb"
	"firstlight.dev/firstlight/daemon/addons/ovsdb/ovsdbtest"
)

// northboundOwned are tables whose rows live by a reference.
func northboundOwned() map[string]string {
	return map[string]string{switchPortTable: switchTable + "/ports", routerPortTable: routerTable + "/ports"}
}

// operatorTest is an operator with an API server and a database that are in memory.
type operatorTest struct {
	t       *testing.T
	client  *fake.Clientset
	objects *dynamicfake.FakeDynamicClient
	db      *ovsdbtest.Server
	events  *record.FakeRecorder
	stop    context.CancelFunc
	done    chan struct{}
}

func newOperatorTest(t *testing.T) *operatorTest {
	t.Helper()
	c := &operatorTest{
		t: t, client: fake.NewClientset(), db: ovsdbtest.New(t, northboundOwned()), events: record.NewFakeRecorder(99),
		objects: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
			networks: "NetworkList", providers: "ProviderNetworkList", chainings: "NetworkChainingList",
		}),
	}
	c.start()
	t.Cleanup(func() { c.kill() })
	return c
}

func (c *operatorTest) start() {
	ctx, stop := context.WithCancel(context.Background())
	c.stop, c.done = stop, make(chan struct{})
	o := &Operator{
		Client: c.client, Objects: c.objects, Events: c.events, Log: slog.New(slog.DiscardHandler),
		Northbound: func(ctx context.Context) (*ovsdb.Conn, error) { return ovsdb.Dial(ctx, c.db.Address, nil) },
	}
	go func() {
		defer close(c.done)
		_ = o.Run(ctx)
	}()
}

func (c *operatorTest) kill() {
	c.stop()
	<-c.done
}

// apply creates an object of this add-on's kinds.
func (c *operatorTest) apply(kind schema.GroupVersionResource, text string) {
	c.t.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(c.t, yaml.Unmarshal([]byte(text), &o.Object))
	o.SetAPIVersion("k8s.plugin.opnfv.org/v1alpha1")
	o.SetUID(types.UID(o.GetNamespace() + o.GetName()))
	_, err := c.objects.Resource(kind).Namespace(o.GetNamespace()).Create(c.t.Context(), o, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

func (c *operatorTest) pod(namespace, name, annotation string) {
	c.t.Helper()
	_, err := c.client.CoreV1().Pods(namespace).Create(c.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": name},
			Annotations: map[string]string{NetworkKey: annotation},
		},
		Spec: corev1.PodSpec{NodeName: "node"},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

func (c *operatorTest) interfaces(namespace, name string) string {
	pod, err := c.client.CoreV1().Pods(namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	return pod.Annotations[InterfacesKey]
}

func (c *operatorTest) eventually(what string, holds func() bool) {
	c.t.Helper()
	require.Eventually(c.t, holds, 2*time.Minute, 10*time.Millisecond, what)
}

func (c *operatorTest) status(kind schema.GroupVersionResource, namespace, name string) string {
	o, err := c.objects.Resource(kind).Namespace(namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	state, _, _ := unstructured.NestedString(o.Object, "status", "state")
	message, _, _ := unstructured.NestedString(o.Object, "status", "message")
	return state + " " + message
}

// port returns the addresses of a port of OVN.
func (c *operatorTest) port(name string) string {
	return c.db.Column(switchPortTable, "addresses")[name]
}

const privateNetwork = `{kind: Network, metadata: {namespace: default, name: ovn-priv-net}, spec: {cniType: ovn4nfv,
ipv4Subnets: [{subnet: 172.16.44.0/24, name: subnet1, gateway: 172.16.44.1/24}]}}`

const oneInterface = `{"type":"ovn4nfv","interface":[{"name":"ovn-priv-net","interface":"net0"}]}`

func TestNetworksAndPodsBecomeRowsOfOVN(t *testing.T) {
	c := newOperatorTest(t)
	c.apply(networks, privateNetwork)
	c.eventually("created", func() bool { return c.status(networks, "default", "ovn-priv-net") == "Created " })
	assert.Equal(t, map[string]string{"rtos-default_ovn-priv-net": `"0a:58:ac:10:2c:01"`}, c.db.Column(routerPortTable, "mac"))
	assert.Equal(t, map[string]string{"rtos-default_ovn-priv-net": `["set",["172.16.44.1/24"]]`}, c.db.Column(routerPortTable, "networks"))

	c.pod("red", "left", oneInterface)
	c.eventually("left", func() bool { return c.port("red_left_net0") != "" })
	assert.JSONEq(t, `[{"ip_address":["172.16.44.2/24"],"mac_address":"0a:58:ac:10:2c:02","gateway_ip":["172.16.44.1"],
		"defaultGateway":"false","interface":"net0","network":"default/ovn-priv-net"}]`, c.interfaces("red", "left"))
	assert.Equal(t, `["set",["0a:58:ac:10:2c:02 172.16.44.2"]]`, c.port("red_left_net0"))
	assert.Equal(t, `["map",[["iface-id-ver","uid-left"]]]`, c.db.Column(switchPortTable, "options")["red_left_net0"])

	// A pod that waits for its network gets a sentence, and then its interface.
	c.pod("red", "right", `{"type":"ovn4nfv","interface":[{"name":"late","interface":"net0"}]}`)
	assert.Equal(t, "Warning NetworkNotReady interface net0: no Network or ProviderNetwork late is ready in red or default; "+
		"create it, or see its status", <-c.events.Events)
	c.apply(providers, `{kind: ProviderNetwork, metadata: {namespace: red, name: late}, spec: {cniType: ovn4nfv, providerNetType: DIRECT,
direct: {providerInterfaceName: eth1, directNodeSelector: all}, ipv4Subnets: [{subnet: 10.1.0.0/24, name: a}]}}`)
	c.eventually("right", func() bool { return c.port("red_right_net0") == `["set",["0a:58:0a:01:00:01 10.1.0.1"]]` })
	assert.Equal(t, `"localnet"`, c.db.Column(switchPortTable, "type")["localnet_red_late"])
	assert.Equal(t, `["map",[["network_name","red_late"]]]`, c.db.Column(switchPortTable, "options")["localnet_red_late"])

	// What nobody changed is not written again.
	before := c.db.Changes()
	c.pod("red", "other", `{"type":"other"}`)
	assert.Equal(t, `Warning NetworkNotReady annotation k8s.plugin.opnfv.org/nfn-network: type "other" is not ovn4nfv`, <-c.events.Events)
	assert.Equal(t, before, c.db.Changes())

	// A network stays as long as a pod has it.
	require.NoError(t, c.objects.Resource(networks).Namespace("default").Delete(t.Context(), "ovn-priv-net", metav1.DeleteOptions{}))
	require.NoError(t, c.client.CoreV1().Pods("red").Delete(t.Context(), "right", metav1.DeleteOptions{}))
	c.eventually("right is gone", func() bool { return c.port("red_right_net0") == "" })
	assert.NotEmpty(t, c.port("red_left_net0"))
	require.NoError(t, c.client.CoreV1().Pods("red").Delete(t.Context(), "left", metav1.DeleteOptions{}))
	c.eventually("the network is gone", func() bool { return len(c.db.Column(routerTable, "name")) == 0 })
	assert.Equal(t, map[string]string{"red_late": `"red_late"`}, c.db.Column(switchTable, "name"))
}

func TestALostDatabaseIsMadeAgain(t *testing.T) {
	c := newOperatorTest(t)
	c.apply(networks, privateNetwork)
	c.pod("red", "one", oneInterface)
	c.pod("red", "two", oneInterface)
	c.eventually("both", func() bool { return c.port("red_one_net0") != "" && c.port("red_two_net0") != "" })
	one, two := c.port("red_one_net0"), c.port("red_two_net0")
	require.NoError(t, c.client.CoreV1().Pods("red").Delete(t.Context(), "one", metav1.DeleteOptions{}))
	c.eventually("one is gone", func() bool { return c.port("red_one_net0") == "" })

	// The operator is killed, and the database is lost: pods keep what they have, and a new one gets what is free.
	c.kill()
	c.db.Clear()
	c.start()
	c.eventually("two is back", func() bool { return c.port("red_two_net0") == two })
	c.pod("red", "three", oneInterface)
	c.eventually("three", func() bool { return c.port("red_three_net0") != "" })
	assert.Equal(t, one, c.port("red_three_net0"))
}

func TestADatabaseThatRefusesIsAStatus(t *testing.T) {
	c := newOperatorTest(t)
	c.db.Refuse("constraint violation")
	c.apply(networks, privateNetwork)
	c.eventually("pending", func() bool {
		return c.status(networks, "default", "ovn-priv-net") == "Pending OVN's northbound database: database OVN_Northbound: "+
			"constraint violation: by the test"
	})
	c.db.Refuse("")
	c.eventually("created", func() bool { return c.status(networks, "default", "ovn-priv-net") == "Created " })
}

func TestAWrongNetworkBreaksNoOther(t *testing.T) {
	c := newOperatorTest(t)
	c.apply(networks, `{kind: Network, metadata: {namespace: red, name: wrong}, spec: {cniType: ovn4nfv, ipv4Subnets: [{subnet: x, name: a}]}}`)
	c.apply(networks, privateNetwork)
	c.apply(providers, `{kind: ProviderNetwork, metadata: {namespace: default, name: ovn-priv-net}, spec: {cniType: ovn4nfv,
providerNetType: DIRECT, direct: {providerInterfaceName: eth1, directNodeSelector: all}, ipv4Subnets: [{subnet: 10.1.0.0/24, name: a}]}}`)
	c.eventually("all have a status", func() bool {
		return c.status(networks, "default", "ovn-priv-net") == "Created " &&
			c.status(networks, "red", "wrong") == `CreateInternalError spec.ipv4Subnets[0].subnet "x" is no network; write 172.16.33.0/24` &&
			c.status(providers, "default", "ovn-priv-net") == "CreateInternalError a Network has the name default/ovn-priv-net already; give this one another"
	})
	assert.Equal(t, map[string]string{"default_ovn-priv-net": `"default_ovn-priv-net"`}, c.db.Column(switchTable, "name"))
}

func TestAChainRoutesItsPods(t *testing.T) {
	c := newOperatorTest(t)
	routes := func(pod string) string {
		one, err := c.client.CoreV1().Pods("default").Get(t.Context(), pod, metav1.GetOptions{})
		require.NoError(t, err)
		return one.Annotations[label.Routes]
	}
	c.apply(networks, privateNetwork)
	c.apply(chainings, `{kind: NetworkChaining, metadata: {namespace: default, name: chain}, spec: {chainType: Routing, routingSpec: {
namespace: default, networkChain: "app=one,net=ovn-priv-net,app=two",
left: [{networkName: a, gatewayIp: 172.16.44.1, subnet: 10.7.0.0/24}],
right: [{networkName: b, gatewayIp: 172.16.44.9, subnet: 10.8.0.0/24}]}}}`)
	c.pod("default", "one", oneInterface)
	c.eventually("pending", func() bool {
		return c.status(chainings, "default", "chain") == "Pending no pod of namespace default has the label app=two and interfaces of OVN"
	})
	assert.Empty(t, routes("one"))
	c.pod("default", "two", oneInterface)
	c.eventually("created", func() bool { return c.status(chainings, "default", "chain") == "Created " && routes("two") != "" })
	assert.JSONEq(t, `[{"to":"10.7.0.0/24","gateway":"172.16.44.1"},{"to":"0.0.0.0/1","gateway":"172.16.44.3"},
		{"to":"128.0.0.0/1","gateway":"172.16.44.3"}]`, routes("one"))
	assert.JSONEq(t, `[{"to":"10.7.0.0/24","gateway":"172.16.44.2"},{"to":"0.0.0.0/1","gateway":"172.16.44.9"},
		{"to":"128.0.0.0/1","gateway":"172.16.44.9"}]`, routes("two"))

	// Pods of another namespace are their owners'.
	c.apply(chainings, `{kind: NetworkChaining, metadata: {namespace: red, name: chain}, spec: {chainType: Routing, routingSpec: {
namespace: default, networkChain: "app=one", left: [{gatewayIp: 172.16.44.1, subnet: 10.7.0.0/24}],
right: [{gatewayIp: 172.16.44.9, subnet: 10.8.0.0/24}]}}}`)
	c.eventually("refused", func() bool {
		return c.status(chainings, "red", "chain") == "CreateInternalError spec.routingSpec.namespace default is another than the "+
			"chain's own; create the chain there"
	})
	require.NoError(t, c.objects.Resource(chainings).Namespace("default").Delete(t.Context(), "chain", metav1.DeleteOptions{}))
	c.eventually("without routes", func() bool { return routes("one") == "[]" && routes("two") == "[]" })
}
