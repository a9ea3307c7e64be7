package multus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fakePlugins note each call, as COMMAND NETWORK TYPE INTERFACE, and give each network an address.
type fakePlugins struct {
	version.PluginDecoder
	calls  []string
	stdin  map[string]string // of the last call of a command, by COMMAND NETWORK
	broken map[string]bool   // COMMAND NETWORK that fails
	absent map[string]bool   // types that are not installed
}

func (f *fakePlugins) FindInPath(plugin string, _ []string) (string, error) {
	if f.absent[plugin] {
		return "", fmt.Errorf("failed to find plugin %q", plugin)
	}
	return plugin, nil
}

func (f *fakePlugins) ExecPlugin(_ context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	get := func(key string) string {
		i := slices.IndexFunc(environ, func(e string) bool { return strings.HasPrefix(e, key+"=") })
		return strings.TrimPrefix(environ[i], key+"=")
	}
	var conf struct{ Name string }
	if err := json.Unmarshal(stdin, &conf); err != nil {
		return nil, err
	}
	what := get("CNI_COMMAND") + " " + conf.Name
	f.calls = append(f.calls, what+" "+path+" "+get("CNI_IFNAME"))
	f.stdin[what] = string(stdin)
	if f.broken[what] {
		return nil, types.NewError(types.ErrInternal, "no room", "")
	}
	if get("CNI_COMMAND") != "ADD" {
		return nil, nil
	}
	return fmt.Appendf(nil, `{"cniVersion":"1.0.0","interfaces":[{"name":"host0"},{"name":%q,"mac":"02:00:00:00:00:01","sandbox":"/ns"}],
		"ips":[{"address":"10.0.0.%d/24","interface":1}]}`, get("CNI_IFNAME"), len(f.calls)), nil
}

func (f *fakePlugins) take() []string {
	all := f.calls
	f.calls = nil
	return all
}

// fakeAPI has one pod and definitions.
type fakeAPI struct {
	pod         corev1.Pod
	definitions map[string]string
	resources   map[string]string // of definitions
	status      []NetworkStatus
	fault       error // of writing
}

func (f *fakeAPI) Pod(context.Context, string, string) (*corev1.Pod, error) { return &f.pod, nil }

func (f *fakeAPI) Definition(_ context.Context, namespace, name string) (Definition, error) {
	config, ok := f.definitions[namespace+"/"+name]
	if !ok {
		return Definition{}, fmt.Errorf("NetworkAttachmentDefinition %s/%s does not exist", namespace, name)
	}
	return Definition{Config: config, Resource: f.resources[namespace+"/"+name]}, nil
}

func (f *fakeAPI) WriteStatus(_ context.Context, _ *corev1.Pod, status []NetworkStatus) error {
	f.status = status
	return f.fault
}

// node is a node with the plugin, and one pod.
type node struct {
	*Plugin
	plugins *fakePlugins
	api     *fakeAPI
	routes  []string
}

func newNode(t *testing.T, networks string) *node {
	n := &node{
		plugins: &fakePlugins{stdin: map[string]string{}, broken: map[string]bool{}, absent: map[string]bool{}},
		api: &fakeAPI{
			pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "blue", Name: "web", UID: "u", Annotations: map[string]string{NetworksKey: networks},
			}},
			definitions: map[string]string{
				"blue/a":             `{"cniVersion":"1.0.0","type":"macvlan","capabilities":{"ips":true}}`,
				"blue/b":             `{"cniVersion":"1.0.0","name":"b-net","plugins":[{"type":"bridge"},{"type":"tuning"}]}`,
				"red/c":              `{"cniVersion":"1.0.0","type":"ipvlan"}`,
				"kube-system/second": `{"cniVersion":"1.0.0","type":"bridge","capabilities":{"portMappings":true}}`,
			},
		},
	}
	n.Plugin = &Plugin{
		Dirs: NodeDirs(t.TempDir()), Exec: n.plugins, Log: t.Output(),
		Open: func(string) (API, error) { return n.api, nil },
		SetRoute: func(_, device string, gateways []string) error {
			n.routes = append(n.routes, device+" "+strings.Join(gateways, ","))
			return nil
		},
	}
	write(t, filepath.Join(n.Dirs.Conf, "10-firstlight.conflist"), `{"cniVersion":"1.0.0","name":"firstlight","plugins":[
		{"type":"ptp"},{"type":"portmap","capabilities":{"portMappings":true}}]}`)
	return n
}

func call(more string) *skel.CmdArgs {
	return &skel.CmdArgs{
		ContainerID: "id", Netns: "/ns", IfName: "eth0",
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=blue;K8S_POD_NAME=web;K8S_POD_UID=u",
		StdinData: []byte(`{"cniVersion":"1.0.0","name":"multus-cni-network","type":"multus",
			"runtimeConfig":{"portMappings":[{"hostPort":1,"containerPort":2,"protocol":"tcp"}]}` + more + `}`),
	}
}

