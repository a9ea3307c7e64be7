package icn

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-crypt/crypt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/site"
)

// fixture is an input of one generation, nil if it had none.
func fixture(t testing.TB, name string) *File {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	return &File{Name: name[strings.Index(name, ".")+1:], Data: data}
}

func lines(notes []Note) string {
	var b strings.Builder
	for _, n := range notes {
		fmt.Fprintln(&b, n)
	}
	return b.String()
}

func TestEveryGeneration(t *testing.T) {
	for _, generation := range []string{"2019", "2021", "2022"} {
		t.Run(generation, func(t *testing.T) {
			config := fixture(t, generation+".user_config.sh")
			require.NotNil(t, config)
			text, notes, err := Import(Input{UserConfig: config, Nodes: fixture(t, generation+".nodes.json")})
			require.NoError(t, err)
			for name, got := range map[string]string{"site.yaml": string(text), "notes.txt": lines(notes)} {
				file := filepath.Join("testdata", generation+"."+name)
				goldentest.Check(t, file, got)
			}
			s, problems := site.Load("site.yaml", text)
			require.Empty(t, problems.String())
			again, err := s.RevealedYAML()
			require.NoError(t, err)
			back, problems := site.Load("site.yaml", again)
			require.Empty(t, problems.String())
			assert.Equal(t, s, back)
		})
	}
}

func TestImportedNode(t *testing.T) {
	text, _, err := Import(Input{Nodes: fixture(t, "2021.nodes.json")})
	require.NoError(t, err)
	s, problems := site.Load("site.yaml", text)
	require.Empty(t, problems.String())
	n := s.Nodes[0]
	assert.Equal(t, site.MAC("00:1e:67:fe:f4:1a"), n.BootMAC)
	assert.Equal(t, "s3cret", n.BMC.Password.Reveal())
	assert.NotContains(t, string(text), "mypasswd", "passwords of users leave as hashes only")
	ok, err := crypt.CheckPassword("mypasswd", n.OS.Password.Reveal())
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, "10.10.110.21/24", n.Links[0].Address.String())
	assert.Equal(t, 110, s.Nodes[1].Links[0].VLAN)
	assert.Len(t, s.Nodes[1].Links[0].Bond.MACs, 2)
}

func TestOldestGenerationHadOneNode(t *testing.T) {
	text, notes, err := Import(Input{UserConfig: &File{"user_config.sh", []byte(`COMPUTE_NODE_NAME=node1
COMPUTE_IPMI_ADDRESS=10.10.110.101 COMPUTE_IPMI_USER=admin COMPUTE_IPMI_PASSWORD='p w'
COMPUTE_NODE_PASSWORD=mypasswd
COMPUTE_NODE_FQDN=node1.akraino.icn.org
`)}})
	require.NoError(t, err)
	s, problems := site.Load("site.yaml", text)
	require.Empty(t, problems.String())
	assert.Equal(t, "p w", s.Nodes[0].BMC.Password.Reveal())
	assert.Equal(t, site.BMCAddress("ipmi://10.10.110.101"), s.Nodes[0].BMC.Address)
	require.Len(t, notes, 1)
	assert.Equal(t, 4, notes[0].Line)
}

func TestNothingIsExecuted(t *testing.T) {
	witness := filepath.Join(t.TempDir(), "witness")
	script := strings.ReplaceAll(`touch WITNESS
IRONIC_INTERFACE=$(touch WITNESS; echo eno2)
IRONIC_IPMI_INTERFACE=`+"`touch WITNESS`"+`
A=$((1+1)) B=<(touch WITNESS) C=${X:?no} D=${!A} E[1]=x F+=y G=(a b) H=$'x' I=${IRONIC_INTERFACE}
f() { touch WITNESS; }; f | cat && touch WITNESS &
local X=1
IRONIC_ENABLE_DHCP=yes > WITNESS
`, "WITNESS", witness)
	text, notes, err := Import(Input{UserConfig: &File{"user_config.sh", []byte(script)}})
	require.NoError(t, err)
	assert.NoFileExists(t, witness)
	_, problems := site.Load("site.yaml", text)
	assert.Empty(t, problems.String())
	assert.NotContains(t, string(text), "eno2")
	told := map[int]int{}
	for _, n := range notes {
		told[n.Line]++
	}
	assert.Equal(t, map[int]int{1: 1, 2: 1, 3: 1, 4: 9, 5: 2, 6: 1, 7: 1}, told, lines(notes))
}

