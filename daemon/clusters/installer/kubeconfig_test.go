package installer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/daemon/clusters/contract/kubeconfig"
)

const madeByKubeadm = `apiVersion: v1
kind: Config
clusters:
- name: edge
  cluster: {server: "https://127.0.0.1:7443", certificate-authority-data: Y2E=}
contexts:
- name: kubernetes-admin@edge
  context: {cluster: edge, user: kubernetes-admin}
current-context: kubernetes-admin@edge
users:
- name: kubernetes-admin
  user: {client-certificate-data: Y2VydA==, client-key-data: a2V5}
`

func TestKubeconfigForOutside(t *testing.T) {
	servers := valuesOf(made("m-1", "172.22.0.11", true, true), usual).ControlPlanes
	text, err := kubeconfigFor("edge", []byte(madeByKubeadm), servers)
	require.NoError(t, err)
	goldentest.Check(t, "testdata/kubeconfig.yaml", string(text))
	again, err := kubeconfigFor("edge", text, servers)
	require.NoError(t, err)
	assert.Equal(t, string(text), string(again))
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	require.NoError(t, err)
	assert.Equal(t, "https://172.22.0.11:6443", config.Host)
	assert.Equal(t, []byte("key"), config.KeyData)
	for _, wrong := range []string{"", "{", "current-context: x\n"} {
		_, err := kubeconfigFor("edge", []byte(wrong), servers)
		assert.Error(t, err, "%q", wrong)
	}
}

// TestAClustersOwnerRunsNothingOnTheAppliance: a node's administrator has kubeadm and its files. What they name as a
// program or a file is neither run nor read by the installer, nor handed to whoever uses the kubeconfig.
func TestAClustersOwnerRunsNothingOnTheAppliance(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	run := fmt.Sprintf(`exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, args: [%q], interactiveMode: Never}`, mark)
	hostile := strings.Replace(madeByKubeadm, "client-certificate-data: Y2VydA==, client-key-data: a2V5", run, 1)
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	hostile = strings.Replace(hostile, "certificate-authority-data: Y2E=", "insecure-skip-tls-verify: true", 1)

	a, err := newAPI([]byte(hostile), netip.MustParseAddrPort(server.Listener.Addr().String()))
	if err == nil {
		_ = a.checkReady(t.Context())
	}
	assert.NoFileExists(t, mark, "it runs what a node's kubeconfig names")
	assert.ErrorContains(t, err, "it names a program (exec)")

	servers := valuesOf(made("m-1", "172.22.0.11", true, true), usual).ControlPlanes
	text, err := kubeconfigFor("edge", []byte(hostile), servers)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "touch")
	assert.NotContains(t, string(text), "insecure")
	assert.NoError(t, kubeconfig.Check(text))
}

// kubeconfigOf is the kubeconfig of a user whose certificate ends at some time.
func kubeconfigOf(t *testing.T, user string, begin, end time.Time) []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: user}, NotBefore: begin, NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	servers := valuesOf(made("m-1", "172.22.0.11", true, true), usual).ControlPlanes
	text, err := kubeconfigFor("edge", fmt.Appendf(nil, "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"+
		"clusters: [{name: a, cluster: {server: x, certificate-authority-data: Y2E=}}]\nusers: [{name: a, user: {client-certificate-data: %s, client-key-data: a2V5}}]\n", cert), servers)
	require.NoError(t, err)
	return text
}

func TestAdministrator(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	year := 365 * 24 * time.Hour
	servers := valuesOf(made("m-1", "172.22.0.11", true, true), usual).ControlPlanes
	fresh := kubeconfigOf(t, adminPrefix+"x", now.Add(-time.Hour), now.Add(3*year))
	user, err := adminUser(fresh, "edge", servers, []byte("ca"), now)
	require.NoError(t, err)
	assert.Equal(t, "firstlight-admin-x", user)

	_, err = adminUser(fresh, "edge", servers[:1], []byte("ca"), now)
	assert.ErrorContains(t, err, "not for these control planes")
	_, err = adminUser(fresh, "edge", servers, []byte("other"), now)
	assert.ErrorContains(t, err, "of another cluster")
	_, err = adminUser(fresh, "edge", servers, []byte("ca"), now.Add(5*year/2))
	assert.ErrorContains(t, err, "ends on 2029-")
	_, err = adminUser(kubeconfigOf(t, "kubernetes-admin", now, now.Add(year)), "edge", servers, []byte("ca"), now)
	assert.ErrorContains(t, err, `of the user "kubernetes-admin"`)
	for _, text := range []string{"", "torn"} {
		_, err = adminUser([]byte(text), "edge", servers, []byte("ca"), now)
		assert.Error(t, err)
	}
}
