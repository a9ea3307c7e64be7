package multus

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func TestProgramsOfOthersStay(t *testing.T) {
	d, image := NodeDirs(t.TempDir()), t.TempDir()
	self := filepath.Join(image, "firstlight-addons")
	write(t, self, "one")
	write(t, filepath.Join(image, "macvlan"), "ours 1")
	write(t, filepath.Join(image, "bridge"), "ours 1")
	write(t, filepath.Join(d.Programs, "bridge"), "theirs")
	require.NoError(t, new(programFiles).install(d, self, image))
	assert.Equal(t, "one", read(t, filepath.Join(d.Programs, Name)))
	assert.Equal(t, "ours 1", read(t, filepath.Join(d.Programs, "macvlan")))
	assert.Equal(t, "theirs", read(t, filepath.Join(d.Programs, "bridge")))

	// The next version replaces its own, and repairs.
	write(t, self, "two")
	write(t, filepath.Join(image, "macvlan"), "ours 2")
	p := new(programFiles)
	require.NoError(t, p.install(d, self, image))
	require.NoError(t, os.Remove(filepath.Join(d.Programs, "macvlan")))
	require.NoError(t, os.Chmod(filepath.Join(d.Programs, Name), 0o600))
	require.NoError(t, p.install(d, self, image))
	assert.Equal(t, "two", read(t, filepath.Join(d.Programs, Name)))
	assert.Equal(t, "ours 2", read(t, filepath.Join(d.Programs, "macvlan")))
	assert.Equal(t, "theirs", read(t, filepath.Join(d.Programs, "bridge")))
	info, err := os.Stat(filepath.Join(d.Programs, Name))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode())

	write(t, filepath.Join(d.Programs, Name), "upstream's")
	assert.EqualError(t, p.install(d, self, image), "/opt/cni/bin/multus is another program; remove it from the node")
}

func TestTheConfigurationFollowsTheDefaultNetworks(t *testing.T) {
	d := newNode(t, "").Dirs
	text, err := encodeConf(d, Options{}, false)
	require.NoError(t, err)
	write(t, filepath.Join(d.Conf, confFile), string(text))

	list, err := libcni.NetworkConfFromFile(filepath.Join(d.Conf, confFile))
	require.NoError(t, err)
	assert.Equal(t, "multus-cni-network", list.Name)
	assert.Equal(t, "1.1.0", list.CNIVersion, "the highest of both")
	assert.JSONEq(t, `{"type":"multus","capabilities":{"portMappings":true},"globalNamespaces":"default"}`, string(list.Plugins[0].Bytes))
	var older struct{ CNIVersion string }
	require.NoError(t, json.Unmarshal(text, &older))
	assert.Equal(t, "1.0.0", older.CNIVersion)

	text, err = encodeConf(d, Options{Isolation: true, GlobalNamespaces: "a,b"}, false)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"namespaceIsolation": true`)
	assert.Contains(t, string(text), `"globalNamespaces": "a,b"`)
}

func TestRemovalLeavesPodsTheirDeletion(t *testing.T) {
	n := newNode(t, "a")
	write(t, n.Dirs.kubeconfig(), "token")
	conf := filepath.Join(n.Dirs.Conf, confFile)
	write(t, conf, "{}")
	n.add(t)
	n.plugins.take()

	// A pod with a further network is there: its configuration stays, and asks nothing of the API server.
	require.NoError(t, startDraining(n.Dirs, Options{}))
	assert.NoFileExists(t, n.Dirs.kubeconfig())
	assert.Contains(t, read(t, conf), `"draining": true`)
	n.Open = func(string) (API, error) { return nil, errors.New("no access") }
	other := call(`,"draining":true`)
	other.ContainerID = "new"
	_, err := n.Add(t.Context(), other)
	require.NoError(t, err)
	assert.Equal(t, []string{"ADD firstlight ptp eth0", "ADD firstlight portmap eth0"}, n.plugins.take())
	require.NoError(t, n.Del(t.Context(), other))
	assert.FileExists(t, conf)

	// It goes with that pod.
	n.plugins.take()
	require.NoError(t, n.Del(t.Context(), call(`,"draining":true`)))
	assert.Equal(t, "DEL a macvlan net1", n.plugins.take()[0])
	assert.NoFileExists(t, conf)

	// Where no pod has more it goes at once.
	n = newNode(t, "")
	write(t, filepath.Join(n.Dirs.Conf, confFile), "{}")
	n.add(t)
	require.NoError(t, startDraining(n.Dirs, Options{}))
	assert.NoFileExists(t, filepath.Join(n.Dirs.Conf, confFile))
	require.NoError(t, startDraining(n.Dirs, Options{}), "a second time")
}

func TestAnInstallationEndsTheDraining(t *testing.T) {
	n := newNode(t, "")
	text, err := encodeConf(n.Dirs, Options{}, false)
	require.NoError(t, err)
	conf := filepath.Join(n.Dirs.Conf, confFile)
	write(t, conf, string(text))
	require.NoError(t, finishDraining(n.Dirs))
	assert.FileExists(t, conf)
}
