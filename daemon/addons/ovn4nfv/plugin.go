package ovn4nfv

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	corev1 "k8s.io/api/core/v1"
)

// Plugin is what a meta-plugin calls.
type Plugin struct {
	Dirs Dirs
	Node Node
	// Pod reads a pod from the API server.
	Pod func(ctx context.Context, namespace, name string) (*corev1.Pod, error)
}

// Node is what the plugin asks of the machine and its Open vSwitch. A namespace is a path.
type Node interface {
	// Links returns the ends of interfaces that the sandbox of a container has in Open vSwitch's namespace.
	Links(container string) ([]string, error)
	// Create makes an interface of a pod, and its other end.
	Create(container, namespace string, l Link) error
	// Configure gives an interface its address and takes it up.
	Configure(namespace string, l Link, keep []netip.Prefix) error
	// Check says what is wrong with an interface of a pod.
	Check(namespace string, l Link) error
	// Remove removes an interface by its other end. One that is gone is no failure.
	Remove(link string) error

	// Connect makes the other end a port of OVN, and waits until OVN has it set up.
	Connect(ctx context.Context, p Port) error
	// Disconnect takes ports from Open vSwitch. Those that are gone are no failure.
	Disconnect(ctx context.Context, links ...string) error
}

// Link is an interface of a pod, and its other end.
type Link struct {
	Name  string // in the pod
	Other string // in Open vSwitch's namespace
	MAC   string
	MTU   int // bytes
	// WritesChecksums says that nothing after the interface writes them.
	WritesChecksums bool

	Address netip.Prefix
	Gateway netip.Addr // of the pod's default route; zero if that is elsewhere
}

// Port is a link as OVN sees it.
type Port struct {
	Link, Name, UID string // the other end's name, the logical port's, and the pod's UID
	MAC, Pod        string
}

// Conf is the plugin's configuration.
type Conf struct {
	types.NetConf
	Network string `json:"nfn-network"` // the one network to attach; all if empty
}

// Settings are what the agent knows of a node and its cluster.
type Settings struct {
	MTU int `json:"mtu"` // bytes
	// Userspace says that ovs-vswitchd switches packets itself.
	Userspace bool `json:"userspace"`
	// Keep are networks that pods go on reaching by the cluster's network when another interface has their default route.
	Keep []netip.Prefix `json:"keep"`
}

func readSettings(d Dirs) (s Settings, err error) {
	text, err := os.ReadFile(d.settings())
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read the plugin's settings: %w; see the pod %s of this node in %s", err, AgentName, systemNamespace)
	}
	return s, nil
}

// annotationWait is how long the operator may need to give a pod its interfaces.
const annotationWait = 20 * time.Second

// parseArgs reads CNI_ARGS, KEY=VALUE with semicolons between.
func parseArgs(text string) (namespace, name, uid string) {
	for pair := range strings.SplitSeq(text, ";") {
		switch key, value, _ := strings.Cut(pair, "="); key {
		case "K8S_POD_NAMESPACE":
			namespace = value
		case "K8S_POD_NAME":
			name = value
		case "K8S_POD_UID":
			uid = value
		}
	}
	return namespace, name, uid
}

// Add gives a sandbox the interfaces that the operator decided on. What an earlier attempt left is removed first.
func (p *Plugin) Add(ctx context.Context, call *skel.CmdArgs) (types.Result, error) {
	var conf Conf
	if err := json.Unmarshal(call.StdinData, &conf); err != nil {
		return nil, fmt.Errorf("read the configuration of plugin %s: %w", Name, err)
	}
	settings, err := readSettings(p.Dirs)
	if err != nil {
		return nil, err
	}
	pod, interfaces, err := p.wait(ctx, call)
	if err != nil {
		return nil, err
	}
	if interfaces, err = conf.choose(pod, interfaces); err != nil {
		return nil, err
	}

	for _, i := range interfaces { // of an earlier attempt
		if err := p.remove(ctx, otherName(call.ContainerID, i.Interface)); err != nil {
			return nil, err
		}
	}
	result := &current.Result{CNIVersion: current.ImplementedSpecVersion, DNS: conf.DNS}
	for _, i := range interfaces {
		if err := p.attach(ctx, call, pod, i, settings, result); err != nil {
			for _, made := range interfaces {
				err = errors.Join(err, p.remove(context.WithoutCancel(ctx), otherName(call.ContainerID, made.Interface)))
			}
			return nil, fmt.Errorf("interface %s on network %s: %w", i.Interface, i.Network, err)
		}
	}
	return result, nil
}

