package daemon

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"firstlight.dev/firstlight/assets/status"
)

func TestTheKubeconfigOfAClusterOfClusterAPI(t *testing.T) {
	secret := func(name, text string) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: name + "-kubeconfig"},
			Data:       map[string][]byte{"value": []byte(text)},
		}
	}
	const good = "apiVersion: v1\nkind: Config\n"
	const runs = good + "users: [{name: u, user: {exec: {command: sh, apiVersion: client.authentication.k8s.io/v1}}}]\n"
	api := fake.NewClientBuilder().WithObjects(secret("edge", good), secret("far", runs)).Build()
	read := func(name string) ([]byte, error) {
		return readClusterSecret(t.Context(), api, status.Cluster{Name: name, Namespace: "metal3", Kind: status.KindCluster})
	}

	text, err := read("edge")
	require.NoError(t, err)
	assert.Equal(t, good, string(text))
	_, err = read("far")
	assert.ErrorContains(t, err, "the kubeconfig of cluster far is not handed out: it names a program")
	_, err = read("new")
	assert.ErrorContains(t, err, "cluster new has no kubeconfig yet: there is no Secret metal3/new-kubeconfig")
}

// TestClustersOfOneNameAreNamedWithTheirNamespace: neither is handed out for the other one.
func TestClustersOfOneNameAreNamedWithTheirNamespace(t *testing.T) {
	all := []status.Cluster{{Namespace: "default", Name: "edge"}, {Namespace: "metal3", Name: "edge"}, {Namespace: "metal3", Name: "far"}}
	assert.EqualError(t, checkOneName(all, "edge"), "several clusters are called edge; name one of them: default/edge, metal3/edge")
	assert.NoError(t, checkOneName(all, "far"))
	assert.NoError(t, checkOneName(all, "nobody"))
}
