package ironic

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"firstlight.dev/firstlight/assets/goldentest"
)

func sample() Config {
	return Config{Addr: netip.MustParseAddr("172.22.0.1"), Inner: netip.MustParseAddr("172.22.0.1"), HTTPPort: 6180, Boot: 30 * time.Minute, Forwarder: "127.0.0.1:6188", KernelArgs: "console=tty0 console=ttyS0,115200"}
}

func TestRender(t *testing.T) {
	got, err := sample().Render()
	require.NoError(t, err)
	goldentest.Check(t, "testdata/ironic.conf", got)
}

func TestRenderRefusesWhatWouldAddALine(t *testing.T) {
	c := sample()
	c.KernelArgs = "quiet\n[api]\nenable_ssl_api = false"
	_, err := c.Render()
	assert.ErrorContains(t, err, "line break")
}

func TestCredentialsAreKeptAndATornFileIsReplaced(t *testing.T) {
	dir := t.TempDir()
	first, err := OpenCredentials(dir)
	require.NoError(t, err)
	again, err := OpenCredentials(dir)
	require.NoError(t, err)
	assert.Equal(t, first, again)
	assert.NotContains(t, fmt.Sprint(first), first.Password)

	path := filepath.Join(dir, "ironic.credentials")
	require.NoError(t, os.Truncate(path, 60))
	other, err := OpenCredentials(dir)
	require.NoError(t, err)
	assert.NotEqual(t, first.Password, other.Password)
	assert.NoError(t, bcrypt.CompareHashAndPassword([]byte(strings.TrimPrefix(other.HTPasswd, User+":")), []byte(other.Password)))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestPodRestartsWhenItsConfigurationChanges(t *testing.T) {
	p := Pod{Namespace: "metal3", Image: "firstlight.internal/ironic:29", Config: sample(), Credentials: Credentials{User, "the-password", "firstlight:hash"}, Cert: []byte("cert"), Key: []byte("key"), CA: []byte("ca"), StateDir: "/var/lib/ironic", FilesDir: "/var/lib/firstlight/http"}
	mark := func() string {
		objects, err := p.Objects()
		require.NoError(t, err)
		deployment := objects[len(objects)-1].(*appsv1.Deployment)
		for _, c := range append(deployment.Spec.Template.Spec.Containers, deployment.Spec.Template.Spec.InitContainers...) {
			assert.NotContains(t, strings.Join(c.Command, " "), p.Credentials.Password, "no secret on a command line")
			for _, e := range c.Env {
				assert.NotContains(t, e.Value, p.Credentials.Password, "no secret in an environment")
				assert.Nil(t, e.ValueFrom)
			}
		}
		return deployment.Spec.Template.Annotations["firstlight.dev/config"]
	}
	was := mark()
	assert.Equal(t, was, mark())
	p.Config.KernelArgs = "quiet"
	assert.NotEqual(t, was, mark())
	was = mark()
	p.Cert = []byte("renewed")
	assert.NotEqual(t, was, mark())
}

// TestBMCsAreSpokenToByTheForwarder: requests (2.32, sessions.py) takes the proxy from HTTPS_PROXY, and from
// REQUESTS_CA_BUNDLE whom to trust where redfish_verify_ca is not false.
func TestBMCsAreSpokenToByTheForwarder(t *testing.T) {
	env := map[string]string{}
	for _, e := range (Pod{Config: sample()}).spec().Containers[0].Env {
		env[e.Name] = e.Value
	}
	assert.Equal(t, "http://127.0.0.1:6188", env["HTTPS_PROXY"])
	assert.Equal(t, TLSDir+"/ca.crt", env["REQUESTS_CA_BUNDLE"])
	assert.Equal(t, "localhost,127.0.0.1,172.22.0.1", env["NO_PROXY"], "of the appliance's own addresses, and no network")
	conf, err := sample().Render()
	require.NoError(t, err)
	assert.Contains(t, string(conf), "\nwebserver_verify_ca = /etc/ssl/certs/ca-certificates.crt\n", "images come from elsewhere")
}

// TestWhatIsInsideStaysInside: the API is on loopback, and a pod that grows or does not answer is ended alone.
func TestWhatIsInsideStaysInside(t *testing.T) {
	conf, err := sample().Render()
	require.NoError(t, err)
	assert.Contains(t, string(conf), "\nhost_ip = 127.0.0.1\nport = 6385\n")
	assert.NotContains(t, string(conf), "host_ip = 172.22.0.1")
	container := Pod{Config: sample()}.spec().Containers[0]
	assert.Equal(t, memoryLimit, container.Resources.Limits.Memory().String())
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		require.NotNil(t, probe)
		assert.Equal(t, "127.0.0.1", probe.HTTPGet.Host)
	}
}
