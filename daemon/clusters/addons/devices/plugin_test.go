package devices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
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

// kubelet is the other side of the API, as the kubelet does it: it removes all sockets when it starts, and asks each
// plugin that registers for its list.
type kubelet struct {
	pluginapi.UnimplementedRegistrationServer
	t      *testing.T
	dir    string
	server *grpc.Server

	mu      sync.Mutex
	lists   map[string]string // of each resource: ADDRESS=HEALTH
	clients map[string]pluginapi.DevicePluginClient
	count   int // of registrations
}

func newKubelet(t *testing.T) *kubelet {
	dir, err := os.MkdirTemp("", "kubelet") // a path to a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &kubelet{t: t, dir: dir}
}

func (k *kubelet) start() {
	k.t.Helper()
	sockets, err := filepath.Glob(filepath.Join(k.dir, "*"))
	require.NoError(k.t, err)
	for _, s := range sockets {
		require.NoError(k.t, os.Remove(s))
	}

	k.mu.Lock()
	k.lists, k.clients = map[string]string{}, map[string]pluginapi.DevicePluginClient{}
	k.mu.Unlock()
	listener, err := net.Listen("unix", filepath.Join(k.dir, "kubelet.sock"))
	require.NoError(k.t, err)
	k.server = grpc.NewServer()
	pluginapi.RegisterRegistrationServer(k.server, k)
	go func(s *grpc.Server) { _ = s.Serve(listener) }(k.server)
	k.t.Cleanup(k.server.Stop)
}