// add adds the pod, which must succeed.
func (n *node) add(t *testing.T) {
	t.Helper()
	_, err := n.Add(t.Context(), call(""))
	require.NoError(t, err)
}

func TestAPodGetsWhatItsAnnotationSelects(t *testing.T) {
	n := newNode(t, `[{"name":"a","ips":["10.0.0.9/24"]},{"name":"b","interface":"data","default-route":["10.0.0.1"]}]`)
	result, err := n.Add(t.Context(), call(""))
	require.NoError(t, err)

	assert.Equal(t, []string{
		"ADD firstlight ptp eth0", "ADD firstlight portmap eth0", "ADD a macvlan net1", "ADD b-net bridge data", "ADD b-net tuning data",
	}, n.plugins.take())
	assert.Contains(t, n.plugins.stdin["ADD a"], `"runtimeConfig":{"ips":["10.0.0.9/24"]}`)
	assert.Contains(t, n.plugins.stdin["ADD firstlight"], `"runtimeConfig":{"portMappings":[{"containerPort":2,"hostPort":1,"protocol":"tcp"}]}`)
	assert.NotContains(t, n.plugins.stdin["ADD b-net"], "hostPort", "the pod's ports lead to its default network alone")
	assert.Equal(t, []string{"data 10.0.0.1"}, n.routes)

	text, err := json.Marshal(n.api.status)
	require.NoError(t, err)
	assert.JSONEq(t, `[
		{"name":"firstlight","interface":"eth0","ips":["10.0.0.2"],"mac":"02:00:00:00:00:01","default":true,"dns":{}},
		{"name":"blue/a","interface":"net1","ips":["10.0.0.3"],"mac":"02:00:00:00:00:01","dns":{}},
		{"name":"blue/b","interface":"data","ips":["10.0.0.5"],"mac":"02:00:00:00:00:01","dns":{},"gateway":["10.0.0.1"]}]`, string(text))
	assert.Contains(t, fmt.Sprint(result), "10.0.0.2", "the runtime gets the default network's result")

	// Everything has gone since but what is on the node.
	n.api.definitions = nil
	n.Open = func(string) (API, error) { return nil, errors.New("no API server") }
	require.NoError(t, os.RemoveAll(n.Dirs.Conf))
	require.NoError(t, n.Check(t.Context(), call("")))
	assert.Len(t, n.plugins.take(), 5)
	require.NoError(t, n.Del(t.Context(), call("")))
	assert.Equal(t, []string{
		"DEL b-net tuning data", "DEL b-net bridge data", "DEL a macvlan net1", "DEL firstlight portmap eth0", "DEL firstlight ptp eth0",
	}, n.plugins.take())
	assert.Contains(t, n.plugins.stdin["DEL b-net"], "prevResult")

	require.NoError(t, n.Del(t.Context(), call("")), "a second time")
	assert.Empty(t, n.plugins.take())
}

func TestWhatFailsIsTakenBack(t *testing.T) {
	for fault, want := range map[string]string{
		"ADD b-net":      `pod blue/web: network blue/b on net2: plugin type="bridge" failed (add): no room`,
		"ADD firstlight": `pod blue/web: network firstlight on eth0: plugin type="ptp" failed (add): no room`,
	} {
		n := newNode(t, "a,b")
		n.plugins.broken[fault] = true
		_, err := n.Add(t.Context(), call(""))
		assert.EqualError(t, err, want)
		calls := n.plugins.take()
		assert.Equal(t, []string{"DEL b-net tuning net2", "DEL b-net bridge net2", "DEL a macvlan net1",
			"DEL firstlight portmap eth0", "DEL firstlight ptp eth0"}, calls[len(calls)-5:], fault)
		all, err := n.records().All()
		require.NoError(t, err)
		assert.Empty(t, all)
	}

	// What cannot be taken back is, when the runtime asks again.
	n := newNode(t, "a,b")
	n.plugins.broken = map[string]bool{"ADD b-net": true, "DEL a": true}
	_, err := n.Add(t.Context(), call(""))
	assert.ErrorContains(t, err, "what was added before is deleted with the pod: delete network blue/a on net1: ")
	assert.Error(t, n.Del(t.Context(), call("")))
	n.plugins.broken = nil
	n.plugins.take()
	require.NoError(t, n.Del(t.Context(), call("")))
	assert.Contains(t, n.plugins.take(), "DEL a macvlan net1")
}

