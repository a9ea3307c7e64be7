package sriov

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"firstlight.dev/firstlight/daemon/addons/devices"
)

// Plugin is what a meta-plugin or the runtime calls.
type Plugin struct {
	Dirs   Dirs
	Kernel Kernel
	Exec   invoke.Exec // of the plugin of IPAM; nil calls programs
}

func (p *Plugin) assignments() assignments { return p.Dirs.assignments() }

// Add moves a virtual function to a pod's network namespace, set as the configuration says. One that a program drives by
// vfio-pci is only set: the pod has its device files of the kubelet.
func (p *Plugin) Add(ctx context.Context, call *skel.CmdArgs) (types.Result, error) {
	conf, err := ParseConf(call.StdinData, call.Args)
	if err != nil {
		return nil, err
	}
	wanted, err := conf.settings()
	if err != nil {
		return nil, err
	}
	f, err := p.find(conf)
	if err != nil {
		return nil, err
	}

	one, err := p.begin(f, call, conf, &wanted)
	if err != nil {
		return nil, err
	}
	result, err := p.attach(ctx, call, conf, f, one, wanted)
	if err != nil {
		if left := p.restore(one); left != nil {
			err = fmt.Errorf("%w; what was changed before is restored with the pod's end: %w", err, left)
		}
		return nil, err
	}
	return result, nil
}

func (p *Plugin) find(conf Conf) (devices.VirtualFunction, error) {
	if conf.DeviceID == "" {
		return devices.VirtualFunction{}, errors.New("the configuration has no deviceID; the definition needs the annotation " +
			"k8s.v1.cni.cncf.io/resourceName, and a container of the pod a request for that resource (resources.limits)")
	}
	f, ok := p.Kernel.Function(conf.DeviceID)
	switch {
	case !ok:
		return f, fmt.Errorf("deviceID %s is no virtual function of this node", conf.DeviceID)
	case len(f.PFNames) == 0:
		return f, fmt.Errorf("virtual function %s: its physical function %s has no network interface on the node; "+
			"is its driver loaded?", f.Address, f.PF)
	case f.Driver == "":
		return f, fmt.Errorf("virtual function %s has no driver", f.Address)
	}
	return f, nil
}

// begin saves what a virtual function is before anything is changed. What an earlier pod left of it is restored first.
// It completes wanted by what must be set although nobody asked for it.
func (p *Plugin) begin(f devices.VirtualFunction, call *skel.CmdArgs, conf Conf, wanted *Settings) (Assignment, error) {
	old, isOld, err := p.assignments().Load(f.Address)
	if err != nil {
		return old, err
	}
	if isOld {
		if old.Container != call.ContainerID && len(f.Interfaces) == 0 && f.Driver != devices.VFIODriver &&
			p.Kernel.HasNamespace(old.Namespace) {
			return old, fmt.Errorf("virtual function %s is in use by the container %s", f.Address, old.Container)
		}
		if err := p.restore(old); err != nil {
			return old, err
		}
		if f, err = p.find(conf); err != nil {
			return old, err
		}
	}

	one := Assignment{
		Address: f.Address, Container: call.ContainerID, Interface: call.IfName, Namespace: call.Netns,
		PF: f.PFNames[0], Index: f.Index,
	}
	if f.Driver != devices.VFIODriver {
		if len(f.Interfaces) == 0 {
			return one, fmt.Errorf("virtual function %s has no network interface on the node; is it in use?", f.Address)
		}
		one.HostName = f.Interfaces[0]
		if one.Before, err = p.Kernel.Interface("", one.HostName); err != nil {
			return one, err
		}
	}

	now, err := p.Kernel.Settings(one.PF, one.Index)
	if err != nil {
		return one, err
	}
	const none = "00:00:00:00:00:00"
	if wanted.MAC == nil && one.HostName != "" && now.MAC != nil && *now.MAC == none {
		// Some devices drop what comes from a MAC that the physical function does not know.
		wanted.MAC = &one.Before.MAC
	}
	one.Settings = now.reduce(*wanted)
	return one, p.assignments().Save(one)
}

