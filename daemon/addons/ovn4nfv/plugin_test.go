package ovn4nfv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/addons/ovn"
	"firstlight.dev/firstlight/daemon/addons/ovsdb"
	"firstlight.dev/firstlight/daemon/addons/ovsdb/ovsdbtest"
)

// fakeNode records what is done to it.
type fakeNode struct {
	done  []string
	links map[string]string // other end to container
	fail  string            // the deed that fails
}

func (n *fakeNode) do(format string, a ...any) error {
	deed := fmt.Sprintf(format, a...)
	n.done = append(n.done, deed)
	if n.fail != "" && strings.HasPrefix(deed, n.fail) {
		return errors.New("no")
	}
	return nil
}

func (n *fakeNode) Links(container string) (all []string, err error) {
	for link, of := range n.links {
		if of == container {
			all = append(all, link)
		}
	}
	return all, nil
}

func (n *fakeNode) Create(container, namespace string, l Link) error {
	n.links[l.Other] = container
	return n.do("create %s %s %s %d", namespace, l.Name, l.MAC, l.MTU)
}

func (n *fakeNode) Configure(_ string, l Link, keep []netip.Prefix) error {
	return n.do("configure %s %s %s %v", l.Name, l.Address, l.Gateway, keep)
}

func (n *fakeNode) Check(_ string, l Link) error { return n.do("check %s", l.Name) }

func (n *fakeNode) Remove(link string) error {
	delete(n.links, link)
	return nil
}

func (n *fakeNode) Connect(_ context.Context, p Port) error {
	return n.do("connect %s %s %s", p.Name, p.UID, p.Pod)
}

func (n *fakeNode) Disconnect(context.Context, ...string) error { return nil }

func newPluginTest(t *testing.T, annotations map[string]string) (*Plugin, *fakeNode) {
	t.Helper()
	node := &fakeNode{links: map[string]string{}}
	p := &Plugin{Dirs: NodeDirs(t.TempDir()), Node: node}
	require.NoError(t, os.MkdirAll(filepath.Dir(p.Dirs.settings()), 0o700))
	require.NoError(t, os.WriteFile(p.Dirs.settings(), []byte(`{"mtu":1400,"keep":["10.244.0.0/16"]}`), 0o600))
	p.Pod = func(_ context.Context, namespace, name string) (*corev1.Pod, error) {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u", Annotations: annotations}}, nil
	}
	return p, node
}

func pluginCall(conf string) *skel.CmdArgs {
	return &skel.CmdArgs{
		ContainerID: "box", Netns: "/ns", IfName: "net1", StdinData: []byte(conf),
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=red;K8S_POD_NAME=web;K8S_POD_UID=u",
	}
}

func twoInterfaces() map[string]string {
	return map[string]string{NetworkKey: "{}", InterfacesKey: `[
		{"ip_address":["172.16.33.2/24"],"mac_address":"0a:58:ac:10:21:02","gateway_ip":["172.16.33.1"],"defaultGateway":"false","interface":"net2","network":"default/port"},
		{"ip_address":["172.16.44.2/24"],"mac_address":"0a:58:ac:10:2c:02","gateway_ip":["172.16.44.201"],"defaultGateway":"true","interface":"net3","network":"default/private"}]`}
}

func TestAPodGetsItsInterfaces(t *testing.T) {
	p, node := newPluginTest(t, twoInterfaces())
	result, err := p.Add(t.Context(), pluginCall(`{"cniVersion":"0.3.1","type":"ovn4nfvk8s-cni"}`))
	require.NoError(t, err)
	assert.Equal(t, []string{
		"create /ns net2 0a:58:ac:10:21:02 1400", "configure net2 172.16.33.2/24 invalid IP [10.244.0.0/16]", "connect red_web_net2 u red/web",
		"create /ns net3 0a:58:ac:10:2c:02 1400", "configure net3 172.16.44.2/24 172.16.44.201 [10.244.0.0/16]", "connect red_web_net3 u red/web",
	}, node.done)
	older, err := result.GetAsVersion("0.3.1")
	require.NoError(t, err)
	text, err := json.Marshal(older)
	require.NoError(t, err)
	assert.JSONEq(t, `{"cniVersion":"0.3.1","dns":{},"interfaces":[
		{"name":"net2","mac":"0a:58:ac:10:21:02","sandbox":"/ns"},{"name":"net3","mac":"0a:58:ac:10:2c:02","sandbox":"/ns"}],
		"ips":[{"version":"4","interface":0,"address":"172.16.33.2/24"},
		{"version":"4","interface":1,"address":"172.16.44.2/24","gateway":"172.16.44.201"}],
		"routes":[{"dst":"0.0.0.0/0","gw":"172.16.44.201"}]}`, string(text))
	assert.Len(t, node.links, 2)
	require.NoError(t, p.Check(t.Context(), pluginCall(`{}`)))

	require.NoError(t, p.Del(t.Context(), pluginCall(`{}`)))
	assert.Empty(t, node.links)
	require.NoError(t, p.Del(t.Context(), pluginCall(`{}`)), "a second time")
}

func TestADefinitionMayBeOfOneNetwork(t *testing.T) {
	p, node := newPluginTest(t, twoInterfaces())
	_, err := p.Add(t.Context(), pluginCall(`{"cniVersion":"1.0.0","nfn-network":"private"}`))
	require.NoError(t, err)
	assert.Len(t, node.links, 1)
	assert.Contains(t, node.done[0], "net3")
	_, err = p.Add(t.Context(), pluginCall(`{"cniVersion":"1.0.0","nfn-network":"other"}`))
	assert.EqualError(t, err, "nfn-network other is none of the networks that the pod's annotation k8s.plugin.opnfv.org/nfn-network names")
}

