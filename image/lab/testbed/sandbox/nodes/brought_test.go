package nodes_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// What the operator of this test brings.
const (
	greeterImage = "registry.example/alpha/greeter:1.0"
	greeterPod   = `{"spec":{"nodeName":"worker-2","tolerations":[{"operator":"Exists"}],"containers":[{"name":"greeter","image":"` + greeterImage + `",
"env":[{"name":"NODE","valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName"}}}]}]}}`
	greetingControl = "Package: greeting\nVersion: %s\nArchitecture: all\nMaintainer: Alpha <alpha@example.org>\nDepends: jq\nDescription: a greeting\n"
)

// greeter writes a container image as `docker save` does: one program, and what it is called with. It is /greeter, and
// others by which containers of examples call theirs.
func (b *bench) greeter(file, ref string, args ...string) {
	b.t.Helper()
	program, err := sandbox.Build(b.ctx, ".", "./image/lab/testbed/sandbox/nodes/testdata/greeter", b.t.TempDir())
	require.NoError(b.t, err)
	text, err := os.ReadFile(program)
	require.NoError(b.t, err)
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	require.NoError(b.t, w.WriteHeader(&tar.Header{Name: "greeter", Mode: 0o755, Size: int64(len(text))}))
	_, err = w.Write(text)
	require.NoError(b.t, err)
	for _, name := range []string{"bin/bash", "bin/sh", "bin/top"} {
		require.NoError(b.t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: "/greeter", Mode: 0o777}))
	}
	require.NoError(b.t, w.Close())
	err = sandbox.WriteImage(file, ref, files.Bytes(), v1.Config{
		Entrypoint: append([]string{"/greeter"}, args...),
		Labels:     map[string]string{"name": ref},
	})
	require.NoError(b.t, err)
}

// greeting writes a version of a Debian package that needs another one, of the stick.
func (b *bench) greeting(file, version string) {
	b.t.Helper()
	dir := b.t.TempDir()
	require.NoError(b.t, os.Chmod(dir, 0o755))
	for path, text := range map[string]string{"DEBIAN/control": fmt.Sprintf(greetingControl, version), "usr/share/greeting/greeting.json": `{"greeting": "hello from a package"}`} {
		at := filepath.Join(dir, path)
		require.NoError(b.t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(b.t, os.WriteFile(at, []byte(text), 0o644))
	}
	out, err := exec.CommandContext(b.ctx, "dpkg-deb", "--root-owner-group", "--build", dir, file).CombinedOutput()
	require.NoError(b.t, err, "%s", out)
}

// TestWhatIsBroughtIsUsedByACluster: an operator uploads a container image and a Debian package to the
// appliance. A pod of a cluster runs the one, a Software resource installs the other with what it needs.
func TestWhatIsBroughtIsUsedByACluster(t *testing.T) {
	long(t)
	b := newWhole(t, "brought", 2)
	for i, s := range b.Servers {
		b.host(i+1, s)
	}
	operator, err := sandbox.NewUploader(b.ctx, b.Appliance, t.TempDir(), "alpha")
	require.NoError(t, err)
	artifact := func(args ...string) string {
		t.Helper()
		out, err := operator.Artifact(b.ctx, args...)
		require.NoError(t, err)
		t.Logf("firstlight artifact %v\n%s", args, out)
		return out
	}
	dir := t.TempDir()
	b.greeter(filepath.Join(dir, "greeter.tar"), greeterImage)
	b.greeting(filepath.Join(dir, "greeting.deb"), "1.0")
	b.provisioning(2)
	b.until("bpa", "edge")

	artifact("push", filepath.Join(dir, "greeter.tar"), "container/greeter")
	b.kubectl("run", "greeter", "--image", greeterImage, "--restart=Never", "--overrides", greeterPod)
	b.kubectl("wait", "pod/greeter", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=5m")
	said := b.kubectl("logs", "greeter")
	t.Logf("\n%s%s", b.kubectl("get", "pods", "-o", "wide"), said)
	assert.Equal(t, "greetings from worker-2\n", said)
	assert.Regexp(t, `"served_as": ?\[\s*"`+greeterImage+`"`, artifact("show", "container/greeter", "-o", "json"))

	artifact("push", filepath.Join(dir, "greeting.deb"), "binary/greeting_1.0_all.deb")
	b.apply(`{apiVersion: bpa.akraino.org/v1alpha1, kind: Software, metadata: {name: greeting, namespace: default, labels: {cluster: edge}},
spec: {masterSoftware: [greeting], workerSoftware: [greeting]}}`)
	b.until("sw", "greeting")
	t.Log("\n" + b.appliance("kubectl", "get", "sw", "greeting", "-o", "wide"))
	for _, s := range b.Servers {
		assert.Equal(t, "hello from a package\n", b.on(s, "jq -r .greeting /usr/share/greeting/greeting.json"))
		t.Log("\n" + b.on(s, "dpkg-query --list greeting jq | tail -2; apt-cache policy greeting"))
	}

	const refusal = "greeting_1.0_all.deb is in use by Software default/greeting; it cannot be removed"
	_, err = operator.Artifact(b.ctx, "rm", "binary/greeting_1.0_all.deb")
	assert.ErrorContains(t, err, refusal)
	guide, err := os.ReadFile("../../../../../docs/artifacts.md")
	require.NoError(t, err)
	assert.True(t, strings.Contains(string(guide), "```text\n"+refusal+"\n```"), "docs/artifacts.md shows another sentence")
}
