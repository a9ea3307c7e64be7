package site

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"firstlight.dev/firstlight/assets/goldentest"
)

func compiledSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	text, err := Schema()
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	require.NoError(t, c.AddResource(SchemaID, doc))
	schema, err := c.Compile(SchemaID)
	require.NoError(t, err)
	return schema
}

// instance reads YAML as any tool would that then applies the schema.
func instance(t testing.TB, data []byte) any {
	t.Helper()
	var v any
	require.NoError(t, yaml.Unmarshal(data, &v))
	return v
}

func TestPublishedSchema(t *testing.T) {
	text, err := Schema()
	require.NoError(t, err)
	goldentest.Check(t, "../../docs/site.schema.json", string(text))
}

func TestSchemaTakesEveryValidSite(t *testing.T) {
	schema := compiledSchema(t)
	for _, file := range validFiles(t) {
		data := readFile(t, file)
		assert.NoError(t, schema.Validate(instance(t, data)), file)
		s, _ := Load(file, data)
		shown, err := s.WithDefaults().YAML()
		require.NoError(t, err)
		assert.NoError(t, schema.Validate(instance(t, shown)), "%s with defaults", file)
	}
}

func TestSchemaRefusesWhatTheParserRefuses(t *testing.T) {
	schema := compiledSchema(t)
	for _, data := range []string{
		"nam: rack-7", "networks: {storage: {}}", "nodes: [{name: a, colour: red}]", "access: {sshKey: []}", // unknown keys
		"name: 7", "name: [a]", "nodes: {name: a}", "nodes: [a]", "access: yes please", "networks: {provisioning: eno2}", // wrong types
		"networks: {provisioning: {vlan: '100'}}", "networks: {provisioning: {mtu: 1.5}}", "nodes: [{name: a, overwrite: 1}]",
		"networks: {provisioning: {dns: 10.0.0.1}}", "verification: {timeout: 60}", "nodes: [{name: a, labels: {rack: 7}}]",
		"nodes: null", "name: null", "nodes: [null]", "[]", "text", "7",
		"networks: {provisioning: {vlan: 0}}", "networks: {provisioning: {vlan: 4095}}", "networks: {provisioning: {mtu: 10}}", // bounds
		"clusters: [{name: a, workers: [{count: 0}]}]", "clusters: [{name: a, workers: [{cpu: -1}]}]",
		"nodes: [{macs: ['52:54:00:00:00:01']}]", "clusters: [{}]", "nodes: [{name: a, bmc: {username: u}}]", // missing
		"nodes: [{name: a, bootMode: uefi}]", "access: {console: maybe}", "clusters: [{name: a, addOns: [magic]}]", // lists of words
		"name: Rack_7", "nodes: [{name: a, macs: ['52:54:00']}]", "networks: {bmc: {interface: 'a b'}}", "networks: {bmc: {cidr: x}}", // forms
		"networks: {bmc: {address: 10.0.0.1/24}}", "networks: {bmc: {dhcp: {range: 10.0.0.1}}}", "verification: {timeout: soon}",
		"nodes: [{name: a, bmc: {address: 'http://h'}}]", "nodes: [{name: a, os: {url: 'ftp://h/x'}}]", "nodes: [{name: a, os: {sha256: abc}}]",
		"nodes: [{name: a, links: [{network: data, address: 10.0.0.1}]}]", "clusters: [{name: a, workers: [{memory: 16GB}]}]",
		"nodes: [{name: a, rootDevice: {model: ''}}]", "nodes: [{name: a, os: {image: ../etc/shadow}}]", "nodes: [{name: a, os: {username: 'Root:x'}}]",
		"nodes: [{name: a, rootDevice: {deviceName: sda}}]", "nodes: [{name: a, rootDevice: {hctl: '0:0'}}]", "networks: {bmc: {ntp: ['a b']}}",
	} {
		s, problems := Load("site.yaml", []byte(data))
		assert.Nil(t, s, data)
		assert.NotEmpty(t, problems, data)
		assert.Error(t, schema.Validate(instance(t, []byte(data))), data)
	}
}

