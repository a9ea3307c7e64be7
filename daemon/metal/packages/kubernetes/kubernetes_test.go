package kubernetes

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/daemon/metal/packages"
)

const (
	layerDigest    = "77198038ab1920073071036236e62637c8561dffb3a79b1e26d76fd59928999d"
	manifestDigest = "92aea87b831219484266b1ba2b52800e330dae3f145dd6733ace7918b57bb790"
)

// stick is a root with what packages are made of.
func stick() fstest.MapFS {
	made := time.Unix(1_700_000_000, 0)
	program := func(text string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(text), Mode: 0o755, ModTime: made}
	}
	in := imagesDir + "/layers/" + layerDigest + "/fs/"
	return fstest.MapFS{
		imagesDir + "/index.json": {Data: fmt.Appendf(nil, `{"manifests":[{"digest":"sha256:%s",
			"annotations":{"org.opencontainers.image.ref.name":"%s/node:v%s"}}]}`, manifestDigest, assets.ImageDomain, assets.Version)},
		imagesDir + "/blobs/sha256/" + manifestDigest: {Data: fmt.Appendf(nil, `{"layers":[{"digest":"sha256:%s"}]}`, layerDigest)},
		in + "usr/bin/kubernetes":                     program(strings.Repeat("kubernetes ", 1000)),
		in + "usr/bin/firstlight-node":                program("firstlight-node"),
		in + "usr/lib/firstlight/cni/cni":             program("cni"),
		containerdProgram:                             program(strings.Repeat("containerd ", 1000)),
		"usr/bin/containerd-shim-runc-v2":             program("shim"),
		"usr/lib/systemd/system/containerd.service":   {Data: []byte("[Service]\n"), Mode: 0o644, ModTime: made},
	}
}

func TestPackagesAreUpstreams(t *testing.T) {
	all, err := Build(stick())
	require.NoError(t, err)
	version := strings.TrimPrefix(assets.KubernetesVersion, "v") + "-0firstlight" + assets.Version + "+77198038ab19"
	runtime := strings.TrimPrefix(assets.ContainerdVersion, "v") + "-0firstlight" + assets.Version + "+8f5fa0f665d2"
	depends := map[string]string{}
	for _, b := range all {
		name, want := packages.Field(b.Stanza, "Package"), version
		if name == "containerd" {
			want = runtime
		}
		depends[name] = packages.Field(b.Stanza, "Depends")
		assert.Equal(t, want, packages.Field(b.Stanza, "Version"))
	}
	for name, want := range map[string]string{
		"firstlight-containerd": "containerd (>= " + runtime + ")",
		"kubelet":               "firstlight-containerd",
		"kubeadm":               "kubelet (>= " + version + ")",
		"kubectl":               "firstlight-kubernetes (>= " + version + ")",
		"kubernetes-cni":        "",
	} {
		require.Contains(t, depends, name)
		assert.Contains(t, depends[name], want, name)
	}
}

func TestPluginsAreLinksToTheirProgram(t *testing.T) {
	all := plugins(nodeLayer{})
	require.Equal(t, cniProgram, all[0].Path)
	for _, f := range all[1:] {
		assert.Equal(t, cniProgram, path.Join(path.Dir(f.Path), f.Link), f.Path)
	}
}

// The installer has files of a name of its own in /etc/systemd (daemon/clusters/installer). Of two drop-ins of one name
// systemd reads that in /etc alone (systemd.unit(5)).
func TestNoDropInIsHiddenByTheInstallers(t *testing.T) {
	for _, d := range list(nodeLayer{}) {
		for path := range d.texts {
			assert.False(t, strings.HasSuffix(path, ".d/60-firstlight.conf"), "%s of %s", path, d.name)
		}
	}
}

