package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// laptop is a workstation: firstlight and kubectl, a home of its own, and the sandbox's network.
type laptop struct {
	*box
	home string
}

func newLaptop(b *box) *laptop {
	l := &laptop{box: b, home: b.t.TempDir()}
	_, err := sandbox.Build(b.ctx, ".", "./cmd/firstlight", l.home)
	require.NoError(b.t, err)
	kubernetes, err := os.ReadFile(b.appliance.Path("/usr/lib/firstlight/kube/kubernetes"))
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(l.home, "kubectl"), kubernetes, 0o755))
	return l
}

// command runs a program on the laptop.
func (l *laptop) command(words ...string) *exec.Cmd {
	enter := []string{"--target", strconv.Itoa(l.appliance.PID()), "--net", "--", filepath.Join(l.home, words[0])}
	cmd := exec.CommandContext(l.ctx, "nsenter", append(enter, words[1:]...)...)
	cmd.Dir = l.home
	cmd.Env = []string{"HOME=" + l.home, "PATH=" + l.home + ":" + os.Getenv("PATH")}
	return cmd
}

// do runs a program and returns its output, what it said on standard error, and its exit code.
func (l *laptop) do(words ...string) (out, said string, code int) {
	l.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := l.command(words...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(l.t, err)
	}
	l.t.Logf("$ %s\n%s%s", strings.Join(words, " "), stdout.String(), stderr.String())
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// refused runs a program that says why it does not do what it is asked.
func (l *laptop) refused(sentence string, words ...string) {
	l.t.Helper()
	_, said, code := l.do(words...)
	assert.Equal(l.t, 1, code)
	assert.Contains(l.t, said, sentence)
}

func (l *laptop) must(words ...string) string {
	l.t.Helper()
	out, said, code := l.do(words...)
	require.Zero(l.t, code, said)
	return out
}

// TestALaptopIsEnough: with an SSH key of the site, and nothing else, a laptop asks the appliance and uses its API; the
// audit log says whose laptop it was; what it may do can be taken back.
func TestALaptopIsEnough(t *testing.T) {
	root := sandbox.RequireRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience) // it compiles one command more than the others
	t.Cleanup(cancel)
	programs, err := sandbox.BuildPrograms(ctx, t.TempDir())
	require.NoError(t, err)
	b := &box{t: t, ctx: ctx, root: root, name: "laptop", dir: t.TempDir(), programs: programs}
	b.appliance = sandbox.StartAppliance(t, root, programs, b.name, b.dir)
	l := newLaptop(b)

	l.refused("has an SSH key; make one with ssh-keygen", "firstlight", "login", "127.0.0.1")
	require.NoError(t, os.Mkdir(filepath.Join(l.home, ".ssh"), 0o700))
	keygen := exec.CommandContext(b.ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", l.home+"/.ssh/id_ed25519")
	text, err := keygen.CombinedOutput()
	require.NoError(t, err, string(text))
	l.refused("reach 127.0.0.1 by SSH", "firstlight", "login", "127.0.0.1")
	l.refused("no appliance was logged in to; run firstlight login HOST", "firstlight", "status")

	public, err := os.ReadFile(filepath.Join(l.home, ".ssh/id_ed25519.pub"))
	require.NoError(t, err)
	require.NoError(t, b.appliance.WriteSite(
		"name: sandbox\naccess: {sshKeys: ['"+strings.TrimSpace(string(public))+"']}\n"))
	b.run("systemctl", "start", "firstlightd")
	_, err = b.appliance.AwaitStage(b.ctx, "ssh-ready", t.Output())
	require.NoError(t, err)
	l.refused("the appliance's API does not answer; `firstlightd why` says", "firstlight", "login", "127.0.0.1")
	assert.Contains(t, l.must("firstlight", "status"), "Log-in by SSH is set up")
	l.refused("127.0.0.1 had no API when you logged in; run firstlight login 127.0.0.1 again", "firstlight", "proxy")

	b.ready()
	assert.Contains(t, l.must("firstlight", "login", "127.0.0.1"), "firstlight-127.0.0.1 in "+l.home+"/.kube/config")
	_, said, code := l.do("firstlight", "kubeconfig", "nonsense")
	assert.Equal(t, 1, code)
	assert.Contains(t, said, "firstlightd kubeconfig: ", "the appliance's own sentence")
	_, _, code = l.do("firstlight", "reload", "--nonsense")
	assert.Equal(t, 2, code, "the appliance's own exit code")
	bundle := strings.TrimSpace(l.must("firstlight", "bundle"))
	assert.FileExists(t, filepath.Join(l.home, bundle))

	l.refused("start it in another terminal: firstlight proxy --host 127.0.0.1", "kubectl", "get", "nodes")
	assert.Contains(t, l.must("firstlight", "proxy", "kubectl", "get", "nodes"), "appliance")
	_, _, code = l.do("firstlight", "proxy", "sh", "-c", "exit 7")
	assert.Equal(t, 7, code)

	proxy := l.command("firstlight", "proxy")
	require.NoError(t, proxy.Start())
	t.Cleanup(func() { _ = proxy.Process.Kill(); _ = proxy.Wait() })
	require.Eventually(t, func() bool { _, _, code := l.do("kubectl", "get", "nodes"); return code == 0 },
		time.Minute, 200*time.Millisecond)
	l.must("kubectl", "create", "configmap", "by-laptop")
	l.checkAudit()

	config, err := os.ReadFile(filepath.Join(l.home, ".kube/config"))
	require.NoError(t, err)
	assert.NotContains(t, string(config), "client-key-data", "a key is where others look for none")
	l.endCertificate()
	l.must("kubectl", "get", "nodes")
	bindings := b.run("kubectl", "get", "clusterrolebindings", "--selector", "firstlight.dev/workstation", "--output", "name")
	assert.Equal(t, 2, strings.Count(bindings, "firstlight:workstation:"), "a certificate that ended was not replaced: %s", bindings)

	l.checkHostKeyRotation()

	// What is taken back is gone at once, though the certificate is good for hours.
	b.run("kubectl", "delete", "clusterrolebindings", "--selector", "firstlight.dev/workstation")
	assert.Eventually(t, func() bool {
		_, said, _ := l.do("kubectl", "get", "nodes")
		return strings.Contains(said, "Forbidden")
	}, time.Minute, 200*time.Millisecond)

	l.must("firstlight", "logout", "127.0.0.1")
	l.refused("no appliance was logged in to", "firstlight", "status")
	config, err = os.ReadFile(filepath.Join(l.home, ".kube/config"))
	require.NoError(t, err)
	assert.NotContains(t, string(config), "firstlight-")
}

// checkHostKeyRotation has the appliance replace its host key, which a laptop that has logged in knows already: twice, as it
// is told of another next one when it logs in again.
func (l *laptop) checkHostKeyRotation() {
	l.t.Helper()
	for range 2 {
		l.t.Log(l.run("firstlightd", "rotate", "host-key"))
		l.awaitHostKey()
		assert.Contains(l.t, l.must("firstlight", "status"), "Log-in by SSH is set up")
		l.must("firstlight", "login", "127.0.0.1")
	}
}

// endCertificate has the laptop find its certificate ended.
func (l *laptop) endCertificate() {
	l.t.Helper()
	file := filepath.Join(l.home, ".config/firstlight/appliances/127.0.0.1/access.json")
	text, err := os.ReadFile(file)
	require.NoError(l.t, err)
	var access map[string]any
	require.NoError(l.t, json.Unmarshal(text, &access))
	require.Contains(l.t, access, "until")
	access["until"] = time.Now()
	text, err = json.Marshal(access)
	require.NoError(l.t, err)
	require.NoError(l.t, os.WriteFile(file, text, 0o600))
}

// checkAudit waits until the audit log has what the laptop changed, and that it was given the right to.
func (l *laptop) checkAudit() {
	l.t.Helper()
	said := ""
	assert.Eventually(l.t, func() bool {
		said = l.run("firstlightd", "audit")
		return strings.Contains(said, "default/configmaps/by-laptop")
	}, 2*time.Minute, time.Second)
	l.t.Log(said)
	for line := range strings.Lines(said) {
		if strings.Contains(line, "by-laptop") {
			assert.Regexp(l.t, `\bfirstlight:[\w.-]+@[\w.-]+ +kubectl `, line)
		}
	}
	assert.Regexp(l.t, `firstlightd-certify .* clusterrolebindings\S*/firstlight:workstation:`, said)
}
