// Package kubelettest is the kubelet's side of its device plugin API, v1beta1, for tests.
package kubelettest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Kubelet is the other side of the API, as the kubelet does it: it removes all sockets when it starts, and asks each
// plugin that registers for its list.
type Kubelet struct {
	pluginapi.UnimplementedRegistrationServer
	Dir string // of its sockets

	t      *testing.T
	server *grpc.Server

	mu      sync.Mutex
	lists   map[string]string // of each resource: ADDRESS=HEALTH@NUMANODE
	clients map[string]pluginapi.DevicePluginClient
	count   int // of registrations
}

// New makes one that does not run.
func New(t *testing.T) *Kubelet {
	dir, err := os.MkdirTemp("", "kubelet") // a path to a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &Kubelet{Dir: dir, t: t}
}

// Start has the kubelet start, for the first time or again.
func (k *Kubelet) Start() {
	k.t.Helper()
	sockets, err := filepath.Glob(filepath.Join(k.Dir, "*"))
	require.NoError(k.t, err)
	for _, s := range sockets {
		require.NoError(k.t, os.Remove(s))
	}

	k.mu.Lock()
	k.lists, k.clients = map[string]string{}, map[string]pluginapi.DevicePluginClient{}
	k.mu.Unlock()
	listener, err := net.Listen("unix", filepath.Join(k.Dir, "kubelet.sock"))
	require.NoError(k.t, err)
	k.server = grpc.NewServer()
	pluginapi.RegisterRegistrationServer(k.server, k)
	go func(s *grpc.Server) { _ = s.Serve(listener) }(k.server)
	k.t.Cleanup(k.server.Stop)
}

// Stop ends it.
func (k *Kubelet) Stop() { k.server.Stop() }

// Registrations counts those of all starts.
func (k *Kubelet) Registrations() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.count
}

// Register is of the API.
func (k *Kubelet) Register(_ context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	if r.Version != pluginapi.Version {
		return nil, fmt.Errorf("version %s", r.Version)
	}
	connection, err := grpc.NewClient("unix:"+filepath.Join(k.Dir, r.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	client := pluginapi.NewDevicePluginClient(connection)

	k.mu.Lock()
	defer k.mu.Unlock()
	k.count++
	k.clients[r.ResourceName] = client
	lists := k.lists
	go func() {
		defer connection.Close()
		stream, err := client.ListAndWatch(context.Background(), &pluginapi.Empty{})
		for err == nil {
			var answer *pluginapi.ListAndWatchResponse
			if answer, err = stream.Recv(); err != nil {
				break
			}
			var texts []string
			for _, d := range answer.Devices {
				text := d.ID + "=" + d.Health
				for _, n := range d.Topology.GetNodes() {
					text += fmt.Sprintf("@%d", n.ID)
				}
				texts = append(texts, text)
			}
			k.mu.Lock()
			lists[r.ResourceName] = strings.Join(texts, " ")
			k.mu.Unlock()
		}
		k.mu.Lock()
		lists[r.ResourceName] = "ended"
		k.mu.Unlock()
	}()
	return &pluginapi.Empty{}, nil
}

// Await waits for what the kubelet knows of a resource.
func (k *Kubelet) Await(resource, want string) {
	k.t.Helper()
	require.EventuallyWithT(k.t, func(c *assert.CollectT) {
		k.mu.Lock()
		defer k.mu.Unlock()
		assert.Equal(c, want, k.lists[resource])
	}, 10*time.Minute, 10*time.Millisecond)
}

// Allocate asks for devices of a resource, as for one container.
func (k *Kubelet) Allocate(resource string, ids ...string) (*pluginapi.ContainerAllocateResponse, error) {
	k.mu.Lock()
	client := k.clients[resource]
	k.mu.Unlock()
	answer, err := client.Allocate(k.t.Context(), &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}},
	})
	if err != nil {
		return nil, err
	}
	return answer.ContainerResponses[0], nil
}
