package sandbox_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bundle packs, uploads and asks for a bundle, as docs/addons.md has its reader do. The cluster is not there; a Component
// that waits for nothing but that has found the bundle with its images.
func (u *uploads) bundle() {
	t := u.t
	commands, prints := pageOf(t, "addons.md", "A bundle, from the archive to the cluster")
	require.GreaterOrEqual(t, len(commands), 1)
	require.Len(t, prints, 1)
	image, err := mutate.AppendLayers(empty.Image, static.NewLayer([]byte("web"), types.DockerUncompressedLayer))
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	image, err = mutate.ConfigFile(image, config)
	require.NoError(t, err)
	tag, err := name.NewTag("registry.example/shop/web:1")
	require.NoError(t, err)
	require.NoError(t, tarball.MultiWriteToFile(filepath.Join(u.dir, "images.tar"), map[name.Tag]v1.Image{tag: image}))
	require.NoError(t, os.WriteFile(filepath.Join(u.dir, "web.yaml"), []byte(`apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: web, image: "registry.example/shop/web:1"}]}
`), 0o644))

	component := "{apiVersion: kpa.akraino.org/v1alpha1, kind: Component, metadata: {namespace: alpha, name: web}, " +
		"spec: {clusters: [beta], source: {bundle: {name: web, version: '1'}}}}"
	_, err = u.appliance.AwaitStage(u.ctx, "kpa-ready", t.Output())
	require.NoError(t, err)
	u.apply(component)
	u.says("BundleMissing", "bundle web 1 is not on the appliance; bring the archive")
	out := u.must(setCLI + commands[0])
	t.Logf("\n%s", out)
	inOrder(t, prints[0], out)
	u.says("NoKubeconfig", "cluster beta is not installed yet")

	objects, err := filepath.Glob(u.appliance.DataPath(artifactsKept+"/bundles/alpha/web/1") + "/*.yaml")
	require.NoError(t, err)
	require.Len(t, objects, 1)
	text, err := os.ReadFile(objects[0])
	require.NoError(t, err)
	digest := regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(out) // that pack printed
	require.NotEmpty(t, digest)
	assert.Contains(t, string(text), "registry.example/shop/web:1@"+digest)

	u.must(setCLI + "firstlight artifact rm container/web-1 --owner alpha --cluster beta")
	u.says("BundleMissing", "bundle web 1 is not on the appliance; bring the archive")
	u.run("kubectl", "--namespace", "alpha", "delete", "kc", "web")
}

// says waits until the Component gives a reason, with a sentence.
func (u *uploads) says(reason, sentence string) {
	u.t.Helper()
	const ask = "jsonpath={.status.conditions[*].reason}: {.status.message}"
	said := ""
	assert.Eventually(u.t, func() bool {
		said = u.run("kubectl", "--namespace", "alpha", "get", "kc", "web", "-o", ask)
		return strings.Contains(said, reason+": ") && strings.Contains(said, sentence)
	}, 2*time.Minute, time.Second)
	u.t.Log(said)
}
