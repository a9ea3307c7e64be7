package kvm

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// registry is a kubelet's.
type registry struct {
	plugin.UnimplementedRegistrationServer
	requests chan *plugin.RegisterRequest
}

func (r registry) Register(_ context.Context, request *plugin.RegisterRequest) (*plugin.Empty, error) {
	r.requests <- request
	return &plugin.Empty{}, nil
}

// A node offers the device while it works, and again after the kubelet was restarted.
func TestTheDeviceIsOffered(t *testing.T) {
	dir, err := os.MkdirTemp("", "kvm") // a socket's name is short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	device := filepath.Join(dir, "kvm")
	require.NoError(t, os.WriteFile(device, nil, 0o600))

	listener, err := net.Listen("unix", filepath.Join(dir, kubelet))
	require.NoError(t, err)
	server := grpc.NewServer()
	requests := make(chan *plugin.RegisterRequest, 10)
	plugin.RegisterRegistrationServer(server, registry{requests: requests})
	go func() { _ = server.Serve(listener) }() // until it is stopped
	defer server.Stop()

	var works atomic.Bool
	p := Plugin{
		Dir:      dir,
		Device:   device,
		Resource: "devices.kubevirt.io/kvm",
		Check: func(string) error {
			if works.Load() {
				return nil
			}
			return errors.New("no virtualization")
		},
		Interval: 10 * time.Millisecond,
		Log:      slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	time.Sleep(100 * time.Millisecond)
	assert.Empty(t, requests, "a device that does not work is offered")

	works.Store(true)
	next := func() *plugin.RegisterRequest {
		select {
		case r := <-requests:
			return r
		case <-time.After(2 * time.Minute):
			require.Fail(t, "it does not register")
			return nil
		}
	}
	r := next()
	assert.Equal(t, []string{"v1beta1", "firstlight-kvm.sock", "devices.kubevirt.io/kvm"}, []string{r.Version, r.Endpoint, r.ResourceName})
	info, err := os.Stat(device)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o666), info.Mode())

	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, socket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	client := plugin.NewDevicePluginClient(conn)
	stream, err := client.ListAndWatch(ctx, &plugin.Empty{})
	require.NoError(t, err)
	list, err := stream.Recv()
	require.NoError(t, err)
	assert.Len(t, list.Devices, 110)
	given, err := client.Allocate(ctx, &plugin.AllocateRequest{ContainerRequests: []*plugin.ContainerAllocateRequest{{}}})
	require.NoError(t, err)
	require.Len(t, given.ContainerResponses, 1)
	assert.Equal(t, "/dev/kvm", given.ContainerResponses[0].Devices[0].ContainerPath)

	require.NoError(t, os.Remove(filepath.Join(dir, socket))) // as a kubelet does that starts
	next()
	works.Store(false)
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, socket))
		return errors.Is(err, os.ErrNotExist)
	}, 2*time.Minute, 10*time.Millisecond, "it is still offered")
	cancel()
	require.NoError(t, <-ended)
}
