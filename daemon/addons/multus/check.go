package multus

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
)

// Check asks the plugins of each of a sandbox's networks whether it is as it was added.
func (p *Plugin) Check(ctx context.Context, call *skel.CmdArgs) error {
	conf, err := ParseConf(call.StdinData)
	if err != nil {
		return err
	}
	sandbox, err := p.load(conf, call)
	if err != nil {
		return err
	}

	for _, a := range sandbox.Attachments {
		list, cni, runtime, err := p.prepare(sandbox, a, call.Netns)
		if err != nil {
			return err
		}
		if err := cni.CheckNetworkList(ctx, list, runtime); err != nil && !errors.Is(err, libcni.ErrorCheckNotSupp) {
			return fmt.Errorf("network %s on %s: %w", a.Network, a.Interface, err)
		}
	}
	return nil
}

// GC deletes what sandboxes have of which the runtime knows nothing any more, and has the plugins do so.
func (p *Plugin) GC(ctx context.Context, call *skel.CmdArgs) error {
	conf, err := ParseConf(call.StdinData)
	if err != nil {
		return err
	}

	valid := map[types.GCAttachment]bool{}
	for _, v := range conf.Valid {
		valid[v] = true
	}
	all, err := p.records().All()
	failed := []error{err}
	known := map[string]*libcni.NetworkConfigList{}
	kept := map[string][]types.GCAttachment{}
	for _, sandbox := range all {
		if !valid[types.GCAttachment{ContainerID: sandbox.Container, IfName: sandbox.Interface}] {
			if err := p.deleteAll(ctx, sandbox, ""); err != nil {
				failed = append(failed, err)
			}
			continue
		}
		for _, a := range sandbox.Attachments {
			if list, err := libcni.NetworkConfFromBytes(a.Config); err == nil && !a.OfCluster {
				known[list.Name] = list
				one := types.GCAttachment{ContainerID: sandbox.Container, IfName: a.Interface}
				kept[list.Name] = append(kept[list.Name], one)
			}
		}
	}

	for name, list := range known {
		failed = append(failed, p.cni(false).GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: kept[name]}))
	}
	if cluster, err := readDefault(p.Dirs.Conf); err == nil {
		failed = append(failed, p.cni(true).GCNetworkList(ctx, cluster, &libcni.GCArgs{ValidAttachments: conf.Valid}))
	}
	return errors.Join(failed...)
}

// pluginNotAvailable is the code of an answer to STATUS (CNI specification 1.1, section 2).
const pluginNotAvailable = 50

// Status says whether pods can be added.
func (p *Plugin) Status(ctx context.Context, call *skel.CmdArgs) error {
	conf, err := ParseConf(call.StdinData)
	if err != nil {
		return err
	}

	cluster, err := readDefault(p.Dirs.Conf)
	if err != nil {
		return types.NewError(pluginNotAvailable, err.Error(), "")
	}
	if _, err := os.Stat(p.Dirs.kubeconfig()); err != nil && !conf.Draining {
		return types.NewError(pluginNotAvailable, "the plugin has no access to the API server", err.Error())
	}
	return p.cni(true).GetStatusNetworkList(ctx, cluster)
}
