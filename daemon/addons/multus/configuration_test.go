package multus

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// quickstart is the definition of upstream's quickstart guide, but for the name of the card.
const quickstart = `{
  "cniVersion": "0.3.0", "type": "macvlan", "master": "eth0", "mode": "bridge",
  "ipam": {"type": "host-local", "subnet": "192.168.1.0/24", "rangeStart": "192.168.1.200", "rangeEnd": "192.168.1.216",
    "routes": [{"dst": "0.0.0.0/0"}], "gateway": "192.168.1.1"}
}`

func TestADefinitionBecomesAList(t *testing.T) {
	networks := t.TempDir()
	write(t, filepath.Join(networks, "a.conf"), `{"cniVersion":"1.0.0","name":"onnode","type":"bridge"}`)
	write(t, filepath.Join(networks, "b.conflist"), `{"cniVersion":"1.0.0","name":"listed","plugins":[{"type":"bridge"},{"type":"tuning"}]}`)

	for name, c := range map[string]struct {
		selection Selection
		config    string
		want      string
	}{
		"upstream's quickstart": {Selection{Name: "macvlan-conf"}, quickstart, `{"cniVersion":"0.3.0","name":"macvlan-conf","plugins":[{
			"name":"macvlan-conf","cniVersion":"0.3.0","type":"macvlan","master":"eth0","mode":"bridge","ipam":{"type":"host-local","subnet":"192.168.1.0/24",
			"rangeStart":"192.168.1.200","rangeEnd":"192.168.1.216","routes":[{"dst":"0.0.0.0/0"}],"gateway":"192.168.1.1"}}]}`},
		"a list": {Selection{Name: "a"}, `{"cniVersion":"1.0.0","name":"own","plugins":[{"type":"bridge","mtu":9007199254740993}]}`,
			`{"cniVersion":"1.0.0","name":"own","plugins":[{"type":"bridge","mtu":9007199254740993}]}`},
		"a file of the node": {Selection{Name: "onnode"}, " ",
			`{"cniVersion":"1.0.0","name":"onnode","disableCheck":false,"disableGC":false,"plugins":[{"cniVersion":"1.0.0","name":"onnode","type":"bridge"}]}`},
		"a list of the node": {Selection{Name: "listed"}, "",
			`{"cniVersion":"1.0.0","name":"listed","disableCheck":false,"disableGC":false,"plugins":[{"type":"bridge"},{"type":"tuning"}]}`},
		"arguments": {Selection{Name: "a", CNIArgs: map[string]any{"x": "y"}}, `{"plugins":[{"type":"bridge","args":{"cni":{"z":1}}}]}`,
			`{"name":"a","plugins":[{"type":"bridge","args":{"cni":{"x":"y","z":1}}}]}`},
		"an address": {Selection{Name: "a", IPs: []string{"10.0.0.1/8"}}, `{"type":"bridge","capabilities":{"ips":true}}`,
			`{"name":"a","plugins":[{"name":"a","type":"bridge","capabilities":{"ips":true}}]}`},
	} {
		got, err := readDefinition(c.selection, c.config, networks)
		require.NoError(t, err, name)
		assert.JSONEq(t, c.want, string(got), name)
		again, err := completeList(c.selection, got)
		require.NoError(t, err)
		if len(c.selection.CNIArgs) == 0 {
			assert.JSONEq(t, c.want, string(again), name)
		}
	}
}

func TestAWrongDefinitionIsOneSentence(t *testing.T) {
	const at = "NetworkAttachmentDefinition blue/a: spec.config: "
	for config, want := range map[string]string{
		`{`:                              at + "it is no JSON object: unexpected EOF",
		`[]`:                             at + "it is no JSON object: json: cannot unmarshal array into Go value of type map[string]interface {}",
		`{}`:                             at + "plugin 1 has no type, such as macvlan or bridge",
		`{"plugins":[]}`:                 at + "plugins: it is no list with at least one plugin",
		`{"plugins":{}}`:                 at + "plugins: it is no list with at least one plugin",
		`{"plugins":[7]}`:                at + "plugin 1 has no type, such as macvlan or bridge",
		`{"type":"multus"}`:              at + "plugin 1 is of type multus, which calls other plugins; name one of these",
		`{"name":"a/b","type":"bridge"}`: at + `name "a/b": invalid characters found in network name`,
		`{"type":"bridge"}`: at + `the pod asks for mac, and no plugin has that capability; ` +
			`add "capabilities": {"mac": true} to one that can, or leave it out of the annotation`,
	} {
		_, err := readDefinition(Selection{Namespace: "blue", Name: "a", MAC: "02:00:00:00:00:01"}, config, t.TempDir())
		assert.EqualError(t, err, want, config)
	}

	_, err := readDefinition(Selection{Namespace: "blue", Name: "a"}, "", t.TempDir())
	assert.ErrorContains(t, err, "NetworkAttachmentDefinition blue/a has no spec.config, and the node no configuration of that name in /etc/cni/multus/net.d")
}

func TestTheDefaultNetworkIsTheFirstOther(t *testing.T) {
	dir := t.TempDir()
	_, err := readDefault(dir)
	assert.ErrorIs(t, err, errNoDefault)
	assert.EqualError(t, err, dir+": no configuration of a default network is there; install the cluster's network plugin")

	write(t, filepath.Join(dir, confFile), `{"name":"multus-cni-network","plugins":[{"type":"multus"}]}`)
	write(t, filepath.Join(dir, "05-half.conflist"), `{`)
	write(t, filepath.Join(dir, "20-other.conf"), `{"name":"other","type":"bridge"}`)
	write(t, filepath.Join(dir, "10-firstlight.conflist"), `{"cniVersion":"1.0.0","name":"firstlight","plugins":[{"type":"ptp"}]}`)
	list, err := readDefault(dir)
	require.NoError(t, err)
	assert.Equal(t, "firstlight", list.Name)

	require.NoError(t, os.Remove(filepath.Join(dir, "10-firstlight.conflist")))
	list, err = readDefault(dir)
	require.NoError(t, err)
	assert.Equal(t, "other", list.Name)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}
