package ovn4nfv

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// IsPlugin reports whether a program was called by a path as the runtime calls the plugin.
func IsPlugin(path string) bool { return filepath.Base(path) == Name }

// RunPlugin answers one call and ends the process if that fails, as the CNI specification wants it.
func RunPlugin(ctx context.Context) {
	p := &Plugin{Dirs: NodeDirs("/"), Node: machine{}}
	p.Pod = p.readPod
	with := func(do func(context.Context, *skel.CmdArgs) error) func(*skel.CmdArgs) error {
		return func(call *skel.CmdArgs) error { return do(ctx, call) }
	}
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add: with(func(ctx context.Context, call *skel.CmdArgs) error {
			result, err := p.Add(ctx, call)
			if err != nil {
				return err
			}
			var conf struct {
				CNIVersion string `json:"cniVersion"`
			}
			if err := json.Unmarshal(call.StdinData, &conf); err != nil {
				return fmt.Errorf("read the version: %w", err)
			}
			return types.PrintResult(result, conf.CNIVersion)
		}),
		Del:   with(p.Del),
		Check: with(p.Check),
		// When a pod's namespace ends its interfaces do, and the agent takes away their ports.
		GC:     func(*skel.CmdArgs) error { return nil },
		Status: func(*skel.CmdArgs) error { return nil },
	}, version.All, "firstlight's CNI plugin, compatible with Nodus")
}

// apiTimeout bounds one question: the kubelet tries a pod again.
const apiTimeout = 10 * time.Second

// readPod uses the access that the agent wrote.
func (p *Plugin) readPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.Dirs.kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read the plugin's access to the API server: %w; see the pod %s of this node in %s",
			err, AgentName, systemNamespace)
	}
	config.Timeout = apiTimeout
	config.UserAgent = "firstlight-ovn4nfv"
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	pod, err := client.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsUnauthorized(err) {
		return nil, fmt.Errorf("read the pod: %w; the pod %s of this node in %s renews the plugin's token",
			err, AgentName, systemNamespace)
	}
	if err != nil {
		return nil, fmt.Errorf("read the pod: %w", err)
	}
	return pod, nil
}
