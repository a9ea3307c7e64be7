package multus

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// fakeKubelet says which devices pods have.
type fakeKubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	pods []*podresources.PodResources
}

func (f *fakeKubelet) List(
	context.Context, *podresources.ListPodResourcesRequest,
) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: f.pods}, nil
}

// startKubelet serves at a socket whose path is short enough for one.
func startKubelet(t *testing.T, f *fakeKubelet) (socket string) {
	dir, err := os.MkdirTemp("", "kubelet")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })

	socket = filepath.Join(dir, "kubelet.sock")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, f)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return socket
}

func container(resource string, ids ...string) *podresources.ContainerResources {
	return &podresources.ContainerResources{
		Devices: []*podresources.ContainerDevices{{ResourceName: resource, DeviceIds: ids}},
	}
}

func TestNetworksGetTheDevicesOfTheirPod(t *testing.T) {
	n := newNode(t, `[{"name":"a"},{"name":"b"},{"name":"a","interface":"more"}]`)
	n.api.resources = map[string]string{"blue/a": "intel.com/nic"}
	n.Dirs.Kubelet = startKubelet(t, &fakeKubelet{pods: []*podresources.PodResources{
		{Namespace: "blue", Name: "other", Containers: []*podresources.ContainerResources{container("intel.com/nic", "0000:01:10.0")}},
		{Namespace: "blue", Name: "web", Containers: []*podresources.ContainerResources{
			container("intel.com/nic", "0000:01:10.2"), container("intel.com/fpga", "0000:02:00.0"), container("intel.com/nic", "0000:01:10.4"),
		}},
	}})
	n.add(t)

	sandbox, ok, err := n.records().Load("id", "eth0")
	require.NoError(t, err)
	require.True(t, ok)
	assert.Contains(t, string(sandbox.Attachments[1].Config), `"deviceID":"0000:01:10.2","name":"a","pciBusID":"0000:01:10.2"`)
	assert.NotContains(t, string(sandbox.Attachments[2].Config), "deviceID", "a network without the annotation")
	assert.Contains(t, string(sandbox.Attachments[3].Config), `"deviceID":"0000:01:10.4"`)
	assert.Contains(t, n.plugins.stdin["ADD a"], `"deviceID":"0000:01:10.4"`)

	// They are deleted with the same devices, without the kubelet.
	n.Dirs.Kubelet = "/nowhere"
	require.NoError(t, n.Del(t.Context(), call("")))
	assert.Contains(t, n.plugins.stdin["DEL a"], `"deviceID":"0000:01:10.2"`)
}

func TestDevicesAreClaimedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		networks string
		says     string
	}{
		"too few": {`a,a@more`, "network blue/a: it needs a device of intel.com/nic, and the pod has 1 of them in all; " +
			"have its containers request one for each such network (resources.limits)"},
		"another pod's": {`[{"name":"d","deviceID":"0000:01:10.0"}]`,
			"network blue/d: the pod has no device 0000:01:10.0 of intel.com/nic that no other network has; leave deviceID out of its annotation"},
		"its own, by name": {`[{"name":"d","deviceID":"0000:01:10.2"}]`, ""},
		"whichever it is":  {`d`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, c.networks)
			n.api.definitions["blue/d"] = `{"cniVersion":"1.0.0","type":"sriov","capabilities":{"deviceID":true}}`
			n.api.resources = map[string]string{"blue/a": "intel.com/nic", "blue/d": "intel.com/nic"}
			n.Dirs.Kubelet = startKubelet(t, &fakeKubelet{pods: []*podresources.PodResources{
				{Namespace: "blue", Name: "web", Containers: []*podresources.ContainerResources{container("intel.com/nic", "0000:01:10.2")}},
			}})
			_, err := n.Add(t.Context(), call(""))
			if c.says == "" {
				require.NoError(t, err)
				assert.Contains(t, n.plugins.stdin["ADD d"], `"runtimeConfig":{"deviceID":"0000:01:10.2"}`)
				return
			}
			assert.ErrorContains(t, err, c.says)
			assert.Empty(t, n.plugins.take(), "something was added before")
		})
	}
}

func TestAKubeletThatDoesNotAnswer(t *testing.T) {
	n := newNode(t, "a")
	n.api.resources = map[string]string{"blue/a": "intel.com/nic"}
	n.Dirs.Kubelet = filepath.Join(t.TempDir(), "kubelet.sock")
	_, err := n.Add(t.Context(), call(""))
	assert.ErrorContains(t, err, "network blue/a: ask the kubelet for the pod's devices: ")

	_, err = addDevice([]byte(`{"plugins":[]}`), "x")
	assert.EqualError(t, err, "read the list of plugins: it is empty")
	list, err := addDevice([]byte(`{"plugins":[{"mtu":12345678901234567890}]}`), "x")
	require.NoError(t, err)
	assert.JSONEq(t, `{"plugins":[{"mtu":12345678901234567890,"deviceID":"x","pciBusID":"x"}]}`, string(list))
}
