package multus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	corev1 "k8s.io/api/core/v1"
)

// Plugin is what the runtime calls.
type Plugin struct {
	Dirs     Dirs
	Path     []string    // where plugins are, as CNI_PATH says
	Exec     invoke.Exec // nil calls programs
	Open     func(kubeconfig string) (API, error)
	SetRoute func(namespace, device string, gateways []string) error
	Log      io.Writer // standard error: the runtime's log
}

// podName is what the runtime says of a pod in CNI_ARGS.
type podName struct{ namespace, name, uid string }

func (p podName) String() string { return p.namespace + "/" + p.name }

// splitArgs reads CNI_ARGS, KEY=VALUE with semicolons between.
func splitArgs(text string) (args [][2]string, pod podName) {
	for pair := range strings.SplitSeq(text, ";") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			continue
		}
		args = append(args, [2]string{key, value})
		switch key {
		case "K8S_POD_NAMESPACE":
			pod.namespace = value
		case "K8S_POD_NAME":
			pod.name = value
		case "K8S_POD_UID":
			pod.uid = value
		}
	}
	return args, pod
}

// records of the plugin's pods.
func (p *Plugin) records() records { return podRecords(p.Dirs) }

func podRecords(d Dirs) records { return records(filepath.Join(d.State, "pods")) }

// Add gives a sandbox its interfaces: that of the default network first, whose result it returns, then those that the
// pod's annotation selects. If one cannot be added, those before it are deleted, the last first.
func (p *Plugin) Add(ctx context.Context, call *skel.CmdArgs) (types.Result, error) {
	conf, err := ParseConf(call.StdinData)
	if err != nil {
		return nil, err
	}

	args, name := splitArgs(call.Args)
	sandbox := PodAttachments{Container: call.ContainerID, Interface: call.IfName, Args: args}
	result, err := p.addPod(ctx, conf, sandbox, name, call.Netns)
	if err != nil && name.name != "" {
		err = fmt.Errorf("pod %s: %w", name, err)
	}
	return result, err
}

func (p *Plugin) addPod(
	ctx context.Context, conf Conf, sandbox PodAttachments, name podName, namespace string,
) (types.Result, error) {
	cluster, err := p.clusterAttachment(conf, sandbox.Interface)
	if err != nil {
		return nil, err
	}
	if conf.Draining || name.name == "" {
		return p.add(ctx, sandbox, cluster, namespace)
	}

	api, err := p.Open(p.Dirs.kubeconfig())
	if err != nil {
		return nil, err
	}
	pod, err := p.readPod(ctx, api, name)
	if err != nil {
		return nil, err
	}
	if sandbox.Attachments, err = p.planPod(ctx, api, conf, pod, cluster); err != nil {
		return nil, err
	}

	if err := p.records().Save(sandbox); err != nil {
		return nil, err
	}
	result, status, err := p.addAll(ctx, sandbox, namespace)
	if err == nil {
		if err = api.WriteStatus(ctx, pod, status); err != nil && !sandbox.hasMore() {
			fmt.Fprintf(p.Log, "pod %s: %v\n", name, err) // it has its network, and nobody asked for others
			err = nil
		}
	}
	if err != nil {
		if left := p.deleteAll(context.WithoutCancel(ctx), sandbox, namespace); left != nil {
			err = fmt.Errorf("%w; what was added before is deleted with the pod: %w", err, left)
		}
		return nil, err
	}
	return result, nil
}

// readPod reads a pod and sees that it is the one that the runtime means.
func (p *Plugin) readPod(ctx context.Context, api API, name podName) (*corev1.Pod, error) {
	pod, err := api.Pod(ctx, name.namespace, name.name)
	if err != nil {
		return nil, err
	}
	_, isMirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	if name.uid != "" && name.uid != string(pod.UID) && !isMirror {
		return nil, fmt.Errorf("it was replaced by another one of that name, with the UID %s", pod.UID)
	}
	return pod, nil
}

