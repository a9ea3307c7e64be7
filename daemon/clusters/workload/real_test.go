package workload

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// TestARealAPIServerIsAsked: it answers in its own encoding, and in pages.
func TestARealAPIServerIsAsked(t *testing.T) {
	server := sandbox.APIServer(t)
	config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
	require.NoError(t, err)
	admin, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.CoreV1().Events("default").Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "web.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web"},
		Type:           "Warning",
		Reason:         "BackOff",
		Message:        "Back-off restarting failed container",
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	read := func(path string) []byte {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		return text
	}
	file := clientcmdapi.NewConfig()
	file.CurrentContext = "c"
	file.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: read(server.CAFile)}
	file.AuthInfos["u"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: read(server.CertFile),
		ClientKeyData:         read(server.KeyFile),
	}
	file.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	text, err := clientcmd.Write(*file)
	require.NoError(t, err)

	c, err := asker().Ask(t.Context(), text)
	require.NoError(t, err)
	assert.Regexp(t, `^v1\.\d+\.\d+`, c.Version)
	assert.Equal(t, []Node{{Name: "edge-1", State: "Unknown"}}, c.Nodes)
	require.NotEmpty(t, c.Events)
	assert.Equal(t, "Pod default/web", c.Events[0].Object)
	assert.Empty(t, c.Pods)
}
