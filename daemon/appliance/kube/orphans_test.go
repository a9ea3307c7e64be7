package kube

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"firstlight.dev/firstlight/daemon/engine/bringup"
)

func pod(id string, made time.Time, state cri.PodSandboxState) *cri.PodSandbox {
	return &cri.PodSandbox{Id: id, Metadata: &cri.PodSandboxMetadata{Name: "pod-" + id}, State: state, CreatedAt: made.UnixNano()}
}

func container(id, pod string, made time.Time, state cri.ContainerState) *cri.Container {
	return &cri.Container{Id: id, PodSandboxId: pod, Metadata: &cri.ContainerMetadata{Name: "c-" + id}, State: state, CreatedAt: made.UnixNano(),
		Labels: map[string]string{"io.kubernetes.pod.name": "pod-" + pod}}
}

func TestStrays(t *testing.T) {
	const (
		ready, gone  = cri.PodSandboxState_SANDBOX_READY, cri.PodSandboxState_SANDBOX_NOTREADY
		runs, exited = cri.ContainerState_CONTAINER_RUNNING, cri.ContainerState_CONTAINER_EXITED
		unknown      = cri.ContainerState_CONTAINER_UNKNOWN
	)
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	before, later := now.Add(-time.Hour), now.AddDate(10, 0, 0)
	for name, in := range map[string]struct {
		pods       []*cri.PodSandbox
		containers []*cri.Container
		want       []orphan
	}{
		"nothing there": {},
		"all from before, ended or not": {
			[]*cri.PodSandbox{pod("1", before, gone), pod("2", before, ready)},
			[]*cri.Container{container("a", "1", before, exited), container("b", "2", before, runs)}, nil},
		"dated later, running: left alone": {[]*cri.PodSandbox{pod("1", later, ready)}, []*cri.Container{container("a", "1", later, runs)}, nil},
		"dated later, ended, its pod runs": {[]*cri.PodSandbox{pod("1", later, ready)}, []*cri.Container{container("a", "1", later, exited)},
			[]orphan{{false, "a", "pod-1/c-a"}}},
		"all of a boot with the wrong clock": {
			[]*cri.PodSandbox{pod("1", before, gone), pod("2", later, gone)},
			[]*cri.Container{container("a", "1", before, exited), container("b", "2", later, exited), container("c", "2", later, unknown)},
			[]orphan{{false, "b", "pod-2/c-b"}, {false, "c", "pod-2/c-c"}, {true, "2", "pod-2"}}},
		"a pod that is gone with a container that runs": {[]*cri.PodSandbox{pod("1", later, gone)}, []*cri.Container{container("a", "1", later, runs)}, nil},
		"clocks may differ by seconds":                  {[]*cri.PodSandbox{pod("1", now.Add(skew-time.Second), gone)}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, in.want, findOrphans(in.pods, in.containers, now)) })
	}
}

// memoryRuntime is a container runtime without containers: it keeps the book that orphans are found in,
// with the rule of the real one that a pod is stopped before it is removed.
type memoryRuntime struct {
	cri.UnimplementedRuntimeServiceServer
	mu         sync.Mutex
	pods       []*cri.PodSandbox
	containers []*cri.Container
	stopped    []string
}

func (m *memoryRuntime) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &cri.ListPodSandboxResponse{Items: m.pods}, nil
}

func (m *memoryRuntime) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &cri.ListContainersResponse{Containers: m.containers}, nil
}

func (m *memoryRuntime) StopPodSandbox(_ context.Context, r *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = append(m.stopped, r.PodSandboxId)
	return &cri.StopPodSandboxResponse{}, nil
}

func (m *memoryRuntime) RemovePodSandbox(_ context.Context, r *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.stopped, r.PodSandboxId) {
		return nil, errors.New("sandbox is not stopped")
	}
	m.pods = slices.DeleteFunc(m.pods, func(p *cri.PodSandbox) bool { return p.Id == r.PodSandboxId })
	return &cri.RemovePodSandboxResponse{}, nil
}

func (m *memoryRuntime) RemoveContainer(_ context.Context, r *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.containers = slices.DeleteFunc(m.containers, func(c *cri.Container) bool { return c.Id == r.ContainerId })
	return &cri.RemoveContainerResponse{}, nil
}

func TestStraysAreRemoved(t *testing.T) {
	c, now := cluster(t)
	_, err := c.listOrphans(t.Context())
	require.Error(t, err)
	assert.True(t, bringup.IsWait(err), "a runtime that does not answer yet is waited for: %v", err)

	path := c.path(containerdSocket)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	m := &memoryRuntime{
		pods:       []*cri.PodSandbox{pod("1", now.AddDate(10, 0, 0), cri.PodSandboxState_SANDBOX_NOTREADY), pod("2", *now, cri.PodSandboxState_SANDBOX_READY)},
		containers: []*cri.Container{container("a", "1", now.AddDate(10, 0, 0), cri.ContainerState_CONTAINER_EXITED), container("b", "2", *now, cri.ContainerState_CONTAINER_RUNNING)},
	}
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, m)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	found, err := c.listOrphans(t.Context())
	require.NoError(t, err)
	assert.Len(t, found, 2)
	require.NoError(t, c.removeOrphans(t.Context(), found))
	found, err = c.listOrphans(t.Context())
	require.NoError(t, err)
	assert.Empty(t, found)
	assert.Len(t, m.pods, 1)
	assert.Len(t, m.containers, 1)
}