// clusterAttachment is the cluster's default network.
func (p *Plugin) clusterAttachment(conf Conf, device string) (Attachment, error) {
	list, err := readDefault(p.Dirs.Conf)
	if err != nil {
		return Attachment{}, err
	}
	config, err := encodeList(list)
	return Attachment{
		Network: list.Name, Interface: device, IsDefault: true, OfCluster: true,
		Config: config, Capabilities: conf.RuntimeConfig,
	}, err
}

// planPod decides what a pod gets.
func (p *Plugin) planPod(
	ctx context.Context, api API, conf Conf, pod *corev1.Pod, cluster Attachment,
) ([]Attachment, error) {
	devices := &podDevices{read: func() (map[string][]string, error) {
		return readDevices(ctx, p.Dirs.Kubelet, pod.Namespace, pod.Name)
	}}
	plan := []Attachment{cluster}
	if text := pod.Annotations[DefaultNetworkKey]; strings.TrimSpace(text) != "" {
		s, err := ParseDefaultNetwork(text)
		if err != nil {
			return nil, err
		}
		s.Interface = cluster.Interface
		if plan[0], err = p.planOne(ctx, api, conf, pod.Namespace, s, devices); err != nil {
			return nil, err
		}
		plan[0].IsDefault = true
		for name, value := range conf.RuntimeConfig {
			if _, ok := plan[0].Capabilities[name]; !ok {
				plan[0].Capabilities[name] = value
			}
		}
	}

	selected, err := ParseNetworks(pod.Annotations[NetworksKey], pod.Namespace, cluster.Interface)
	if err != nil {
		return nil, err
	}
	for _, s := range selected {
		a, err := p.planOne(ctx, api, conf, pod.Namespace, s, devices)
		if err != nil {
			return nil, err
		}
		plan = append(plan, a)
	}
	return plan, nil
}

func (p *Plugin) planOne(
	ctx context.Context, api API, conf Conf, namespace string, s Selection, devices *podDevices,
) (Attachment, error) {
	if err := conf.checkNamespace(namespace, s.Namespace); err != nil {
		return Attachment{}, fmt.Errorf("network %s: %w", s, err)
	}
	definition, err := api.Definition(ctx, s.Namespace, s.Name)
	if err != nil {
		return Attachment{}, err
	}
	config, err := readDefinition(s, definition.Config, p.Dirs.Networks)
	if err != nil {
		return Attachment{}, err
	}
	if definition.Resource != "" {
		s.DeviceID, err = devices.claim(definition.Resource, s.DeviceID)
		if err == nil {
			config, err = addDevice(config, s.DeviceID)
		}
		if err != nil {
			return Attachment{}, fmt.Errorf("network %s: %w", s, err)
		}
	}
	return Attachment{
		Network: s.String(), Interface: s.Interface,
		Config: config, Capabilities: s.capabilities(), DefaultRoute: s.DefaultRoute,
	}, nil
}

func (p *Plugin) addAll(
	ctx context.Context, sandbox PodAttachments, namespace string,
) (first types.Result, all []NetworkStatus, err error) {
	for i, a := range sandbox.Attachments {
		result, err := p.add(ctx, sandbox, a, namespace)
		if err != nil {
			return nil, nil, err
		}
		if i == 0 {
			first = result
		}

		status, err := networkStatus(a, result)
		if err == nil && len(a.DefaultRoute) > 0 {
			err = p.SetRoute(namespace, a.Interface, a.DefaultRoute)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("network %s: %w", a.Network, err)
		}
		all = append(all, status)
	}
	return first, all, nil
}

func (p *Plugin) add(ctx context.Context, sandbox PodAttachments, a Attachment, namespace string) (types.Result, error) {
	list, cni, runtime, err := p.prepare(sandbox, a, namespace)
	if err != nil {
		return nil, err
	}
	result, err := cni.AddNetworkList(ctx, list, runtime)
	if err != nil {
		return nil, fmt.Errorf("network %s on %s: %w", a.Network, a.Interface, err)
	}
	if result == nil { // a plugin that says nothing
		result = &current.Result{CNIVersion: current.ImplementedSpecVersion}
	}
	return result, nil
}