// attach sets and moves a virtual function, and gives it its addresses.
func (p *Plugin) attach(
	ctx context.Context, call *skel.CmdArgs, conf Conf, f devices.VirtualFunction, one Assignment, wanted Settings,
) (types.Result, error) {
	if err := p.Kernel.Set(one.PF, one.Index, wanted); err != nil {
		return nil, fmt.Errorf("set virtual function %s by %s: %w", one.Address, one.PF, err)
	}
	result := &current.Result{
		CNIVersion: current.ImplementedSpecVersion,
		Interfaces: []*current.Interface{{Name: call.IfName, Sandbox: call.Netns, PciID: one.Address}},
		DNS:        conf.DNS,
	}
	if wanted.MAC != nil {
		result.Interfaces[0].Mac = *wanted.MAC
	}
	if one.HostName != "" {
		link, err := p.move(f, one, conf, wanted)
		if err != nil {
			return nil, err
		}
		result.Interfaces[0].Mac, result.Interfaces[0].Mtu = link.MAC, link.MTU
	}

	if conf.IPAM.Type != "" {
		given, err := invoke.DelegateAdd(ctx, conf.IPAM.Type, call.StdinData, p.Exec)
		if err != nil {
			return nil, fmt.Errorf("addresses by %s: %w", conf.IPAM.Type, err)
		}
		if err := p.addAddresses(result, given); err != nil {
			return nil, errors.Join(err, invoke.DelegateDel(context.WithoutCancel(ctx), conf.IPAM.Type, call.StdinData, p.Exec))
		}
	}
	if one.HostName != "" {
		if err := p.Kernel.Configure(call.Netns, call.IfName, addressesOf(result)); err != nil {
			err = fmt.Errorf("configure %s: %w", call.IfName, err)
			if conf.IPAM.Type != "" {
				err = errors.Join(err, invoke.DelegateDel(context.WithoutCancel(ctx), conf.IPAM.Type, call.StdinData, p.Exec))
			}
			return nil, err
		}
	}
	return result, nil
}

// move brings the interface to the pod. A driver reads a MAC that the physical function set when it is bound; where that
// has no effect, the interface's own is set.
func (p *Plugin) move(f devices.VirtualFunction, one Assignment, conf Conf, wanted Settings) (Interface, error) {
	name := one.HostName
	if wanted.MAC != nil {
		link, err := p.Kernel.Interface("", name)
		if err != nil {
			return link, err
		}
		if now := one.Settings.MAC; !strings.EqualFold(link.MAC, *wanted.MAC) || now == nil || *now != *wanted.MAC {
			if err := p.Kernel.Rebind(one.Address); err != nil {
				return link, fmt.Errorf("rebind the driver of virtual function %s: %w", one.Address, err)
			}
			again, ok := p.Kernel.Function(one.Address)
			if !ok || len(again.Interfaces) == 0 {
				return link, fmt.Errorf("virtual function %s has no network interface after its driver was rebound; see "+
					"the kernel's messages", one.Address)
			}
			name = again.Interfaces[0]
		}
	}

	link, err := p.Kernel.Interface("", name)
	if err != nil {
		return link, err
	}
	var to Interface
	if wanted.MAC != nil && !strings.EqualFold(link.MAC, *wanted.MAC) {
		to.MAC = *wanted.MAC
	}
	if conf.MTU != nil && link.MTU != *conf.MTU {
		to.MTU = *conf.MTU
	}
	if err := p.Kernel.SetInterface("", name, to); err != nil {
		return link, fmt.Errorf("set interface %s: %w", name, err)
	}
	if err := p.Kernel.Move("", name, one.Namespace, one.Interface, temporaryName(f)); err != nil {
		return link, fmt.Errorf("move interface %s to the pod: %w", name, err)
	}
	return p.Kernel.Interface(one.Namespace, one.Interface)
}

// Del takes a virtual function back, and makes it what it was. What is gone is no failure.
func (p *Plugin) Del(ctx context.Context, call *skel.CmdArgs) error {
	conf, err := ParseConf(call.StdinData, call.Args)
	if err != nil {
		return err
	}
	if conf.IPAM.Type != "" {
		if err := invoke.DelegateDel(ctx, conf.IPAM.Type, call.StdinData, p.Exec); err != nil {
			return fmt.Errorf("give back addresses by %s: %w", conf.IPAM.Type, err)
		}
	}
	one, ok, err := p.assignments().Find(call.ContainerID, call.IfName)
	if err != nil || !ok {
		return err
	}
	return p.restore(one)
}

// restore makes a virtual function what it was, and then forgets it. Each step may have been done already.
func (p *Plugin) restore(one Assignment) error {
	f, ok := p.Kernel.Function(one.Address)
	if !ok {
		return p.assignments().Remove(one.Address) // it is gone, with all that was set
	}

	if one.HostName != "" && f.Driver != devices.VFIODriver {
		if err := p.bringBack(f, one); err != nil {
			return fmt.Errorf("take virtual function %s back: %w", one.Address, err)
		}
	}
	pf := one.PF
	if len(f.PFNames) > 0 {
		pf = f.PFNames[0]
	}
	if err := p.Kernel.Set(pf, f.Index, one.Settings); err != nil {
		return fmt.Errorf("restore virtual function %s by %s: %w", one.Address, pf, err)
	}
	if one.HostName != "" && f.Driver != devices.VFIODriver {
		if err := p.resetInterface(one); err != nil {
			return fmt.Errorf("restore the interface of virtual function %s: %w", one.Address, err)
		}
	}
	return p.assignments().Remove(one.Address)
}