func (k *kubelet) Register(_ context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	if r.Version != pluginapi.Version {
		return nil, fmt.Errorf("version %s", r.Version)
	}
	connection, err := grpc.NewClient("unix:"+filepath.Join(k.dir, r.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
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
				texts = append(texts, fmt.Sprintf("%s=%s@%d", d.ID, d.Health, d.Topology.GetNodes()[0].ID))
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

// await waits for what the kubelet knows of a resource.
func (k *kubelet) await(resource, want string) {
	k.t.Helper()
	require.EventuallyWithT(k.t, func(c *assert.CollectT) {
		k.mu.Lock()
		defer k.mu.Unlock()
		assert.Equal(c, want, k.lists[resource])
	}, 10*time.Second, 10*time.Millisecond)
}

func (k *kubelet) allocate(resource string, ids ...string) (*pluginapi.ContainerAllocateResponse, error) {
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

// settings are what a test changes while the plugin runs.
type settings struct {
	mu     sync.Mutex
	config string
	faults []string
}

func (s *settings) set(config string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = config
}

func (s *settings) resources() ([]Resource, []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ParseConfig([]byte(s.config))
}

func (s *settings) report(fault string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fault)
}

func startPlugin(t *testing.T, k *kubelet, p *Plugin) (stop func()) {
	p.Dir, p.Every, p.Log = k.dir, 20*time.Millisecond, slog.New(slog.NewTextHandler(t.Output(), nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

func TestTheKubeletIsOfferedVirtualFunctions(t *testing.T) {
	s := newTree(t)
	s.Add("0000:01:00.0", "020000", "8086:10c9", "igb", "eno1")
	k := newKubelet(t)
	c := &settings{config: `{"resourceList": [
		{"resourceName": "nic", "selectors": {"drivers": ["igbvf"]}},
		{"resourceName": "dpdk", "selectors": {"drivers": ["vfio-pci"]}},
		{"resourceName": "rdma", "isRdma": true}]}`}
	stop := startPlugin(t, k, &Plugin{Sysfs: s.Sysfs, Resources: c.resources, Report: c.report})

	// Neither a kubelet nor a virtual function is there at first.
	all := s.AddFunctions("0000:01:00.0", 3, "020000", "8086:10ca", "igbvf")
	k.start()
	k.await("intel.com/nic", "0000:01:10.0=Healthy@1 0000:01:10.1=Healthy@1 0000:01:10.2=Healthy@1")
	k.await("intel.com/dpdk", "")
	got, err := k.allocate("intel.com/nic", all[0], all[2])
	require.NoError(t, err)
	assert.Equal(t, "0000:01:10.0,0000:01:10.2", got.Envs["PCIDEVICE_INTEL_COM_NIC"])

	// One gets another driver, and is another resource's; one goes, and is back.
	s.Drive(all[0], "vfio-pci")
	s.Remove(root + all[2])
	k.await("intel.com/nic", "0000:01:10.0=Unhealthy@1 0000:01:10.1=Healthy@1 0000:01:10.2=Unhealthy@1")
	k.await("intel.com/dpdk", "0000:01:10.0=Healthy@1")
	got, err = k.allocate("intel.com/dpdk", all[0])
	require.NoError(t, err)
	assert.Len(t, got.Devices, 2)
	_, err = k.allocate("intel.com/nic", all[2])
	assert.ErrorContains(t, err, "virtual function 0000:01:10.2 of intel.com/nic is gone")
	s.AddFunctions("0000:01:00.0", 3, "020000", "8086:10ca", "igbvf")
	k.await("intel.com/nic", "0000:01:10.0=Healthy@1 0000:01:10.1=Healthy@1 0000:01:10.2=Healthy@1")

	// A moment without a driver is not the end of it.
	s.Drive(all[1], "")
	time.Sleep(200 * time.Millisecond)
	k.await("intel.com/nic", "0000:01:10.0=Healthy@1 0000:01:10.1=Healthy@1 0000:01:10.2=Healthy@1")
	s.Drive(all[1], "igbvf")

	// The kubelet restarts, twice.
	for range 2 {
		k.server.Stop()
		k.start()
		k.await("intel.com/nic", "0000:01:10.0=Healthy@1 0000:01:10.1=Healthy@1 0000:01:10.2=Healthy@1")
		k.await("intel.com/dpdk", "0000:01:10.0=Unhealthy@1")
	}
	k.mu.Lock()
	registrations := k.count
	k.mu.Unlock()
	time.Sleep(200 * time.Millisecond)
	k.mu.Lock()
	assert.Equal(t, registrations, k.count, "it registers once with each kubelet")
	k.mu.Unlock()

	// The configuration changes: what is selected no more is forgotten, and a resource that is gone ends.
	c.set(`{"resourceList": [{"resourceName": "nic", "selectors": {"pfNames": ["eno1#1"]}}]}`)
	k.await("intel.com/nic", "0000:01:10.1=Healthy@1")
	k.await("intel.com/dpdk", "ended")

	stop()
	k.await("intel.com/nic", "ended")
	left, err := filepath.Glob(filepath.Join(k.dir, "firstlight-*"))
	require.NoError(t, err)
	assert.Empty(t, left, "sockets stay")
	const fault = "resource 3 of resourceList (intel.com/rdma): isRdma is not offered: containers get no devices of RDMA; remove it"
	assert.Len(t, slices.DeleteFunc(c.faults, func(f string) bool { return f != fault }), 1, "each fault is said once: %q", c.faults)
}

func TestAKubeletThatRefuses(t *testing.T) {
	s := newTree(t)
	s.Add("0000:01:00.0", "020000", "8086:10c9", "igb", "eno1")
	s.AddFunctions("0000:01:00.0", 1, "020000", "8086:10ca", "igbvf")
	k := newKubelet(t)
	require.NoError(t, os.WriteFile(filepath.Join(k.dir, "kubelet.sock"), nil, 0o600))
	var faults []string
	p := &Plugin{
		Sysfs:     s.Sysfs,
		Resources: func() ([]Resource, []error) { return []Resource{{Prefix: "intel.com", Name: "nic"}}, nil },
		Routed:    func() (map[string]bool, error) { return nil, nil },
		Report:    func(fault string) { faults = append(faults, fault) },
	}
	stop := startPlugin(t, k, p)
	time.Sleep(300 * time.Millisecond)
	stop()
	require.NotEmpty(t, faults)
	assert.Contains(t, faults[0], "register intel.com/nic with the kubelet: ")

	p.Routed = func() (map[string]bool, error) { return nil, errors.New("no routes") }
	faults = nil
	stop = startPlugin(t, k, p)
	time.Sleep(100 * time.Millisecond)
	stop()
	assert.Equal(t, []string{"no routes"}, faults)
}

func TestNamesOfSocketsAreShort(t *testing.T) {
	assert.Equal(t, "firstlight-intel.com_nic.sock", socketName("intel.com/nic"))
	long := socketName("an-organisation.with-a-long-name.example.org/and_a_resource_with_a_long_name")
	assert.Less(t, len(pluginapi.DevicePluginPath+long), 108)
}