func TestWhatCannotBeAttachedLeavesNothing(t *testing.T) {
	p, node := newPluginTest(t, twoInterfaces())
	node.fail = "connect red_web_net3"
	_, err := p.Add(t.Context(), pluginCall(`{"cniVersion":"1.0.0"}`))
	assert.EqualError(t, err, "interface net3 on network default/private: no")
	assert.Empty(t, node.links)
	node.fail = ""
	_, err = p.Add(t.Context(), pluginCall(`{"cniVersion":"1.0.0"}`))
	assert.NoError(t, err)

	p, _ = newPluginTest(t, nil)
	_, err = p.Add(t.Context(), pluginCall(`{"cniVersion":"1.0.0"}`))
	assert.EqualError(t, err, "the pod has no annotation k8s.plugin.opnfv.org/nfn-network; say there which networks it wants")
	other := pluginCall(`{"cniVersion":"1.0.0"}`)
	other.Args = "K8S_POD_NAMESPACE=red;K8S_POD_NAME=web;K8S_POD_UID=v"
	_, err = p.Add(t.Context(), other)
	assert.EqualError(t, err, "it was replaced by another one of that name, with the UID u")
}

// openvswitch is a database of Open vSwitch with br-int.
func openvswitch(t *testing.T) (*ovsdbtest.Server, *ovsdb.Conn) {
	t.Helper()
	s := ovsdbtest.New(t, map[string]string{"Port": "Bridge/ports", "Interface": "Port/interfaces", "Bridge": "Open_vSwitch/bridges"})
	c, err := ovsdb.Dial(t.Context(), s.Address, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = c.Transact(t.Context(), ovn.Database,
		ovsdb.Insert("Bridge", "b", map[string]any{"name": ovn.IntegrationBridge, "datapath_type": "netdev", "ports": ovsdb.Set[string](), "external_ids": ovsdb.Map(nil)}),
		ovsdb.Insert(ovn.Database, "", map[string]any{"bridges": ovsdb.Set(ovsdb.NamedUUID("b")), "next_cfg": 0, "external_ids": ovsdb.Map(map[string]string{"system-id": "n"})}))
	require.NoError(t, err)
	return s, c
}

func TestAPortIsMadeAndTakenAway(t *testing.T) {
	s, c := openvswitch(t)
	for _, link := range []string{"ov1", "ov2"} {
		results, err := c.Transact(t.Context(), ovn.Database, connectOperations(Port{Link: link, Name: "red_web_" + link, UID: "u", MAC: "m", Pod: "red/web"})...)
		require.NoError(t, err)
		assert.Equal(t, 1, results[2].Count)
	}
	assert.Contains(t, s.Column("Interface", "external_ids")["ov1"], `["iface-id","red_web_ov1"]`)
	require.NoError(t, disconnect(t.Context(), c, "ov1", "missing"))
	assert.Equal(t, map[string]string{"ov2": `"ov2"`}, s.Column("Port", "name"))
	assert.Equal(t, map[string]string{"ov2": `"ov2"`}, s.Column("Interface", "name"))
}

func TestBridgesOfProviderNetworks(t *testing.T) {
	s, c := openvswitch(t)
	n, err := ReadProvider("default", "directpnetwork", parseSpec(t, direct))
	require.NoError(t, err)
	write := func(ready []Network, kept map[string]bool) string {
		t.Helper()
		results, err := c.Transact(t.Context(), ovn.Database, ovsdb.Select(ovn.Database, nil), ovsdb.Select("Bridge", nil))
		require.NoError(t, err)
		for _, some := range planBridges(results[0].Rows[0].Map("external_ids")[mappingsKey], results[1].Rows, ready, kept) {
			_, err := c.Transact(t.Context(), ovn.Database, some...)
			require.NoError(t, err)
		}
		results, err = c.Transact(t.Context(), ovn.Database, ovsdb.Select(ovn.Database, nil))
		require.NoError(t, err)
		ids := results[0].Rows[0].Map("external_ids")
		assert.Equal(t, "n", ids["system-id"], "others' settings stay")
		return ids[mappingsKey]
	}

	mapping := "default_directpnetwork:" + bridgeName(n)
	assert.Equal(t, mapping, write([]Network{n}, nil))
	assert.Equal(t, `"eth0.101"`, s.Column("Port", "name")["eth0.101"])
	assert.Equal(t, `"netdev"`, s.Column("Bridge", "datapath_type")[bridgeName(n)], "as br-int's")
	before := s.Changes()
	assert.Equal(t, mapping, write([]Network{n}, nil))
	assert.Equal(t, before, s.Changes(), "a second time")
	assert.Equal(t, mapping, write(nil, map[string]bool{"default_directpnetwork": true}), "a slip of the pen takes no network away")
	assert.Empty(t, write(nil, nil))
	assert.Equal(t, map[string]string{ovn.IntegrationBridge: `"br-int"`}, s.Column("Bridge", "name"))
	assert.Empty(t, s.Column("Interface", "name"))
}

func TestNetworksOfTheClusterAreKept(t *testing.T) {
	own := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	keep, err := addClusterNetworks(own, "networking:\n  podSubnet: 10.244.64.0/18,fd00::/48\n  serviceSubnet: 10.244.0.0/18\n")
	require.NoError(t, err)
	assert.Equal(t, "[192.0.2.0/24 10.244.64.0/18 10.244.0.0/18]", fmt.Sprint(keep))
}