func TestUnreadableInputs(t *testing.T) {
	big := make([]byte, maxSize+1)
	for want, c := range map[string][2]*File{
		"read user_config.sh:2: not a shell file":   {{"user_config.sh", []byte("A=1\nB=(\n")}, nil},
		"read user_config.sh: it has 1048577 bytes": {{"user_config.sh", big}, nil},
		"read nodes.json: it has 1048577 bytes":     {nil, {"nodes.json", big}},
		"read nodes.json:3: not JSON":               {nil, {"nodes.json", []byte("{\n\"nodes\": [\n}")}},
		"something follows the document":            {nil, {"nodes.json", []byte("{} {}")}},
		"nested too deeply":                         {nil, {"nodes.json", []byte(strings.Repeat("[", 100))}},
		"not JSON: EOF":                             {nil, {"nodes.json", nil}},
	} {
		_, _, err := Import(Input{UserConfig: c[0], Nodes: c[1]})
		assert.ErrorContains(t, err, want)
	}
}

// TestDocs keeps the example of docs/site.md.
func TestDocs(t *testing.T) {
	var b strings.Builder
	for _, name := range []string{"user_config.sh", "notes.txt", "site.yaml"} {
		content, err := os.ReadFile("testdata/2021." + name)
		require.NoError(t, err)
		language := map[string]string{".sh": "sh", ".yaml": "yaml"}[filepath.Ext(name)]
		fmt.Fprintf(&b, "```%s\n%s```\n\n", language, content)
	}
	goldentest.CheckPart(t, "../../../docs/site.md", "import", b.String())
}

func FuzzUserConfig(f *testing.F) {
	for _, generation := range []string{"2019", "2021", "2022"} {
		f.Add(fixture(f, generation+".user_config.sh").Data)
	}
	f.Add([]byte("A=${B:-${C:=$A}}$A$A; A=$A$A; A=$A$A\nexport -p X=(1 2) Y[3]=4 Z+=5"))
	f.Add([]byte("IRONIC_IPMI_INTERFACE_IP=::1%a PROVIDER_NETWORK_GATEWAY=x DHCP_RANGE=, COMPUTE_NODE_NAME=--"))
	f.Fuzz(func(t *testing.T, data []byte) {
		text, notes, err := Import(Input{UserConfig: &File{"user_config.sh", data}})
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		for _, n := range notes {
			require.NotContains(t, n.String(), "\n")
		}
		requireSite(t, text)
	})
}

func FuzzNodesJSON(f *testing.F) {
	for _, generation := range []string{"2019", "2021"} {
		f.Add([]byte(regexp.MustCompile(`"mypasswd"`).ReplaceAllString(string(fixture(f, generation+".nodes.json").Data), `""`)))
	}
	f.Add([]byte(`{"nodes":[{"net":{"links":[{"id":"a","type":"vlan","vlan_link":"a"}],"networks":[{"link":"a","type":"ipv4"}]}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		text, notes, err := Import(Input{Nodes: &File{"nodes.json", data}})
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		for _, n := range notes {
			require.NotContains(t, n.String(), "\n")
		}
		requireSite(t, text)
	})
}

// requireSite holds that the text is at least a document: whatever else is wrong in it
// was wrong in the input.
func requireSite(t *testing.T, text []byte) {
	t.Helper()
	_, problems := site.Load("site.yaml", text)
	for _, p := range problems {
		require.NotContains(t, p.Message, "not YAML", "%s", text)
		require.NotContains(t, p.Message, "unknown key", "%s", text)
	}
}
