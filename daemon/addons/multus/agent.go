package multus

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"time"

	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/daemon/addons/cniprogram"
	"firstlight.dev/firstlight/daemon/addons/removal"
)

// Options are what the owner of a cluster may decide.
type Options struct {
	Isolation        bool   // as upstream's namespaceIsolation
	GlobalNamespaces string // as upstream's; "default" if empty
}

// Agent keeps the plugin on one node.
type Agent struct {
	Node    string
	Dirs    Dirs   // of the node, as this pod has them mounted
	Image   string // folder of the plugins that the image has
	Self    string // this program
	Options Options
	Log     *slog.Logger

	files programFiles
	said  string // the last fault, to say each once
}

// repairEvery is how often what is on the node is compared with what belongs there, the token included.
const repairEvery = 10 * time.Second

// Install installs all of it once, the runtime's configuration last. It waits for the default network's.
func (a *Agent) Install(ctx context.Context) error {
	for !a.ensure() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	return nil
}

// Run repairs what is on the node until ctx ends. If it ends because the DaemonSet was removed, it takes the plugin out
// of service; after a mere restart of the pod it stays.
func (a *Agent) Run(ctx context.Context) error {
	for {
		a.ensure()
		select {
		case <-ctx.Done():
			return a.leave(context.WithoutCancel(ctx))
		case <-time.After(repairEvery):
		}
	}
}

// ensure reports whether all is there.
func (a *Agent) ensure() bool {
	err := a.install()
	switch {
	case err == nil && a.said != "installed":
		a.said = "installed"
		a.Log.Info("the plugin is installed", "node", a.Node)
	case err != nil && a.said != err.Error():
		a.said = err.Error()
		a.Log.Warn("the plugin is not installed as it should be", "node", a.Node, "error", err)
	}
	return err == nil
}

func (a *Agent) install() error {
	if err := a.files.install(a.Dirs, a.Self, a.Image); err != nil {
		return err
	}

	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("read the pod's account: %w", err)
	}
	text, err := cniprogram.EncodeAccess(config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(a.Dirs.kubeconfig()), 0o700); err != nil {
		return fmt.Errorf("write the plugin's access: %w", err)
	}
	if err := atomicfile.WriteChanged(a.Dirs.kubeconfig(), text, 0o600); err != nil {
		return err
	}

	if text, err = encodeConf(a.Dirs, a.Options, false); err != nil {
		return err
	}
	return atomicfile.WriteChanged(filepath.Join(a.Dirs.Conf, confFile), text, 0o600)
}

// encodeConf is the configuration that the runtime reads: the default network's version and capabilities, and that
// plugin alone.
func encodeConf(d Dirs, options Options, draining bool) ([]byte, error) {
	cluster, err := readDefault(d.Conf)
	if err != nil {
		return nil, err
	}

	able := map[string]bool{"portMappings": true}
	for _, p := range cluster.Plugins {
		maps.Copy(able, p.Network.Capabilities)
	}
	global := options.GlobalNamespaces
	if global == "" {
		global = "default"
	}

	// Runtimes with an older libcni read cniVersion alone, and know no 1.1.0.
	text, err := json.MarshalIndent(map[string]any{
		"cniVersion": cluster.CNIVersion, "cniVersions": []string{cluster.CNIVersion, "1.1.0"}, "name": networkName,
		"plugins": []Conf{{
			Type: Name, Capabilities: able, Draining: draining, Isolation: options.Isolation, GlobalNamespaces: global,
		}},
	}, "", "  ")
	return append(text, '\n'), err
}

// leave is what a pod does that is ending.
func (a *Agent) leave(ctx context.Context) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("read the pod's account: %w", err)
	}
	sets, err := appsv1client.NewForConfig(config)
	if err != nil {
		return err
	}

	removed, err := removal.IsRemoved(ctx, sets.DaemonSets(systemNamespace), Name)
	if err != nil {
		a.Log.Warn("the plugin stays: whether it was removed is unknown", "error", err)
		return nil
	}
	if !removed {
		return nil
	}

	a.Log.Info("the add-on was removed; new pods get the default network alone", "node", a.Node)
	return startDraining(a.Dirs, a.Options)
}
