package devices

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"firstlight.dev/firstlight/daemon/addons/devices/kubelettest"
)

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

func startPlugin(t *testing.T, k *kubelettest.Kubelet, p *Plugin) (stop func()) {
	p.Dir, p.Every, p.Log = k.Dir, 20*time.Millisecond, slog.New(slog.NewTextHandler(t.Output(), nil))
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
	k := kubelettest.New(t)
	c := &settings{config: `{"resourceList": [
		{"resourceName": "nic", "selectors": {"drivers": ["igbvf"]}},
		{"resourceName": "dpdk", "selectors": {"drivers": ["vfio-pci"]}},
		{"resourceName": "part", "selectors": {"auxTypes": ["sf"]}}]}`}
	stop := startPlugin(t, k, &Plugin{Sysfs: s.Sysfs, Resources: c.resources, Report: c.report})

	// Neither a kubelet nor a virtual function is there at first.
	all := s.AddFunctions("0000:01:00.0", 3, "020000", "8086:10ca", "igbvf")
	k.Start()
	k.Await("intel.com/nic", "0000:01:10.0=Healthy@1 0000:01:10.1=Healthy@1 0000:01:10.2=Healthy@1")
	k.Await("intel.com/dpdk", "")
	got, err := k.Allocate("intel.com/nic", all[0], all[2])
	require.NoError(t, err)
	assert.Equal(t, "0000:01:10.0,0000:01:10.2", got.Envs["PCIDEVICE_INTEL_COM_NIC"])

	// One gets another driver, and is another resource's; one goes, and is back.
	s.Drive(all[0], "vfio-pci")
	s.Remove(root + all[2])
	k.Await("intel.com/nic", "0000:01:10.0=Unhealthy@1 0000:01:10.1=Healthy@1 0000:01:10.2=Unhealthy@1")
	k.Await("intel.com/dpdk", "0000:01:10.0=Healthy@1")
	got, err = k.Allocate("intel.com/dpdk", all[0])
	require.NoError(t, err)
	assert.Len(t, got.Devices, 2)
	_, err = k.Allocate("intel.com/nic", all[2])
	assert.ErrorContains(t, err, "device 0000:01:10.2 of intel.com/nic is gone")
	s.AddFunctions("0000:01:00.0", 3, "020000", "8086:10ca", "igbvf")
	k.Await("intel.com/nic", "0000:01:10.0=Healthy@1 0000:01:10.1=Healthy@1 0000:01:10.2=Healthy@1")

	// A moment without a driver is not the end of it.
	s.Drive(all[1], "")
	time.Sleep(200 * time.Millisecond)
	k.Await("intel.com/nic", "0000:01:10.0=Healthy@1 0000:01:10.1=Healthy@1 0000:01:10.2=Healthy@1")
	s.Drive(all[1], "igbvf")

	// The kubelet restarts, twice.
	for range 2 {
		k.Stop()
		k.Start()
		k.Await("intel.com/nic", "0000:01:10.0=Healthy@1 0000:01:10.1=Healthy@1 0000:01:10.2=Healthy@1")
		k.Await("intel.com/dpdk", "0000:01:10.0=Unhealthy@1")
	}
	registrations := k.Registrations()
	time.Sleep(200 * time.Millisecond)
	assert.Equal(t, registrations, k.Registrations(), "it registers once with each kubelet")

	// The configuration changes: what is selected no more is forgotten, and a resource that is gone ends.
	c.set(`{"resourceList": [{"resourceName": "nic", "selectors": {"pfNames": ["eno1#1"]}}]}`)
	k.Await("intel.com/nic", "0000:01:10.1=Healthy@1")
	k.Await("intel.com/dpdk", "ended")

	stop()
	k.Await("intel.com/nic", "ended")
	left, err := filepath.Glob(filepath.Join(k.Dir, "firstlight-*"))
	require.NoError(t, err)
	assert.Empty(t, left, "sockets stay")
	const fault = "resource 3 of resourceList (intel.com/part): selectors: auxTypes is for deviceType auxNetDevice alone; set that, or " +
		"remove auxTypes"
	assert.Len(t, slices.DeleteFunc(c.faults, func(f string) bool { return f != fault }), 1, "each fault is said once: %q", c.faults)
}

func TestAKubeletThatRefuses(t *testing.T) {
	s := newTree(t)
	s.Add("0000:01:00.0", "020000", "8086:10c9", "igb", "eno1")
	s.AddFunctions("0000:01:00.0", 1, "020000", "8086:10ca", "igbvf")
	k := kubelettest.New(t)
	require.NoError(t, os.WriteFile(filepath.Join(k.Dir, "kubelet.sock"), nil, 0o600))
	faults := make(chan string, 100)
	p := &Plugin{
		Sysfs:     s.Sysfs,
		Resources: func() ([]Resource, []error) { return []Resource{{Prefix: "intel.com", Name: "nic"}}, nil },
		Routed:    func() (map[string]bool, error) { return nil, nil },
		Report:    func(fault string) { faults <- fault },
	}
	stop := startPlugin(t, k, p)
	assert.Contains(t, <-faults, "register intel.com/nic with the kubelet: ")
	stop()

	faults = make(chan string, 100)
	var rounds atomic.Int32
	p.Routed = func() (map[string]bool, error) {
		rounds.Add(1)
		return nil, errors.New("no routes")
	}
	stop = startPlugin(t, k, p)
	require.Eventually(t, func() bool { return rounds.Load() > 2 }, 2*time.Minute, time.Millisecond)
	stop()
	require.Len(t, faults, 1, "a fault is said once")
	assert.Equal(t, "no routes", <-faults)
}

func TestNamesOfSocketsAreShort(t *testing.T) {
	assert.Equal(t, "firstlight-intel.com_nic.sock", socketName("intel.com/nic"))
	long := socketName("an-organisation.with-a-long-name.example.org/and_a_resource_with_a_long_name")
	assert.Less(t, len(pluginapi.DevicePluginPath+long), 108)
}
