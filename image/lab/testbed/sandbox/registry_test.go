package sandbox_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/daemon/metal/registry"
)

// registryURL is where it answers without a site.
const registryURL = "https://172.22.0.1:5000"

// curl asks from beside the appliance, in its network.
func (b *box) curl(args ...string) (string, error) {
	enter := []string{"--target", strconv.Itoa(b.appliance.PID()), "--net", "curl", "--silent", "--show-error", "--fail", "--insecure"}
	out, err := exec.CommandContext(b.ctx, "nsenter", append(enter, args...)...).CombinedOutput()
	return string(out), err
}

// awaitRegistry waits until it answers.
func (b *box) awaitRegistry() {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		_, err := b.curl("--max-time", "5", registryURL+"/v2/")
		return err == nil
	}, patience, 100*time.Millisecond, "the registry does not answer")
}

// mainPID is the first process of a unit, as the sandbox numbers it.
func (b *box) mainPID(unit string) string {
	b.t.Helper()
	for word := range strings.FieldsSeq(b.run("systemctl", "show", unit)) {
		if pid, found := strings.CutPrefix(word, "MainPID="); found && pid != "0" {
			return pid
		}
	}
	require.Fail(b.t, unit+" has no process")
	return ""
}

// asUser runs a command as the registry's user.
func (b *box) asUser(name string, args ...string) (string, error) {
	own := []string{"--reuid", registry.User, "--regid", registry.User, "--clear-groups", "--", name}
	return b.appliance.Run(b.ctx, "setpriv", append(own, args...)...)
}

// TestTheRegistryIsAProcessOfItsOwn that has no right which a client could misuse, and that neither takes the daemon
// along nor goes with it.
func TestTheRegistryIsAProcessOfItsOwn(t *testing.T) {
	b := newCold(t, "registry")
	store := filepath.Join(b.dir, "data/var/lib/firstlight/registry")
	former := filepath.Join(store, "docker/former") // of root, as earlier versions left it
	require.NoError(t, os.MkdirAll(filepath.Dir(former), 0o755))
	require.NoError(t, os.WriteFile(former, []byte("former\n"), 0o600))
	b.power()
	b.awaitRegistry()

	pid := b.mainPID(registry.Unit)
	for line := range strings.Lines(b.run("sh", "-c", "cat /proc/"+pid+"/task/*/status")) {
		words := strings.Fields(line)
		switch words[0] {
		case "Uid:", "Gid:":
			assert.Equal(t, []string{"590", "590", "590", "590"}, words[1:], line)
		case "CapInh:", "CapPrm:", "CapEff:", "CapAmb:":
			assert.Equal(t, "0000000000000000", words[1], line)
		case "Groups:":
			assert.Empty(t, words[1:], line)
		}
	}

	assert.Equal(t, "590 590\n", b.run("stat", "--format=%u %g", "/var/lib/firstlight/registry/docker/former"))
	assert.Equal(t, "590 700\n", b.run("stat", "--format=%u %a", "/var/lib/firstlight/registry"))
	for _, secret := range []string{
		"/var/lib/firstlight/ca/ca.key", "/var/lib/firstlight/ca/registry.key", "/var/lib/firstlight/secret/packages.key",
	} {
		require.NotEmpty(t, b.run("cat", secret))
		_, err := b.asUser("cat", secret)
		assert.ErrorContains(t, err, "Permission denied", secret)
	}
	said, err := b.asUser("cat", registry.SettingsDir+"/server.pem")
	require.NoError(t, err)
	assert.Contains(t, said, "PRIVATE KEY")
	_, err = b.asUser("touch", registry.SettingsDir+"/more")
	assert.ErrorContains(t, err, "Permission denied")
	_, err = b.appliance.Run(b.ctx, "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--", "ls", registry.SettingsDir)
	assert.ErrorContains(t, err, "Permission denied")
	b.readsWhatRootAloneReads()

	// The daemon begins anew, and is away.
	b.run("systemctl", "restart", "firstlightd")
	_, err = b.appliance.AwaitStage(b.ctx, "clock-set", t.Output())
	require.NoError(t, err)
	b.run("systemctl", "stop", "firstlightd")
	for range 20 {
		said, err := b.curl("--max-time", "5", registryURL+registry.AddressesPath)
		assert.NoError(t, err, "without a daemon: %s", said)
	}
	b.run("systemctl", "start", "firstlightd")
	_, err = b.appliance.AwaitStage(b.ctx, "clock-set", t.Output())
	require.NoError(t, err)
	assert.Equal(t, pid, b.mainPID(registry.Unit), "it began anew with the daemon")

	// Its end is nothing to the daemon, and it begins again.
	daemon := b.mainPID("firstlightd.service")
	b.run("systemctl", "kill", "--signal=SIGKILL", registry.Unit)
	require.Eventually(t, func() bool {
		_, err := b.curl("--max-time", "5", registryURL+"/v2/")
		return err != nil
	}, time.Minute, time.Millisecond, "it was not killed")
	b.awaitRegistry()
	assert.NotEqual(t, pid, b.mainPID(registry.Unit))
	assert.Equal(t, daemon, b.mainPID("firstlightd.service"))
	figures, err := b.curl("http://127.0.0.1:9100/metrics")
	require.NoError(t, err, figures)
	assert.Contains(t, figures, `firstlight_registry_requests_total{code="200",method="GET"}`)
	assert.Contains(t, figures, "firstlight_registry_sent_bytes_total")
	t.Log("\n" + b.run("ps", "-o", "user,rss,nlwp,args", "-C", "firstlightd"))
}

// readsWhatRootAloneReads pulls a layer in which there are such files.
func (b *box) readsWhatRootAloneReads() {
	b.t.Helper()
	found, err := filepath.Glob(b.appliance.Path("/usr/share/firstlight/images/layers/*/fs/etc/shadow"))
	require.NoError(b.t, err)
	require.NotEmpty(b.t, found, "no image has a file of root's")
	layer := filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(found[0]))))
	text, err := os.ReadFile(b.appliance.Path("/usr/share/firstlight/images/index.json"))
	require.NoError(b.t, err)
	var index struct {
		Manifests []struct{ Annotations map[string]string }
	}
	require.NoError(b.t, json.Unmarshal(text, &index))
	for _, m := range index.Manifests {
		name, tag, _ := strings.Cut(strings.TrimPrefix(m.Annotations["org.opencontainers.image.ref.name"], assets.ImageDomain+"/"), ":")
		manifest, err := b.curl("--header", "Accept: application/vnd.oci.image.manifest.v1+json", registryURL+"/v2/"+name+"/manifests/"+tag)
		require.NoError(b.t, err, manifest)
		if !strings.Contains(manifest, layer) {
			continue
		}
		blob := filepath.Join(b.t.TempDir(), "blob")
		said, err := b.curl("--output", blob, registryURL+"/v2/"+name+"/blobs/sha256:"+layer)
		require.NoError(b.t, err, said)
		sum, err := exec.CommandContext(b.ctx, "sha256sum", blob).Output()
		require.NoError(b.t, err)
		assert.Equal(b.t, layer, strings.Fields(string(sum))[0], "%s is served with other bytes", name)
		return
	}
	require.Fail(b.t, "no image has the layer "+layer)
}