func TestSchemaAndSampleHaveEveryField(t *testing.T) {
	text, err := Schema()
	require.NoError(t, err)
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	full, ok := instance(t, readFile(t, "testdata/valid/full.yaml")).(map[string]any)
	require.True(t, ok)
	bucket := instance(t, readFile(t, "testdata/valid/follow-bucket.yaml")) // where full follows a repository
	ssh := instance(t, readFile(t, "testdata/valid/follow-ssh.yaml"))       // and that by https
	for _, f := range Fields() {
		node := schema
		for key := range strings.SplitSeq(f.Path, ".") {
			properties, ok := node.(map[string]any)["properties"].(map[string]any)
			require.True(t, ok, f.Path)
			node, ok = properties[strings.TrimSuffix(key, "[]")]
			require.True(t, ok, "%s is not in the schema", f.Path)
			if strings.HasSuffix(key, "[]") {
				node = node.(map[string]any)["items"]
			}
		}
		assert.NotEmpty(t, node.(map[string]any)["description"], f.Path)
		assert.NotEmpty(t, f.Type, f.Path)
		there := false
		for _, path := range alike(f.Path) {
			for _, document := range []any{full, bucket, ssh} {
				there = there || given(document, strings.Split(path, "."))
			}
		}
		assert.True(t, there, "%s is not in testdata/valid/full.yaml", f.Path)
	}
}

// alike are the paths of the same field in the roles of networks, of members, and in nodes and their defaults.
func alike(path string) []string {
	var all []string
	for _, group := range [][]string{{"networks.provisioning", "networks.bmc", "networks.baremetal"}, {"clusters[].controlPlane[]", "clusters[].workers[]"}, {"nodes[].os", "nodeDefaults.os"}, {"nodes[].rootDevice", "nodeDefaults.rootDevice"}} {
		for _, p := range group {
			if rest, ok := strings.CutPrefix(path, p+"."); ok {
				for _, other := range group {
					all = append(all, other+"."+rest)
				}
			}
		}
	}
	return append(all, path)
}

// given reports whether some value stands at the path in a document.
func given(v any, keys []string) bool {
	if len(keys) == 0 {
		return true
	}
	m, _ := v.(map[string]any)
	v, ok := m[strings.TrimSuffix(keys[0], "[]")]
	if !ok {
		return false
	}
	if !strings.HasSuffix(keys[0], "[]") {
		return given(v, keys[1:])
	}
	items, _ := v.([]any)
	for _, item := range items {
		if given(item, keys[1:]) {
			return true
		}
	}
	return false
}

func FuzzLoad(f *testing.F) {
	for _, glob := range []string{"testdata/valid/*.yaml", "testdata/wrong/*.yaml"} {
		files, err := filepath.Glob(glob)
		require.NoError(f, err)
		for _, file := range files {
			f.Add(mustRead(f, file))
		}
	}
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("---\n...\n---\n"))
	f.Add([]byte("{name: !!binary aGk=, ? : 1, nodes: !x {}}"))
	schema := compiledSchema(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, problems := Load("site.yaml", data)
		for _, p := range problems {
			if strings.ContainsAny(p.String(), "\n\r\x00") {
				t.Errorf("not one line: %q", p)
			}
		}
		if (s == nil) != (len(problems) > 0) {
			t.Fatalf("site %v with %d problems", s, len(problems))
		}
		if s == nil {
			return
		}
		for _, s := range []*Site{s, s.WithDefaults()} {
			text, err := s.RevealedYAML()
			require.NoError(t, err)
			again, problems := Load("again.yaml", text)
			require.Empty(t, problems.String(), "%s", text)
			second, err := again.RevealedYAML()
			require.NoError(t, err)
			require.Equal(t, string(text), string(second))
			require.NoError(t, schema.Validate(instance(t, text)), "%s", text)
		}
	})
}