// wait waits for the pod's annotation.
func (p *Plugin) wait(ctx context.Context, call *skel.CmdArgs) (*corev1.Pod, []Interface, error) {
	namespace, name, uid := parseArgs(call.Args)
	if name == "" {
		return nil, nil, errors.New("the runtime names no pod (K8S_POD_NAME)")
	}
	deadline := time.Now().Add(annotationWait)
	for {
		pod, err := p.Pod(ctx, namespace, name)
		if err != nil {
			return nil, nil, err
		}
		if uid != "" && uid != string(pod.UID) {
			return nil, nil, fmt.Errorf("it was replaced by another one of that name, with the UID %s", pod.UID)
		}
		if text, isDone := pod.Annotations[InterfacesKey]; isDone {
			interfaces, err := ParseInterfaces(text)
			return pod, interfaces, err
		}
		if _, asks := pod.Annotations[NetworkKey]; !asks {
			return nil, nil, fmt.Errorf("the pod has no annotation %s; say there which networks it wants", NetworkKey)
		}

		if time.Now().After(deadline) {
			return nil, nil, fmt.Errorf("the operator has given the pod no interfaces yet; an Event of the pod says why, or see "+
				"Deployment %s in %s", OperatorName, systemNamespace)
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// choose returns the interfaces that a configuration is for.
func (c Conf) choose(pod *corev1.Pod, all []Interface) ([]Interface, error) {
	if c.Network == "" {
		return all, nil
	}
	for _, i := range all {
		if i.Network == pod.Namespace+"/"+c.Network || i.Network == sharedNamespace+"/"+c.Network {
			return []Interface{i}, nil
		}
	}
	return nil, fmt.Errorf("nfn-network %s is none of the networks that the pod's annotation %s names", c.Network, NetworkKey)
}

// otherName is that of an interface's other end: the same for each attempt.
func otherName(container, device string) string {
	sum := sha256.Sum256([]byte(container + "/" + device))
	return "ov" + hex.EncodeToString(sum[:])[:13]
}

func newLink(container string, i Interface, s Settings) (Link, error) {
	l := Link{
		Name: i.Interface, Other: otherName(container, i.Interface), MAC: i.MAC, MTU: s.MTU, WritesChecksums: s.Userspace,
	}
	var err error
	if l.Address, err = i.prefix(); err != nil {
		return l, err
	}
	if i.DefaultGateway == "true" && len(i.Gateways) > 0 {
		l.Gateway, err = netip.ParseAddr(i.Gateways[0])
	}
	return l, err
}

// attach makes one interface, and adds it to a result.
func (p *Plugin) attach(
	ctx context.Context, call *skel.CmdArgs, pod *corev1.Pod, i Interface, s Settings, result *current.Result,
) error {
	l, err := newLink(call.ContainerID, i, s)
	if err != nil {
		return err
	}
	if err := p.Node.Create(call.ContainerID, call.Netns, l); err != nil {
		return err
	}
	if err := p.Node.Configure(call.Netns, l, s.Keep); err != nil {
		return err
	}
	err = p.Node.Connect(ctx, Port{
		Link: l.Other, Name: portName(pod.Namespace, pod.Name, i.Interface), UID: string(pod.UID), MAC: i.MAC,
		Pod: pod.Namespace + "/" + pod.Name,
	})
	if err != nil {
		return err
	}

	result.Interfaces = append(result.Interfaces, &current.Interface{
		Name: l.Name, Mac: l.MAC, Mtu: l.MTU, Sandbox: call.Netns,
	})
	ip := &current.IPConfig{
		Interface: current.Int(len(result.Interfaces) - 1),
		Address:   net.IPNet{IP: l.Address.Addr().AsSlice(), Mask: net.CIDRMask(l.Address.Bits(), 32)},
	}
	if l.Gateway.IsValid() {
		ip.Gateway = l.Gateway.AsSlice()
		result.Routes = append(result.Routes, &types.Route{
			Dst: net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, GW: l.Gateway.AsSlice(),
		})
	}
	result.IPs = append(result.IPs, ip)
	return nil
}

// Del removes what a sandbox has. What is gone is no failure.
func (p *Plugin) Del(ctx context.Context, call *skel.CmdArgs) error {
	links, err := p.Node.Links(call.ContainerID)
	if err != nil {
		return err
	}
	return p.remove(ctx, links...)
}

// remove removes interfaces before their ports: without Open vSwitch, the agent takes away ports that have none.
func (p *Plugin) remove(ctx context.Context, links ...string) error {
	if len(links) == 0 {
		return nil
	}
	for _, link := range links {
		if err := p.Node.Remove(link); err != nil {
			return fmt.Errorf("remove interface %s: %w", link, err)
		}
	}
	_ = p.Node.Disconnect(ctx, links...) // the agent tries again
	return nil
}

// Check sees whether the pod has its interfaces.
func (p *Plugin) Check(ctx context.Context, call *skel.CmdArgs) error {
	settings, err := readSettings(p.Dirs)
	if err != nil {
		return err
	}
	_, interfaces, err := p.wait(ctx, call)
	if err != nil {
		return err
	}
	var failed []error
	for _, i := range interfaces {
		l, err := newLink(call.ContainerID, i, settings)
		if err == nil {
			err = p.Node.Check(call.Netns, l)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("interface %s: %w", i.Interface, err))
		}
	}
	return errors.Join(failed...)
}

// GC has nothing to do: when a pod's namespace ends its interfaces do, and the agent takes away their ports.
func (p *Plugin) GC(context.Context, *skel.CmdArgs) error { return nil }

// Status has nothing that a pod could not wait for.
func (p *Plugin) Status(context.Context, *skel.CmdArgs) error { return nil }
