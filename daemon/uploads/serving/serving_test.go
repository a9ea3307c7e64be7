package serving

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/artifact"
)

func pod() Pod {
	return Pod{Dir: "/var/lib/firstlight/artifacts", Cert: []byte("cert"), Key: []byte("key"), CA: []byte("ca"), Digest: "d1",
		Addr: netip.MustParseAddr("172.22.0.1"), ServiceAddr: netip.MustParseAddr("10.96.0.15")}
}

// deployment is the pod's as text, and the annotations by which a pod is started anew.
func deployment(t *testing.T, p Pod) (text string, annotations map[string]string) {
	for _, o := range p.Objects() {
		if d, ok := o.(*appsv1.Deployment); ok {
			b, err := yaml.Marshal(d)
			require.NoError(t, err)
			return string(b), d.Spec.Template.Annotations
		}
	}
	t.Fatal("there is no deployment")
	return "", nil
}

func TestSecretsAreOnlyInSecrets(t *testing.T) {
	p := pod()
	p.Store = &Store{Endpoint: "https://s3.example:9000", Keys: Keys{"site", "whisper"}}
	assert.NotContains(t, p.Store.Keys.String(), "whisper")
	secrets := 0
	for _, o := range p.Objects() {
		b, err := yaml.Marshal(o)
		require.NoError(t, err)
		if o.GetObjectKind().GroupVersionKind().Kind == "Secret" {
			secrets++
			continue
		}
		assert.NotContains(t, string(b), "whisper")
	}
	assert.Equal(t, 2, secrets)
}

func TestThePodIsStartedAnewForWhatItReadsOnlyOnce(t *testing.T) {
	p := pod()
	text, before := deployment(t, p)
	for _, line := range []string{":9015", "runAsUser: 65532", "type: Recreate", "imagePullPolicy: Never", "priorityClassName: system-cluster-critical", "key: node.kubernetes.io/disk-pressure"} {
		assert.Contains(t, text, line)
	}
	p.Cert, p.Key = []byte("renewed"), []byte("renewed")
	_, after := deployment(t, p)
	assert.Equal(t, before, after, "a certificate is read again while it runs")
	p.Digest = "d2"
	_, after = deployment(t, p)
	assert.NotEqual(t, before, after)
}

func TestFolders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "artifacts")
	for range 2 {
		require.NoError(t, makeFolders(dir, os.Getuid()))
	}
	for _, name := range []string{artifact.StoreDir, artifact.ScratchDir, artifact.ImagesDir} {
		assert.DirExists(t, filepath.Join(dir, name))
	}
}

// command is how the pod starts a container; nil if it has none of that name.
func command(p Pod, name string) []string {
	for _, c := range p.spec().Containers {
		if c.Name == name {
			return c.Command
		}
	}
	return nil
}

func TestLimitsOfTheSiteReachTheAgent(t *testing.T) {
	p := pod()
	p.Limits = Limits{Quota: "50Gi", Owners: []Quota{{"alpha", "500Gi"}}, Expiry: 48 * time.Hour}
	assert.Contains(t, strings.Join(command(p, "agent"), " "), "--quota 50Gi --quota-of alpha=500Gi --expiry 48h0m0s")
	assert.NotContains(t, strings.Join(command(pod(), "agent"), " "), "--quota")
}

func TestStoreElsewhere(t *testing.T) {
	p := pod()
	_, before := deployment(t, p)
	p.Store = &Store{Endpoint: "https://s3.example:9000", Region: "eu-central-1", Keys: Keys{"site", "whisper"}, CA: []byte("authority")}
	text, after := deployment(t, p)
	agent := strings.Join(command(p, "agent"), " ")
	assert.Contains(t, agent, "--store https://s3.example:9000 --withdraw /artifacts --store-region eu-central-1 --store-ca /etc/artifacts-store/ca.crt")
	assert.NotContains(t, agent, "--publish")
	assert.NotContains(t, agent, "--registry")
	assert.Contains(t, strings.Join(command(pod(), "agent"), " "), "--publish /artifacts --stick /usr/share/firstlight/bundles --registry")
	assert.NotContains(t, text, "whisper")
	assert.NotEqual(t, before, after)
	assert.Equal(t, map[string][]byte{"access": []byte("site"), "secret": []byte("whisper"), "ca": []byte("authority")}, p.storeSecret())
	p.Store.CA = []byte("another")
	_, renewed := deployment(t, p)
	assert.NotEqual(t, after, renewed, "the agent reads its store's authority only when it starts")
}

// TestALinkOfThePodGivesNothingAway: the pod's user, who owns the folder, puts a link to root's folder in the place
// of one of the folders below.
func TestALinkOfThePodGivesNothingAway(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	owner := func(path string) uint32 {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Sys().(*syscall.Stat_t).Uid
	}
	for _, name := range []string{artifact.StoreDir, artifact.ImagesDir} {
		dir, roots := filepath.Join(t.TempDir(), "artifacts"), t.TempDir()
		require.NoError(t, makeFolders(dir, 4711))
		assert.EqualValues(t, 4711, owner(filepath.Join(dir, name)))
		require.NoError(t, os.Remove(filepath.Join(dir, name)))
		require.NoError(t, os.Symlink(roots, filepath.Join(dir, name)))
		_ = makeFolders(dir, 4711) // that it refuses is as good
		assert.Zero(t, owner(roots), "root's folder is the pod's")
	}
}
