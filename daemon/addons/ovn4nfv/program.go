package ovn4nfv

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"firstlight.dev/firstlight/daemon/addons/cniprogram"
)

// RunPlugin answers one call of the runtime.
func RunPlugin(ctx context.Context) {
	p := &Plugin{Dirs: NodeDirs("/"), Node: machine{}}
	p.Pod = p.readPod
	cniprogram.Answer(ctx, p, "firstlight's CNI plugin, compatible with Nodus")
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