func TestAPodThatCannotBeIsNotBegun(t *testing.T) {
	isolated := `,"namespaceIsolation":true,"globalNamespaces":"default"`
	for _, c := range []struct{ networks, conf, want string }{
		{"missing", "", "pod blue/web: NetworkAttachmentDefinition blue/missing does not exist"},
		{"A", "", "pod blue/web: annotation k8s.v1.cni.cncf.io/networks: network 1: name \"A\" is no object's"},
		{"red/c", isolated, "pod blue/web: network red/c: pods of namespace blue may not use definitions of namespace red"},
		{`[{"name":"b","mac":"02:00:00:00:00:01"}]`, "", "pod blue/web: NetworkAttachmentDefinition blue/b: spec.config: the pod asks for mac"},
	} {
		n := newNode(t, c.networks)
		_, err := n.Add(t.Context(), call(c.conf))
		assert.ErrorContains(t, err, c.want)
		assert.Empty(t, n.plugins.take())
		require.NoError(t, n.Del(t.Context(), call(c.conf)), "the runtime takes back what it began")
	}

	n := newNode(t, "")
	n.api.pod.UID = "other"
	_, err := n.Add(t.Context(), call(""))
	assert.EqualError(t, err, "pod blue/web: it was replaced by another one of that name, with the UID other")
	n.api.pod.Annotations[corev1.MirrorPodAnnotationKey] = "u"
	n.add(t)
}

func TestADefaultNetworkOfThePod(t *testing.T) {
	n := newNode(t, "a")
	n.api.pod.Annotations[DefaultNetworkKey] = "second"
	n.add(t)
	assert.Equal(t, []string{"ADD second bridge eth0", "ADD a macvlan net1"}, n.plugins.take())
	assert.Contains(t, n.plugins.stdin["ADD second"], `"hostPort":1`)
	assert.True(t, n.api.status[0].Default)
	assert.Equal(t, "kube-system/second", n.api.status[0].Name)
	require.NoError(t, n.Del(t.Context(), call("")))
	assert.Equal(t, []string{"DEL a macvlan net1", "DEL second bridge eth0"}, n.plugins.take())
}

func TestAStatusThatCannotBeWritten(t *testing.T) {
	n := newNode(t, "a")
	n.api.fault = errors.New("write annotation: no API server")
	_, err := n.Add(t.Context(), call(""))
	assert.EqualError(t, err, "pod blue/web: write annotation: no API server")
	assert.Contains(t, n.plugins.take(), "DEL a macvlan net1")

	// A pod that asked for nothing is not held up.
	n.api.pod.Annotations = nil
	n.add(t)
}

func TestPodsFromBeforeHaveTheDefaultNetwork(t *testing.T) {
	n := newNode(t, "a")
	require.NoError(t, n.Del(t.Context(), call("")))
	assert.Equal(t, []string{"DEL firstlight portmap eth0", "DEL firstlight ptp eth0"}, n.plugins.take())
}

func TestAPowerCutLeavesNothing(t *testing.T) {
	n := newNode(t, "a,b")
	n.add(t)

	// libcni's own file of a result is half written; a plugin's program was removed.
	write(t, filepath.Join(n.Dirs.State, "results", "b-net-id-net2"), "{")
	n.plugins.absent["macvlan"] = true
	n.plugins.take()
	require.NoError(t, n.Del(t.Context(), call("")))
	assert.Equal(t, []string{"DEL b-net tuning net2", "DEL b-net bridge net2", "DEL firstlight portmap eth0", "DEL firstlight ptp eth0"}, n.plugins.take())

	// Of what was planned it is deleted, too, if nothing was added yet; a plan that cannot be read is that of a pod without.
	write(t, n.records().path("id", "eth0"), "{")
	require.NoError(t, n.Del(t.Context(), call("")))
	assert.Len(t, n.plugins.take(), 2)
	_, ok, err := n.records().Load("id", "eth0")
	require.NoError(t, err)
	assert.False(t, ok)
}

func TestGarbageIsCollected(t *testing.T) {
	n := newNode(t, "a")
	n.add(t)
	n.plugins.take()
	require.NoError(t, n.GC(t.Context(), call(`,"cni.dev/valid-attachments":[{"containerID":"id","ifname":"eth0"}]`)))
	assert.Empty(t, n.plugins.take())
	require.NoError(t, n.GC(t.Context(), call(`,"cni.dev/valid-attachments":[{"containerID":"other","ifname":"eth0"}]`)))
	assert.Equal(t, []string{"DEL a macvlan net1", "DEL firstlight portmap eth0", "DEL firstlight ptp eth0"}, n.plugins.take())
}

func TestTheStatusOfThePlugin(t *testing.T) {
	n := newNode(t, "")
	assert.ErrorContains(t, n.Status(t.Context(), call("")), "the plugin has no access to the API server")
	write(t, n.Dirs.kubeconfig(), "")
	assert.NoError(t, n.Status(t.Context(), call("")))
	require.NoError(t, os.Remove(filepath.Join(n.Dirs.Conf, "10-firstlight.conflist")))
	var e *types.Error
	require.ErrorAs(t, n.Status(t.Context(), call("")), &e)
	assert.EqualValues(t, 50, e.Code)
}
