package workload

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// apiServer is one that answers what a cluster's does. It notes what it is asked.
type apiServer struct {
	*httptest.Server
	mu      sync.Mutex
	asked   []string
	nodes   corev1.NodeList
	pods    corev1.PodList
	events  corev1.EventList
	refuses string // a path
	floods  string // a path
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case s.refuses:
		http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"etcd is gone","code":500}`, 500)
		return
	case s.floods:
		_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"`)
		_, _ = io.Copy(w, io.LimitReader(zeros{}, maxAnswer))
		return
	}

	list := map[string]any{
		"/version":       map[string]string{"gitVersion": "v1.34.2"},
		"/api/v1/nodes":  s.nodes,
		"/api/v1/pods":   s.pods,
		"/api/v1/events": s.events,
	}[r.URL.Path]
	if list == nil || r.URL.Path != "/version" && r.URL.Query().Get("limit") == "" {
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(list)
}

// zeros are digits without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// newKubeconfig logs in to the first of some servers, and has a context for each other one.
func newKubeconfig(t *testing.T, servers ...*apiServer) []byte {
	file := clientcmdapi.NewConfig()
	file.CurrentContext = "c0"
	file.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "secret"}
	for i, s := range servers {
		name := fmt.Sprint("c", i)
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
		file.Clusters[name] = &clientcmdapi.Cluster{Server: s.URL, CertificateAuthorityData: ca}
		file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: "u"}
	}
	text, err := clientcmd.Write(*file)
	require.NoError(t, err)
	return text
}

// asker reaches servers of this machine.
func asker() Asker { return Asker{Dial: new(net.Dialer).DialContext} }

func TestAClusterIsAskedByItsKubeconfig(t *testing.T) {
	s := newAPIServer(t)
	s.nodes.Items = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}}
	s.pods.Items = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}}
	s.events.Items = []corev1.Event{{Type: "Warning", Reason: "BackOff"}}
	s.pods.Continue = "more"

	c, err := asker().Ask(t.Context(), newKubeconfig(t, s))
	require.NoError(t, err)
	assert.Equal(t, []string{s.URL, "v1.34.2"}, []string{c.Server, c.Version})
	assert.Equal(t, "edge-1", c.Nodes[0].Name)
	assert.Equal(t, "web", c.Pods[0].Name)
	assert.Equal(t, "BackOff", c.Events[0].Reason)
	assert.Equal(t, []bool{false, true, false}, []bool{c.MoreNodes, c.MorePods, c.MoreEvents})
	for _, asked := range s.asked {
		assert.Regexp(t, `^GET .* Bearer secret$`, asked, "it is read, with the cluster's own log-in")
	}
}

func TestTheControlPlaneThatAnswersIsAsked(t *testing.T) {
	down, up := newAPIServer(t), newAPIServer(t)
	text := newKubeconfig(t, down, up)
	down.Close()
	c, err := asker().Ask(t.Context(), text)
	require.NoError(t, err)
	assert.Equal(t, up.URL, c.Server)
}

func TestWhatIsWrongIsSaidWithTheServer(t *testing.T) {
	closed := newAPIServer(t)
	text := newKubeconfig(t, closed)
	closed.Close()
	_, err := asker().Ask(t.Context(), text)
	assert.ErrorContains(t, err, closed.URL)
	assert.ErrorContains(t, err, "connection refused")

	failing := newAPIServer(t)
	failing.refuses = "/api/v1/events"
	_, err = asker().Ask(t.Context(), newKubeconfig(t, failing))
	assert.ErrorContains(t, err, "etcd is gone")

	_, err = asker().Ask(t.Context(), []byte("{"))
	assert.ErrorContains(t, err, "its kubeconfig is not used")
	_, err = asker().Ask(t.Context(), []byte(strings.ReplaceAll(string(newKubeconfig(t, failing)), "token: secret", "tokenFile: /etc/shadow")))
	assert.ErrorContains(t, err, "names a file")
}

// TestTheApplianceIsNoCluster: whoever writes a kubeconfig does not get the appliance's own ports asked.
func TestTheApplianceIsNoCluster(t *testing.T) {
	s := newAPIServer(t)
	_, err := Asker{}.Ask(t.Context(), newKubeconfig(t, s))
	assert.ErrorContains(t, err, "is an address of the appliance itself")
	assert.Empty(t, s.asked)
}

func TestNoClusterLeadsElsewhere(t *testing.T) {
	other := newAPIServer(t)
	s := newAPIServer(t)
	s.Config.Handler = http.RedirectHandler(other.URL+"/version", http.StatusFound)
	_, err := asker().Ask(t.Context(), newKubeconfig(t, s))
	assert.ErrorContains(t, err, "it leads to another address")
	assert.Empty(t, other.asked)
}

func TestAnAnswerWithoutEndIsBrokenOff(t *testing.T) {
	s := newAPIServer(t)
	s.floods = "/api/v1/pods"
	_, err := asker().Ask(t.Context(), newKubeconfig(t, s))
	assert.ErrorContains(t, err, "list pods: one object is longer than 512 KiB")

	many := strings.Repeat(`{"metadata":{"name":"`+strings.Repeat("0", maxObject/2)+`"}},`, 2*maxAnswer/maxObject)
	body := &boundedBody{io.NopCloser(strings.NewReader(`{"items":[` + many)), maxAnswer}
	_, err = decodeList(body, maxPods, func(*corev1.Pod) {})
	assert.ErrorContains(t, err, "the answer is longer than 16 MiB")
}

// TestAListIsReadObjectByObject: a server that gives more than it was asked for fills no memory. Two bytes of a list are
// a kilobyte when they are read.
func TestAListIsReadObjectByObject(t *testing.T) {
	for _, c := range []struct {
		name, text string
		read       int
		more       bool
		err        string
	}{
		{"none", `{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[]}`, 0, false, ""},
		{"null", `{"items":null}`, 0, false, ""},
		{"two", `{"metadata":{},"items":[{},{"spec":{}}],"other":[1,{"a":"b"}]}`, 2, false, ""},
		{"there are more", `{"metadata":{"continue":"c"},"items":[{}]}`, 1, true, ""},
		{"said at the end", `{"items":[{}],"metadata":{"continue":"c"}}`, 1, true, ""},
		{"more than asked for", `{"items":[` + strings.Repeat(`{},`, 5_000_000) + `{}]}`, 3, true, ""},
		{"broken off", `{"items":[{},{"metadata"`, 1, false, "unexpected EOF"},
		{"no list", `[]`, 0, false, "there is [ where { belongs"},
		{"no items", `{"items":{}}`, 0, true, "its items are no list"},
		{"another kind", `{"items":[{"metadata":7}]}`, 0, false, "cannot unmarshal number"},
	} {
		read := 0
		more, err := decodeList(strings.NewReader(c.text), 3, func(*corev1.Pod) { read++ })
		assert.Equal(t, c.read, read, c.name)
		if c.err != "" {
			assert.ErrorContains(t, err, c.err, c.name)
			continue
		}
		require.NoError(t, err, c.name)
		assert.Equal(t, c.more, more, c.name)
	}
}

func TestASilentClusterEndsWithTheContext(t *testing.T) {
	s := newAPIServer(t)
	text := newKubeconfig(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	silent := Asker{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	_, err := silent.Ask(ctx, text)
	assert.ErrorIs(t, err, context.Canceled)
}
