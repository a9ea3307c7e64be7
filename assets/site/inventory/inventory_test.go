package inventory

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
)

func read(t *testing.T, names ...string) []File {
	t.Helper()
	var all []File
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		all = append(all, File{name, data})
	}
	return all
}

// TestListsBecomeNodes: the same three servers, as people keep them, become the same nodes.
func TestListsBecomeNodes(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		notes []string
	}{
		"a table": {[]string{"rack.csv"}, []string{"rack.csv: not carried over: Notes"}},
		"a table of a German spreadsheet, and its passwords": {[]string{"rack-semicolons.csv", "passwords.csv"}, nil},
		"MAAS": {[]string{"maas-machines.json", "maas-power.json"}, nil},
		"NetBox, and a table of passwords": {[]string{"netbox-devices.json", "netbox-interfaces.json", "passwords.csv"},
			[]string{"netbox-devices.json: old-1 is left out: its status is decommissioning"}},
	} {
		t.Run(name, func(t *testing.T) {
			text, notes, err := Import(read(t, c.files...))
			require.NoError(t, err)
			assert.Equal(t, c.notes, notes)
			got, problems := site.Load("site.yaml", text)
			require.Empty(t, problems, string(text))

			assert.Equal(t, "admin", got.NodeDefaults.BMC.Username)
			assert.Equal(t, "change me", got.NodeDefaults.BMC.Password.Reveal())
			require.Len(t, got.Nodes, 3, string(text))
			for i, want := range []struct {
				name, bmc string
				macs      []site.MAC
			}{
				{"node-1", "ipmi://10.10.110.101", []site.MAC{"52:54:00:12:34:01", "52:54:00:12:34:a1"}},
				{"node-2", "ipmi://10.10.110.102", []site.MAC{"52:54:00:12:34:02"}},
				{"node-3", "redfish://10.10.110.103/redfish/v1/Systems/1", []site.MAC{"52:54:00:12:34:03"}},
			} {
				n := got.Nodes[i]
				assert.Equal(t, site.Name(want.name), n.Name)
				assert.Equal(t, want.macs, n.MACs, want.name)
				assert.Equal(t, site.BMCAddress(want.bmc), n.BMC.Address)
				assert.Empty(t, n.BootMAC)
			}
		})
	}
}

func TestWhatATableSays(t *testing.T) {
	for name, c := range map[string]struct {
		table, document, notes string
	}{
		"nothing but names and BMCs": {
			"host,ipmi\nA,10.0.0.1/24\nb.example.org,fd00::1",
			"nodes:\n  - name: a\n    bmc:\n      address: ipmi://10.0.0.1\n  - name: b\n    bmc:\n      address: ipmi://[fd00::1]\n", "",
		},
		"several passwords": {
			"name,mac,bmc,user,password\na,52-54-00-12-34-01,10.0.0.1,root,one\nb,525400123402,10.0.0.2,root,two",
			"nodes:\n  - name: a\n    macs:\n      - 52:54:00:12:34:01\n    bmc:\n      address: ipmi://10.0.0.1\n      username: root\n      password: one\n" +
				"  - name: b\n    macs:\n      - 52:54:00:12:34:02\n    bmc:\n      address: ipmi://10.0.0.2\n      username: root\n      password: two\n", "",
		},
		"labels, a NIC to boot from, no BMC": {
			"name,macs,boot mac,rack,serial\na,52:54:00:12:34:01 52:54:00:12:34:02,52:54:00:12:34:02,Hall 3 / R7,,",
			"nodes:\n  - name: a\n    macs:\n      - 52:54:00:12:34:01\n      - 52:54:00:12:34:02\n    bootMAC: 52:54:00:12:34:02\n    labels:\n      rack: Hall-3-R7\n",
			"t.csv: a: it has no BMC; a person switches it on",
		},
		"rows that say nothing": {
			"name,mac,bmc\n,,\n# of last year\n,52:54:00:12:34:01,\na,,", "nodes:\n  - name: a\n",
			"t.csv: a row without a name is left out: ,52:54:00:12:34:01,\nt.csv: a: it has neither a MAC nor a BMC; add one of them",
		},
	} {
		t.Run(name, func(t *testing.T) {
			text, notes, err := Import([]File{{"t.csv", []byte(c.table)}})
			require.NoError(t, err)
			_, document, _ := strings.Cut(string(text), "name: firstlight\n")
			assert.Equal(t, c.document, document)
			assert.Equal(t, c.notes, strings.Join(notes, "\n"))
		})
	}
}

// TestAddressesOfMAAS: its BMCs may have a scheme of the web, and its answers may come in several files.
func TestAddressesOfMAAS(t *testing.T) {
	text, _, err := Import([]File{
		{"m.json", []byte(`[{"system_id": "a", "hostname": "a"}, {"system_id": "b", "hostname": "b"}, {"system_id": "c", "hostname": "c"}]`)},
		{"p.json", []byte(`{"a": {"power_address": "http://10.0.0.1/", "node_id": "1"}, "b": {"power_address": "10.0.0.2", "node_id": "2"}}`)},
		{"q.json", []byte(`{"c": {"power_address": "10.0.0.3"}}`)},
	})
	require.NoError(t, err)
	got, _ := site.Load("site.yaml", text)
	require.Len(t, got.Nodes, 3, string(text))
	for i, want := range []site.BMCAddress{
		"redfish+http://10.0.0.1/redfish/v1/Systems/1", "redfish://10.0.0.2/redfish/v1/Systems/2", "ipmi://10.0.0.3",
	} {
		assert.Equal(t, want, got.Nodes[i].BMC.Address)
	}
}

func TestWhatIsNoList(t *testing.T) {
	for text, says := range map[string]string{
		"":                                "import x: it is empty",
		"mac,bmc\n1,2":                    "import x: its first line names no column name, hostname, host, node, server, fqdn; write such a header",
		"name,mac\n":                      "import x: no server is named in it",
		"name,mac\n\"a,b":                 `import x: parse error on line 2, column 5: extraneous or missing " in quoted-field`,
		"{":                               "import x: unexpected end of JSON input",
		`[{"id": 7}]`:                     "import x: item 1: it is neither a device or an interface of NetBox nor a machine of MAAS",
		`{"detail": "Not found."}`:        "import x: it is neither NetBox's nor MAAS' JSON: detail: json: cannot unmarshal string into Go value of type inventory.power",
		`{"results": [], "next": "more"}`: "import x: no server is named in it",
	} {
		_, _, err := Import([]File{{"x", []byte(text)}})
		assert.EqualError(t, err, says)
	}
}