// prepare makes of an attachment what libcni is called with.
func (p *Plugin) prepare(sandbox PodAttachments, a Attachment, namespace string) (
	*libcni.NetworkConfigList, *libcni.CNIConfig, *libcni.RuntimeConf, error,
) {
	list, err := libcni.NetworkConfFromBytes(a.Config)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("network %s: %w", a.Network, err)
	}
	return list, p.cni(a.OfCluster), &libcni.RuntimeConf{
		ContainerID: sandbox.Container, NetNS: namespace, IfName: a.Interface,
		Args: sandbox.Args, CapabilityArgs: a.Capabilities,
	}, nil
}

// cni calls plugins. Results of the cluster's default network are kept where the runtime keeps its own: whichever of the
// two is asked to delete what the other one added finds them.
func (p *Plugin) cni(ofCluster bool) *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(p.Path, p.results(ofCluster), p.Exec)
}

func (p *Plugin) results(ofCluster bool) string {
	if ofCluster {
		return p.Dirs.Results
	}
	return p.Dirs.State
}

// Del takes all interfaces from a sandbox, as they were added, whatever has become of the pod, the definitions and the
// API server since. What is gone is no failure. A sandbox of before the add-on has the default network alone.
func (p *Plugin) Del(ctx context.Context, call *skel.CmdArgs) error {
	conf, err := ParseConf(call.StdinData)
	if err != nil {
		return err
	}

	sandbox, err := p.load(conf, call)
	if err != nil {
		return err
	}
	if err := p.deleteAll(ctx, sandbox, call.Netns); err != nil {
		return err
	}
	if conf.Draining {
		return finishDraining(p.Dirs)
	}
	return nil
}

// load returns what a sandbox has.
func (p *Plugin) load(conf Conf, call *skel.CmdArgs) (PodAttachments, error) {
	sandbox, ok, err := p.records().Load(call.ContainerID, call.IfName)
	if err != nil {
		fmt.Fprintf(p.Log, "%v; it is taken for one with the default network alone\n", err)
	}
	if ok {
		return sandbox, nil
	}

	args, _ := splitArgs(call.Args)
	sandbox = PodAttachments{Container: call.ContainerID, Interface: call.IfName, Args: args}
	cluster, err := p.clusterAttachment(conf, call.IfName)
	if errors.Is(err, errNoDefault) {
		return sandbox, nil
	}
	sandbox.Attachments = []Attachment{cluster}
	return sandbox, err
}

// deleteAll deletes a sandbox's attachments, the last first, and then forgets them. One that cannot be deleted does not
// keep the others.
func (p *Plugin) deleteAll(ctx context.Context, sandbox PodAttachments, namespace string) error {
	var failed []error
	for i := len(sandbox.Attachments) - 1; i >= 0; i-- {
		a := sandbox.Attachments[i]
		if err := p.delete(ctx, sandbox, a, namespace); err != nil {
			failed = append(failed, fmt.Errorf("delete network %s on %s: %w", a.Network, a.Interface, err))
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	return p.records().Remove(sandbox.Container, sandbox.Interface)
}

func (p *Plugin) delete(ctx context.Context, sandbox PodAttachments, a Attachment, namespace string) error {
	list, cni, runtime, err := p.prepare(sandbox, a, namespace)
	if err != nil {
		return err
	}

	if !a.OfCluster {
		for _, plugin := range list.Plugins {
			if _, err := p.exec().FindInPath(plugin.Network.Type, p.Path); err != nil {
				fmt.Fprintf(p.Log, "network %s is not deleted: %v\n", a.Network, err) // what it made goes with the namespace
				return nil
			}
		}
	}

	// libcni does not write results atomically. One that a power cut left unreadable would keep the pod: without it,
	// plugins delete what they know.
	if _, err := cni.GetNetworkListCachedResult(list, runtime); err != nil {
		file := strings.Join([]string{list.Name, sandbox.Container, a.Interface}, "-")
		_ = os.Remove(filepath.Join(p.results(a.OfCluster), "results", file))
	}
	return cni.DelNetworkList(ctx, list, runtime)
}

func (p *Plugin) exec() invoke.Exec {
	if p.Exec != nil {
		return p.Exec
	}
	return &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: p.Log}}
}
