package multus

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// API is what the plugin asks of the API server.
type API interface {
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// Definition returns what a NetworkAttachmentDefinition says.
	Definition(ctx context.Context, namespace, name string) (Definition, error)
	// WriteStatus sets a pod's annotation StatusKey. A pod of that name with another UID is left alone.
	WriteStatus(ctx context.Context, pod *corev1.Pod, status []NetworkStatus) error
}

// Definition is a NetworkAttachmentDefinition.
type Definition struct {
	Config   string // spec.config
	Resource string // its annotation ResourceKey
}

var definitions = schema.GroupVersionResource{
	Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions",
}

// apiTimeout bounds one question: the kubelet tries a pod again.
const apiTimeout = 15 * time.Second

type client struct {
	pods        corev1client.PodsGetter
	definitions dynamic.Interface
}

// openAPI uses the access that the agent wrote.
func openAPI(kubeconfig string) (API, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the plugin's access to the API server: %w; see the pod multus of this node in %s",
			err, systemNamespace)
	}
	return newClient(config)
}

func newClient(config *rest.Config) (API, error) {
	config = rest.CopyConfig(config)
	config.Timeout = apiTimeout
	config.UserAgent = "firstlight-multus"
	pods, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	all, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return client{pods, all}, nil
}

func (c client) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, err := c.pods.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, explain("read the pod", err)
	}
	return pod, nil
}

func (c client) Definition(ctx context.Context, namespace, name string) (Definition, error) {
	object, err := c.definitions.Resource(definitions).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Definition{}, fmt.Errorf("NetworkAttachmentDefinition %s/%s does not exist; create it, or take it out of the "+
			"pod's annotation", namespace, name)
	}
	if err != nil {
		return Definition{}, explain(fmt.Sprintf("read NetworkAttachmentDefinition %s/%s", namespace, name), err)
	}
	config, _, err := unstructured.NestedString(object.Object, "spec", "config")
	if err != nil {
		return Definition{}, fmt.Errorf("NetworkAttachmentDefinition %s/%s: spec.config is no string", namespace, name)
	}
	return Definition{Config: config, Resource: object.GetAnnotations()[ResourceKey]}, nil
}

func (c client) WriteStatus(ctx context.Context, pod *corev1.Pod, status []NetworkStatus) error {
	text, err := json.MarshalIndent(status, "", "    ")
	if err != nil {
		return fmt.Errorf("encode network-status: %w", err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]string{StatusKey: string(text)},
	}})
	if err != nil {
		return fmt.Errorf("encode network-status: %w", err)
	}

	_, err = c.pods.Pods(pod.Namespace).
		Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return explain("write annotation "+StatusKey, err)
	}
	return nil
}

// explain says what was asked, and what to do where the plugin's token is no good.
func explain(what string, err error) error {
	if apierrors.IsUnauthorized(err) {
		return fmt.Errorf("%s: %w; the pod multus of this node in %s renews the plugin's token: if there is none because "+
			"the add-on was removed, remove /etc/cni/net.d/%s on the node", what, err, systemNamespace, confFile)
	}
	return fmt.Errorf("%s: %w", what, err)
}