// bringBack moves the interface to the node. When a namespace ends, the kernel does so itself, some time later.
func (p *Plugin) bringBack(f devices.VirtualFunction, one Assignment) error {
	if len(f.Interfaces) > 0 {
		return nil
	}
	if p.Kernel.HasNamespace(one.Namespace) {
		for _, name := range []string{one.Interface, temporaryName(f)} {
			if _, err := p.Kernel.Interface(one.Namespace, name); err == nil {
				return p.Kernel.Move(one.Namespace, name, "", one.HostName, temporaryName(f))
			}
		}
	}
	if now, ok := p.Kernel.Function(one.Address); ok && now.Driver != "" && len(now.Interfaces) == 0 {
		return errors.New("its interface is neither on the node nor in the pod; it is tried again")
	}
	return nil
}

// resetInterface gives the node's interface the name, the MTU and the MAC that it had. A driver that refuses the
// MAC is rebound, and reads what the physical function says.
func (p *Plugin) resetInterface(one Assignment) error {
	f, ok := p.Kernel.Function(one.Address)
	if !ok || len(f.Interfaces) == 0 {
		return nil
	}
	if f.Interfaces[0] != one.HostName {
		if err := p.Kernel.Rename(f.Interfaces[0], one.HostName); err != nil {
			return err
		}
	}

	now, err := p.Kernel.Interface("", one.HostName)
	if err != nil {
		return err
	}
	if one.Before.MTU != 0 && now.MTU != one.Before.MTU {
		if err := p.Kernel.SetInterface("", one.HostName, Interface{MTU: one.Before.MTU}); err != nil {
			return err
		}
	}
	if one.Before.MAC == "" || strings.EqualFold(now.MAC, one.Before.MAC) {
		return nil
	}
	if err := p.Kernel.SetInterface("", one.HostName, Interface{MAC: one.Before.MAC}); err != nil {
		return p.Kernel.Rebind(one.Address)
	}
	return nil
}

// Check sees whether the pod has its interface.
func (p *Plugin) Check(_ context.Context, call *skel.CmdArgs) error {
	one, ok, err := p.assignments().Find(call.ContainerID, call.IfName)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("the container has no virtual function as %s", call.IfName)
	}
	if one.HostName == "" {
		return nil
	}
	_, err = p.Kernel.Interface(call.Netns, call.IfName)
	return err
}

// GC takes back what sandboxes have of which the runtime knows nothing any more.
func (p *Plugin) GC(ctx context.Context, call *skel.CmdArgs) error {
	conf, err := ParseConf(call.StdinData, call.Args)
	if err != nil {
		return err
	}
	var failed []error
	if conf.IPAM.Type != "" {
		failed = append(failed, invoke.DelegateGC(ctx, conf.IPAM.Type, call.StdinData, p.Exec))
	}

	valid := map[types.GCAttachment]bool{}
	for _, v := range conf.ValidAttachments {
		valid[v] = true
	}
	all, err := p.assignments().All()
	failed = append(failed, err)
	for _, one := range all {
		// The runtime names those of one network; of another one's only the namespace is known.
		if !valid[types.GCAttachment{ContainerID: one.Container, IfName: one.Interface}] && !p.Kernel.HasNamespace(one.Namespace) {
			failed = append(failed, p.restore(one))
		}
	}
	return errors.Join(failed...)
}

// Status says whether pods can be added.
func (p *Plugin) Status(ctx context.Context, call *skel.CmdArgs) error {
	conf, err := ParseConf(call.StdinData, call.Args)
	if err != nil || conf.IPAM.Type == "" {
		return err
	}
	return invoke.DelegateStatus(ctx, conf.IPAM.Type, call.StdinData, p.Exec)
}

// addAddresses adds to a result what IPAM gave.
func (p *Plugin) addAddresses(result *current.Result, given types.Result) error {
	got, err := current.NewResultFromResult(given)
	if err != nil {
		return fmt.Errorf("read addresses: %w", err)
	}
	if len(got.IPs) == 0 {
		return errors.New("the plugin of IPAM gave no address")
	}
	result.IPs, result.Routes = got.IPs, got.Routes
	for _, ip := range result.IPs {
		ip.Interface = current.Int(0)
	}
	if len(got.DNS.Nameservers) > 0 || len(got.DNS.Search) > 0 || got.DNS.Domain != "" {
		result.DNS = got.DNS
	}
	return nil
}

// addressesOf are what a result has for the interface. A route without a gateway goes by that of the first address of
// its family.
func addressesOf(result *current.Result) (a Addresses) {
	for _, ip := range result.IPs {
		network := ip.Address
		a.Networks = append(a.Networks, &network)
	}
	for _, r := range result.Routes {
		route := Route{To: &r.Dst, Gateway: r.GW, MTU: r.MTU, Metric: r.Priority}
		if route.Gateway == nil {
			for _, ip := range result.IPs {
				if (ip.Address.IP.To4() != nil) == (r.Dst.IP.To4() != nil) {
					route.Gateway = ip.Gateway
					break
				}
			}
		}
		a.Routes = append(a.Routes, route)
	}
	return a
}
