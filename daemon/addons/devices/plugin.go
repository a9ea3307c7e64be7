package devices

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Plugin offers resources to one node's kubelet.
type Plugin struct {
	Sysfs Sysfs
	Dir   string        // of the kubelet's sockets; "" is pluginapi.DevicePluginPath
	Every time.Duration // between two checks of devices, configuration and kubelet; 0 is five seconds

	// Resources are what is to be offered, and what of the configuration cannot be.
	Resources func() ([]Resource, []error)
	// Routed are the network interfaces by which a default route of the node goes. Nil: none is looked for.
	Routed func() (map[string]bool, error)
	// Report is called with each fault when it appears, and again only after it was gone.
	Report func(fault string)
	Log    *slog.Logger

	offers   map[string]*offer
	reported map[string]bool
	isEmpty  bool // that nothing was found was logged
}

// offer is a resource at the kubelet.
type offer struct {
	pool     *pool
	socket   string
	server   *grpc.Server // nil if it is not served
	kubelet  identity     // with which it is registered
	isListed bool         // whether that is so
}

// identity is by what a socket that was made again differs from the one before.
type identity struct {
	inode   uint64
	changed syscall.Timespec
}

func identify(path string) (identity, error) {
	var s syscall.Stat_t
	if err := syscall.Stat(path, &s); err != nil {
		return identity{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return identity{s.Ino, s.Ctim}, nil
}

const registerTimeout = 10 * time.Second

// Run offers resources until ctx ends.
func (p *Plugin) Run(ctx context.Context) error {
	if p.Dir == "" {
		p.Dir = pluginapi.DevicePluginPath
	}
	if p.Every == 0 {
		p.Every = 5 * time.Second
	}
	p.offers, p.reported = map[string]*offer{}, map[string]bool{}

	for {
		faults := p.update()
		faults = append(faults, p.register(ctx)...)
		if ctx.Err() == nil {
			p.report(faults)
		}

		select {
		case <-ctx.Done():
			for name := range p.offers {
				p.withdraw(name)
			}
			return nil
		case <-time.After(p.Every):
		}
	}
}

// update brings offers to what configuration and devices are now. A resource is offered once it has a virtual function.
func (p *Plugin) update() (faults []error) {
	resources, faults := p.Resources()
	functions, err := p.Sysfs.functions()
	if err != nil {
		return append(faults, err)
	}
	var routed map[string]bool
	if p.Routed != nil {
		if routed, err = p.Routed(); err != nil {
			return append(faults, err)
		}
	}

	assigned := Assign(resources, functions, routed)
	owners := map[string]string{}
	for name, all := range assigned {
		for _, f := range all {
			owners[f.Address] = name
		}
	}

	wanted := map[string]bool{}
	for _, r := range resources {
		name := r.String()
		wanted[name] = true
		have, isOffered := p.offers[name]
		if !isOffered && len(assigned[name]) == 0 {
			continue
		}
		if !isOffered {
			have = &offer{pool: newPool(p.Sysfs, r), socket: filepath.Join(p.Dir, socketName(name))}
			p.offers[name] = have
			p.Log.Info("offering a resource", "resource", name, "virtualFunctions", len(assigned[name]))
		}
		have.pool.update(r, assigned[name], func(address string) bool {
			owner, ok := owners[address]
			return ok && owner != name
		})
	}

	for name := range p.offers {
		if !wanted[name] {
			p.withdraw(name)
			p.Log.Info("the resource is no longer offered", "resource", name)
		}
	}
	if isEmpty := len(p.offers) == 0; isEmpty != p.isEmpty {
		p.isEmpty = isEmpty
		if isEmpty {
			p.Log.Info("no virtual function of this node fits a resource of the configuration",
				"resources", len(resources), "virtualFunctions", len(functions))
		}
	}
	return faults
}

// register serves what is not served, and registers what the kubelet that runs now does not know. A kubelet that starts
// removes all sockets.
func (p *Plugin) register(ctx context.Context) (faults []error) {
	kubelet := filepath.Join(p.Dir, filepath.Base(pluginapi.KubeletSocket))
	now, err := identify(kubelet)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it starts
	}
	if err != nil {
		return []error{fmt.Errorf("find the kubelet: %w", err)}
	}

	for _, name := range slices.Sorted(maps.Keys(p.offers)) {
		o := p.offers[name]
		_, err := os.Lstat(o.socket)
		if err == nil && o.server != nil && o.isListed && o.kubelet == now {
			continue
		}
		if err := o.serve(); err != nil {
			faults = append(faults, fmt.Errorf("serve %s: %w", name, err))
			continue
		}
		err = Register(ctx, kubelet, &pluginapi.RegisterRequest{
			Endpoint: filepath.Base(o.socket), ResourceName: name,
			Options: &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true},
		})
		if err != nil {
			faults = append(faults, fmt.Errorf("register %s with the kubelet: %w", name, err))
			continue
		}
		o.kubelet, o.isListed = now, true
		p.Log.Info("registered with the kubelet", "resource", name)
	}
	return faults
}

// serve listens at a new socket.
func (o *offer) serve() error {
	o.stop()
	if err := os.Remove(o.socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", o.socket)
	if err != nil {
		return err
	}

	o.server = grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(o.server, o.pool)
	go func(s *grpc.Server) { _ = s.Serve(listener) }(o.server) // it ends by stop; what else ends it is seen by its socket
	return nil
}

func (o *offer) stop() {
	if o.server != nil {
		o.server.Stop() // it removes the socket
	}
	o.server, o.isListed = nil, false
}

func (p *Plugin) withdraw(name string) {
	o := p.offers[name]
	close(o.pool.ended)
	o.stop()
	delete(p.offers, name)
}

// Register makes a resource known to the kubelet that listens at a path.
func Register(ctx context.Context, kubelet string, resource *pluginapi.RegisterRequest) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()

	connection, err := grpc.NewClient("unix:"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	resource.Version = pluginapi.Version
	_, err = pluginapi.NewRegistrationClient(connection).Register(ctx, resource)
	return err
}

// socketName is that of a resource's socket. A path to a socket has at most 107 bytes.
func socketName(resource string) string {
	const most = 50
	name := strings.ReplaceAll(resource, "/", "_")
	if len(name) > most {
		sum := sha256.Sum256([]byte(resource))
		name = hex.EncodeToString(sum[:16])
	}
	return "firstlight-" + name + ".sock"
}

func (p *Plugin) report(faults []error) {
	now := map[string]bool{}
	for _, f := range faults {
		text := f.Error()
		if !now[text] && !p.reported[text] {
			p.Log.Warn("not offered", "fault", text)
			if p.Report != nil {
				p.Report(text)
			}
		}
		now[text] = true
	}
	p.reported = now
}
