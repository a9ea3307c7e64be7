package workload

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

	pod := createPod(t, admin)

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
	assert.Len(t, c.Events, 3)
	assert.True(t, slices.ContainsFunc(c.Events, func(e Event) bool { return e.Object == "Pod default/web" }))
	require.Len(t, c.Pods, 1)
	assert.Equal(t, "api", c.Pods[0].Name)

	d, err := asker().AskPod(t.Context(), text, PodRef{"team", "api"})
	require.NoError(t, err)
	assert.Equal(t, []Container{{Name: "api", Image: "api:1", State: "Waiting"}}, d.Containers)
	require.Len(t, d.Events, 1)
	assert.Equal(t, string(pod.UID), d.Events[0].Message)
	_, err = asker().AskPod(t.Context(), text, PodRef{"team", "gone"})
	assert.ErrorContains(t, err, "pod team/gone is not there any more")
	_, err = asker().AskLog(t.Context(), text, LogRef{Pod: PodRef{"team", "gone"}, Container: "api"})
	assert.ErrorContains(t, err, "pod team/gone is not there any more")
	_, err = asker().AskLog(t.Context(), text, LogRef{Pod: PodRef{"team", "api"}, Container: "other"})
	assert.ErrorContains(t, err, "container other is not valid for pod api")
}

// createPod is a pod that nobody runs, with an event of its own and one of a pod of its name before it.
func createPod(t *testing.T, admin kubernetes.Interface) *corev1.Pod {
	const team = "team"
	_, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: team, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err = admin.CoreV1().ServiceAccounts(team).Create(t.Context(), account, metav1.CreateOptions{})
	require.NoError(t, err)
	pod, err := admin.CoreV1().Pods(team).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "api"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "api", Image: "api:1"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	for i, uid := range []types.UID{pod.UID, "of-one-before-it"} {
		_, err = admin.CoreV1().Events(team).Create(t.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprint("api.", i)},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: team, Name: "api", UID: uid},
			Reason:         "Created",
			Message:        string(uid),
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return pod
}
