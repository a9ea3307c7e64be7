package devices

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// pool is one resource as the kubelet sees it: the virtual functions that it has, and those that it had and that are
// gone.
type pool struct {
	pluginapi.UnimplementedDevicePluginServer
	sysfs Sysfs

	mu       sync.Mutex
	resource Resource
	members  map[string]VirtualFunction // by address
	gone     map[string]bool            // members that are Unhealthy
	changed  chan struct{}              // closed when any of it changes
	ended    chan struct{}              // closed when the pool is not offered any more
}

func newPool(sysfs Sysfs, r Resource) *pool {
	return &pool{
		sysfs: sysfs, resource: r,
		members: map[string]VirtualFunction{}, gone: map[string]bool{},
		changed: make(chan struct{}), ended: make(chan struct{}),
	}
}

// update gives a pool what its resource has now. A member that is not among it stays, and is Unhealthy, until it is back
// or the resource selects others. One that changes its driver is as it was; isElsewhere reports whether an address is
// another resource's.
func (p *pool) update(r Resource, all []VirtualFunction, isElsewhere func(address string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	before := p.answer()
	if !reflect.DeepEqual(p.resource, r) {
		p.members = map[string]VirtualFunction{}
	}
	p.resource, p.gone = r, map[string]bool{}
	for address := range p.members {
		f, ok := p.sysfs.function(address)
		p.gone[address] = !ok || !r.keeps(f) || isElsewhere(address)
	}
	for _, f := range all {
		p.members[f.Address], p.gone[f.Address] = f, false
	}

	if !proto.Equal(before, p.answer()) {
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// list returns the devices by address, and a channel that closes when they change.
func (p *pool) list() (*pluginapi.ListAndWatchResponse, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answer(), p.changed
}

func (p *pool) answer() *pluginapi.ListAndWatchResponse {
	answer := &pluginapi.ListAndWatchResponse{}
	for _, address := range slices.Sorted(maps.Keys(p.members)) {
		d := &pluginapi.Device{ID: address, Health: pluginapi.Healthy}
		if p.gone[address] {
			d.Health = pluginapi.Unhealthy
		}
		if n := p.members[address].NUMANode; n >= 0 && !p.resource.ExcludeTopology {
			d.Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: int64(n)}}}
		}
		answer.Devices = append(answer.Devices, d)
	}
	return answer
}

// GetDevicePluginOptions is of the API.
func (p *pool) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

// ListAndWatch sends the list at once, and at each change.
func (p *pool) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	for {
		all, changed := p.list()
		if err := stream.Send(all); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-p.ended:
			return nil
		case <-changed:
		}
	}
}

// Allocate says what containers get with virtual functions, as these are now.
func (p *pool) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	p.mu.Lock()
	r, members := p.resource, maps.Clone(p.members)
	p.mu.Unlock()

	answer := &pluginapi.AllocateResponse{}
	for _, c := range request.ContainerRequests {
		var all []VirtualFunction
		for _, address := range c.DevicesIds {
			_, isMember := members[address]
			f, ok := p.sysfs.function(address)
			if !isMember || !ok || !r.Fits(f) {
				return nil, status.Error(codes.NotFound, fmt.Sprintf("device %s of %s is gone", address, r))
			}
			all = append(all, f)
		}
		one, err := r.allocate(all)
		if err != nil {
			return nil, status.Error(codes.FailedPrecondition, err.Error())
		}
		answer.ContainerResponses = append(answer.ContainerResponses, one)
	}
	return answer, nil
}

// GetPreferredAllocation spreads a container's virtual functions over physical ones, and containers over those with the
// most that are free.
func (p *pool) GetPreferredAllocation(
	_ context.Context, request *pluginapi.PreferredAllocationRequest,
) (*pluginapi.PreferredAllocationResponse, error) {
	p.mu.Lock()
	pfs := map[string]string{}
	for address, f := range p.members {
		pfs[address] = f.PF
	}
	p.mu.Unlock()

	answer := &pluginapi.PreferredAllocationResponse{}
	for _, c := range request.ContainerRequests {
		ids := spread(c.AvailableDeviceIDs, c.MustIncludeDeviceIDs, int(c.AllocationSize), pfs)
		answer.ContainerResponses = append(answer.ContainerResponses,
			&pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return answer, nil
}

// spread picks size of the free addresses, with those that must be among them. Each further one is of the physical
// function with the fewest picked, and of these with the most that are free.
func spread(free, must []string, size int, pfs map[string]string) []string {
	picked := slices.Clone(must)
	rest := slices.DeleteFunc(slices.Sorted(slices.Values(free)), func(a string) bool { return slices.Contains(must, a) })

	count := func(all []string, pf string) (n int) {
		for _, a := range all {
			if pfs[a] == pf {
				n++
			}
		}
		return n
	}
	for len(picked) < size && len(rest) > 0 {
		best := 0
		for i, a := range rest {
			had, has := count(picked, pfs[rest[best]]), count(picked, pfs[a])
			if has < had || has == had && count(rest, pfs[a]) > count(rest, pfs[rest[best]]) {
				best = i
			}
		}
		picked = append(picked, rest[best])
		rest = slices.Delete(rest, best, best+1)
	}
	return picked
}
