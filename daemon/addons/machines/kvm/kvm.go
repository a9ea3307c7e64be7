// Package kvm offers /dev/kvm of a node to pods that ask for the resource devices.kubevirt.io/kvm, which is KubeVirt's
// name for it, by the kubelet's interface for devices (k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1). A node on which
// KVM does not work offers none, whether or not it has the file.
package kvm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"firstlight.dev/firstlight/daemon/addons/devices"
)

// Names in the kubelet's folder.
const (
	socket  = "firstlight-kvm.sock"
	kubelet = "kubelet.sock"
)

// device is /dev/kvm in a pod.
const device = "/dev/kvm"

// shares is how many pods of a node may use the device, which is as many as a kubelet has.
const shares = 110

// Plugin offers the device of one node.
type Plugin struct {
	Dir      string // the kubelet's, with its socket
	Device   string // the node's /dev/kvm, as the plugin sees it
	Resource string
	Check    func(device string) error // why KVM does not work
	Interval time.Duration             // between two checks
	Log      *slog.Logger
}

// Run offers the device while it works, until ctx ends. The kubelet forgets plugins when it starts, and takes their
// sockets away.
func (p *Plugin) Run(ctx context.Context) error {
	reason := ""
	for ctx.Err() == nil {
		err := p.Check(p.Device)
		if err == nil {
			err = p.serve(ctx)
		}
		if err != nil && err.Error() != reason {
			p.Log.Info("no KVM is offered", "reason", err)
			reason = err.Error()
		} else if err == nil {
			reason = ""
		}
		select {
		case <-time.After(p.Interval):
		case <-ctx.Done():
		}
	}
	return nil
}

// serve answers the kubelet until its socket is gone, the device no longer works, or ctx ends.
func (p *Plugin) serve(ctx context.Context) error {
	// QEMU is not root in its pod, and the kubelet passes on the device with the node's own rights.
	if err := os.Chmod(p.Device, 0o666); err != nil {
		return fmt.Errorf("let pods use the device: %w", err)
	}
	path := filepath.Join(p.Dir, socket)
	if err := os.RemoveAll(path); err != nil { // of one that was killed
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listen for the kubelet: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := grpc.NewServer()
	plugin.RegisterDevicePluginServer(server, service{ctx: ctx})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	defer server.Stop()

	offer := &plugin.RegisterRequest{Endpoint: socket, ResourceName: p.Resource}
	if err := devices.Register(ctx, filepath.Join(p.Dir, kubelet), offer); err != nil {
		return fmt.Errorf("register with the kubelet: %w", err)
	}
	p.Log.Info("KVM is offered", "resource", p.Resource)
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("answer the kubelet: %w", err)
		case <-ctx.Done():
			return nil
		case <-time.After(p.Interval):
		}
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return nil // the kubelet was restarted
		}
		if err := p.Check(p.Device); err != nil {
			return err
		}
	}
}

// service is what the kubelet asks.
type service struct {
	plugin.UnimplementedDevicePluginServer
	ctx context.Context
}

// GetDevicePluginOptions implements plugin.DevicePluginServer: there are none.
func (service) GetDevicePluginOptions(context.Context, *plugin.Empty) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{}, nil
}

// ListAndWatch implements plugin.DevicePluginServer: all shares, until the device no longer works.
func (s service) ListAndWatch(_ *plugin.Empty, stream grpc.ServerStreamingServer[plugin.ListAndWatchResponse]) error {
	response := &plugin.ListAndWatchResponse{}
	for n := range shares {
		response.Devices = append(response.Devices, &plugin.Device{ID: "kvm" + strconv.Itoa(n), Health: plugin.Healthy})
	}
	if err := stream.Send(response); err != nil {
		return err
	}
	select {
	case <-s.ctx.Done():
	case <-stream.Context().Done():
	}
	return nil
}

// Allocate implements plugin.DevicePluginServer: the one device, to each.
func (service) Allocate(_ context.Context, request *plugin.AllocateRequest) (*plugin.AllocateResponse, error) {
	response := &plugin.AllocateResponse{}
	for range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &plugin.ContainerAllocateResponse{
			Devices: []*plugin.DeviceSpec{{ContainerPath: device, HostPath: device, Permissions: "rw"}},
		})
	}
	return response, nil
}
