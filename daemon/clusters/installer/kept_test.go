package installer

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// machineID is what saidByANode has.
const machineID = "0123456789abcdef0123456789abcdef"

// serveNode is the API of a cluster that is ready and knows one node; deleted are the paths that were deleted.
func serveNode(t *testing.T, object *corev1.Node) (a *api, deleted *[]string) {
	t.Helper()
	deleted = new([]string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/readyz":
		case r.Method == http.MethodDelete:
			*deleted = append(*deleted, r.URL.Path)
			_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusSuccess})
		case r.URL.Path == "/api/v1/nodes/"+object.Name:
			_ = json.NewEncoder(w).Encode(object)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	set, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	return &api{set: set, authority: []byte(encodeBlock("CERTIFICATE", []byte("the cluster's")))}, deleted
}

// nodeObject is a node as the cluster knows it.
func nodeObject(name, machine string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{MachineID: machine},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
		},
	}
}

// joiner is a worker of a cluster with an API.
func joiner(t *testing.T, a *api, s *fakeShell) *node {
	t.Helper()
	n := &node{
		Node:    made("w-1", "172.22.0.14", false, true),
		cluster: &cluster{Settings: edge, dir: t.TempDir(), api: a},
		shell:   s,
		known:   facts{MachineID: machineID},
	}
	n.cluster.nodes = []*node{n}
	return n
}

func ignoreReport(string) {}

// TestARunningMachineKeepsItsName: only the memory of a machine that is gone makes room for another one.
func TestARunningMachineKeepsItsName(t *testing.T) {
	for _, c := range []struct {
		what    string
		machine string
		ready   corev1.ConditionStatus
		error   string
		removed bool
	}{
		{"the same machine", machineID, corev1.ConditionTrue, "", false},
		{"another one that runs", "another", corev1.ConditionTrue, "another machine runs as w-1", false},
		{"another one that is gone", "another", corev1.ConditionUnknown, "", true},
		{"another one that is broken", "another", corev1.ConditionFalse, "", true},
	} {
		t.Run(c.what, func(t *testing.T) {
			a, deleted := serveNode(t, nodeObject("w-1", c.machine, c.ready))
			n := joiner(t, a, nil)
			n.cluster.goneTimeout = time.Nanosecond
			err := n.replace(t.Context(), a, ignoreReport)
			if c.error == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.error)
			}
			assert.Equal(t, c.removed, len(*deleted) > 0, "%v", *deleted)
		})
	}
}

// TestANodeOfAnotherAuthorityIsNoMember, although its kubelet runs and the cluster has a node of its name.
func TestANodeOfAnotherAuthorityIsNoMember(t *testing.T) {
	a, _ := serveNode(t, nodeObject("w-1", machineID, corev1.ConditionTrue))
	authority := base64.StdEncoding.EncodeToString(a.authority)
	s := &fakeShell{answer: func(line string) (string, error) {
		if strings.Contains(line, factsScript) {
			return saidByANode + "kubernetes=yes\nauthority=" + authority + "\n", nil
		}
		return "", nil
	}}
	require.NoError(t, joiner(t, a, s).joinDone(t.Context()))

	authority = base64.StdEncoding.EncodeToString([]byte(encodeBlock("CERTIFICATE", []byte("another's"))))
	err := joiner(t, a, s).joinDone(t.Context())
	assert.ErrorContains(t, err, "its certificates are of another cluster's authority")
}

// TestAControlPlaneIsNeverMadeAgain: what was whole once is started, and said to be lost where it is lost.
func TestAControlPlaneIsNeverMadeAgain(t *testing.T) {
	for _, c := range []struct {
		what  string
		there bool
		error string
	}{
		{"it is there", true, ""},
		{"its disk was erased", false, "the control plane was on this node and is gone"},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := &fakeShell{answer: func(line string) (string, error) {
				if strings.Contains(line, "kubeadm init") {
					return "", errors.New("a second cluster is made")
				}
				return "", nil
			}}
			n := &node{
				Node:    made("m-1", "172.22.0.11", true, true),
				cluster: &cluster{Settings: edge, dir: t.TempDir(), identity: &clusterIdentity{Formed: true}},
				shell:   s,
				known:   facts{Kubernetes: c.there},
			}
			n.cluster.nodes = []*node{n}
			err := n.initDo(t.Context(), ignoreReport)
			assert.Empty(t, s.running("kubeadm init"))
			if c.error == "" {
				require.NoError(t, err)
				assert.NotEmpty(t, s.running("systemctl start kubelet.service"))
				return
			}
			require.ErrorContains(t, err, c.error)
			assert.ErrorContains(t, err, contract.FileIdentity)
			assert.Empty(t, s.ran)
		})
	}
}