// An appliance makes them whenever it starts, and nodes have an index of an earlier start: they are the same bytes.
func TestEqualSticksMakeEqualPackages(t *testing.T) {
	first, second := &Pool{Root: stick(), Dir: t.TempDir()}, &Pool{Root: stick(), Dir: t.TempDir()}
	require.NoError(t, first.Make())
	require.NoError(t, second.Make())
	assert.Equal(t, contents(t, first), contents(t, second))

	other := stick()
	for name := range other {
		if strings.HasSuffix(name, "/cni/cni") {
			other[name].Data = []byte("another")
		}
	}
	again := &Pool{Root: fstest.MapFS{}, Dir: first.Dir}
	assert.True(t, again.Made())
	require.NoError(t, again.Make(), "a daemon that starts again in this boot reads no program again")

	third := &Pool{Root: other, Dir: t.TempDir()}
	require.NoError(t, third.Make())
	assert.NotEqual(t, contents(t, first), contents(t, third))
}

// contents are the index of a pool and every package that is in it, whole.
func contents(t *testing.T, p *Pool) map[string]string {
	t.Helper()
	index, err := os.ReadFile(filepath.Join(p.Dir, IndexName))
	require.NoError(t, err)
	all := map[string]string{IndexName: string(index)}
	for stanza := range strings.SplitSeq(string(index), "\n\n") {
		file := packages.Field(stanza, "Filename")
		f, err := p.Open(file)
		require.NoError(t, err)
		text, err := io.ReadAll(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		all[file] = string(text)
	}
	return all
}

// What is kept costs next to nothing: of the programs it holds no byte.
func TestProgramsLieOnTheStickOnce(t *testing.T) {
	p := &Pool{Root: stick(), Dir: t.TempDir()}
	require.NoError(t, p.Make())
	require.NoError(t, filepath.WalkDir(p.Dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "kubernetes kubernetes", name)
		assert.NotContains(t, string(text), "containerd containerd", name)
		assert.NotContains(t, name, ".part")
		return nil
	}))
}

// A node that asks in the moment in which the appliance starts waits until there is something.
func TestWhoAsksFirstIsServed(t *testing.T) {
	p := &Pool{Root: stick(), Dir: filepath.Join(t.TempDir(), "new")}
	all, err := Build(stick())
	require.NoError(t, err)
	var wg sync.WaitGroup
	for _, b := range all {
		wg.Go(func() {
			f, err := p.Open(b.Name)
			if assert.NoError(t, err) {
				assert.NoError(t, f.Close())
			}
		})
	}
	wg.Wait()
	for _, name := range []string{"none.deb", "../etc/passwd", "usr/lib/x.deb", "Packages", ".deb", ""} {
		_, err := p.Open(name)
		assert.ErrorIs(t, err, fs.ErrNotExist, name)
	}
}

func TestAStickWithoutProgramsSaysSo(t *testing.T) {
	for name, want := range map[string]string{
		"/index.json":         "index.json",
		manifestDigest:        manifestDigest,
		"/usr/bin/kubernetes": "usr/bin/kubernetes",
		"/cni/cni":            "cni/cni",
	} {
		root := stick()
		for file := range root {
			if strings.HasSuffix(file, name) {
				delete(root, file)
			}
		}
		_, err := Build(root)
		require.ErrorIs(t, err, fs.ErrNotExist)
		assert.ErrorContains(t, err, want)
	}
	root := stick()
	root[imagesDir+"/index.json"].Data = []byte("{}")
	_, err := Build(root)
	assert.ErrorContains(t, err, "has no image "+assets.ImageDomain+"/node:v")
}

// Scripts run on machines that nobody looks at: they have to be shell at least.
func TestScriptsAreShell(t *testing.T) {
	for _, d := range list(nodeLayer{digest: layerDigest, containerd: "1"}) {
		b, err := d.build("1", time.Now())
		require.NoError(t, err)
		for script, text := range b.Scripts {
			cmd := exec.Command("sh", "-n")
			cmd.Stdin = strings.NewReader(text)
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s of %s: %s", script, d.name, out)
		}
	}
}
