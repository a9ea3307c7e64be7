package multus

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheAnnotationHasTwoNotations(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                  nil,
		"macvlan-conf":                      {"blue/macvlan-conf net1"},
		"a,b":                               {"blue/a net1", "blue/b net2"},
		" a , red/b@data ":                  {"blue/a net1", "red/b data"},
		"a,a":                               {"blue/a net1", "blue/a net2"},
		`[]`:                                nil,
		`[{"name":"a"}]`:                    {"blue/a net1"},
		`[{"name":"a","interface":"data"}]`: {"blue/a data"},
		"\n[{\"name\":\"a\"},{\"name\":\"b\", \"namespace\":\"red\", \"unknown\": 1}]\n": {"blue/a net1", "red/b net2"},
	} {
		all, err := ParseNetworks(text, "blue", "eth0")
		require.NoError(t, err, text)
		var got []string
		for _, s := range all {
			got = append(got, s.String()+" "+s.Interface)
		}
		assert.Equal(t, want, got, text)
	}
}

func TestAnAnnotationAsksForMore(t *testing.T) {
	all, err := ParseNetworks(`[{"name":"a","ips":["10.1.1.7/24","fd00::7"],"mac":"02:00:00:00:00:07","deviceID":"0000:01:10.0",
		"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"UDP"},{"hostPort":1,"containerPort":2}],
		"bandwidth":{"ingressRate":1000,"ingressBurst":2000},"default-route":["10.1.1.1"],"cni-args":{"x":1}}]`, "blue", "eth0")
	require.NoError(t, err)
	assert.Equal(t, map[string]any{
		"ips": []string{"10.1.1.7/24", "fd00::7"}, "mac": "02:00:00:00:00:07", "deviceID": "0000:01:10.0",
		"portMappings": []PortMapping{{HostPort: 8080, ContainerPort: 80, Protocol: "udp"}, {HostPort: 1, ContainerPort: 2, Protocol: "tcp"}},
		"bandwidth":    Bandwidth{IngressRate: 1000, IngressBurst: 2000},
	}, all[0].capabilities())
	assert.Equal(t, []string{"10.1.1.1"}, all[0].DefaultRoute)
	assert.Equal(t, map[string]any{"x": 1.0}, all[0].CNIArgs)
}

func TestAWrongAnnotationIsOneSentence(t *testing.T) {
	const at = "annotation k8s.v1.cni.cncf.io/networks: "
	for text, want := range map[string]string{
		"a,,b":                       at + "network 2: it has no name",
		"a@":                         at + `network 1: interface "@" cannot be; a name has up to 15 characters without blanks, '/' and ':'`,
		"/a":                         at + `network 1: namespace "/" cannot be; write [NAMESPACE/]NAME[@INTERFACE]`,
		"a/b/c":                      at + `network 1: name "b/c" is no object's; write [NAMESPACE/]NAME[@INTERFACE]`,
		"A":                          at + `network 1: name "A" is no object's; write [NAMESPACE/]NAME[@INTERFACE]`,
		"a@eth0":                     at + "network blue/a: interface eth0 is in use; give it another name",
		"a@net2,b":                   at + "network blue/b: interface net2 is in use; give it another name",
		"a@lo":                       at + "network blue/a: interface lo is in use; give it another name",
		"a@sixteen-letters-":         at + `network 1: interface "sixteen-letters-" cannot be; a name has up to 15 characters without blanks, '/' and ':'`,
		`[{"name":"a","ips":["x"]}]`: at + `network 1: ips: "x" is no address; write 192.0.2.7/24`,
		`[{"name":"a","mac":"7"}]`:   at + `network 1: mac: "7" is no MAC; write 02:00:00:00:00:07`,
		`[{"name":"a","default-route":["10.0.0.0/8"]}]`:                                   at + `network 1: default-route: "10.0.0.0/8" is no address of a gateway`,
		`[{"name":"a","portMappings":[{"hostPort":0,"containerPort":80}]}]`:               at + "network 1: portMappings: 0 to 80: ports are from 1 to 65535",
		`[{"name":"a","portMappings":[{"hostPort":1,"containerPort":1,"protocol":"x"}]}]`: at + `network 1: portMappings: protocol "x" is none of tcp, udp and sctp`,
		`[{"name":"a","bandwidth":{"egressRate":-1}}]`:                                    at + "network 1: bandwidth: a rate or burst is negative",
		`[{"namespace":"a"}]`: at + "network 1: it has no name",
		`[{"name":7}]`:        at + "read the list: json: cannot unmarshal number into Go struct field Selection.name of type string",
		`[{"name":"a"}`:       at + "read the list: unexpected end of JSON input",
	} {
		_, err := ParseNetworks(text, "blue", "eth0")
		assert.EqualError(t, err, want, text)
	}
}

func TestADefaultNetworkIsOne(t *testing.T) {
	s, err := ParseDefaultNetwork("a")
	require.NoError(t, err)
	assert.Equal(t, "kube-system/a", s.String())
	_, err = ParseDefaultNetwork("a,b")
	assert.EqualError(t, err, "annotation v1.multus-cni.io/default-network: it has 2 networks; a pod has one default network")
}

func FuzzNetworks(f *testing.F) {
	for _, text := range []string{"a", "a/b@c,d", `[{"name":"a","ips":["10.0.0.1"]}]`, "@", "/", "[", ","} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ParseNetworks(text, "blue", "eth0")
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, s := range all {
			assert.NotEmpty(t, s.Name)
			assert.NotEmpty(t, s.Namespace)
			assert.False(t, seen[s.Interface], s.Interface)
			seen[s.Interface] = true
		}
	})
}

func TestNamespacesCanBeIsolated(t *testing.T) {
	open, closed := Conf{}, Conf{Isolation: true, GlobalNamespaces: "default, shared"}
	assert.NoError(t, open.checkNamespace("blue", "red"))
	assert.NoError(t, closed.checkNamespace("blue", "blue"))
	assert.NoError(t, closed.checkNamespace("blue", "shared"))
	assert.EqualError(t, closed.checkNamespace("blue", "red"), "pods of namespace blue may not use definitions of namespace red; "+
		"create it in blue, or have red added to globalNamespaces of ConfigMap kube-system/multus")
}
