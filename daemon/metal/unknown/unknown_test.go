package unknown

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
)

const mac = "52:54:00:0a:0b:0c"

// inventory is an agent's, with JSON in place of a part.
func inventory(t *testing.T, change func(inventory map[string]any)) map[string]any {
	var said map[string]any
	d := json.NewDecoder(strings.NewReader(`{"inventory": {
		"system_vendor": {"manufacturer": "Dell Inc.", "product_name": "PowerEdge R640", "serial_number": "ABC1234"},
		"cpu": {"model_name": "Xeon Gold 6130", "count": 32, "architecture": "x86_64"},
		"memory": {"physical_mb": 196608},
		"boot": {"current_boot_mode": "uefi"},
		"bmc_address": "10.10.110.101", "bmc_v6address": "::/0",
		"disks": [{"name": "/dev/sda", "model": "PERC H730", "serial": "S1", "size": 480103981056},
			{"name": "/dev/sdb", "serial": "S2", "size": 4000787030016}],
		"interfaces": [{"name": "eno1", "mac_address": "52:54:00:0A:0B:0C", "has_carrier": true},
			{"name": "eno2", "mac_address": "52:54:00:0a:0b:0d", "has_carrier": false}]}}`))
	d.UseNumber()
	require.NoError(t, d.Decode(&said))
	if change != nil {
		change(said["inventory"].(map[string]any))
	}
	return said
}

func machines(t *testing.T) *Machines {
	return &Machines{
		Path:    filepath.Join(t.TempDir(), "unknown.json"),
		IsKnown: func(string) bool { return false },
		Log:     slog.New(slog.DiscardHandler),
	}
}

// TestAnUnknownMachineIsShown with what it has, and with entries that can be pasted as they are.
func TestAnUnknownMachineIsShown(t *testing.T) {
	m, now := machines(t), time.Now()
	m.Add(mac, inventory(t, nil), now)
	again := machines(t) // the daemon starts again
	again.Path = m.Path
	list := again.List(now)
	require.Len(t, list, 1)
	u := list[0]
	for _, want := range []string{
		mac, "Dell Inc. PowerEdge R640", "serial ABC1234", "32 CPUs x86_64", "192 GiB RAM", "2 disks of 4480 GB", "2 NICs",
		"Xeon Gold 6130", "/dev/sda 480 GB, PERC H730, serial S1", "eno1 52:54:00:0a:0b:0c, link", "eno2 52:54:00:0a:0b:0d, no link",
		"BMC   10.10.110.101",
	} {
		assert.Contains(t, Text(u), want)
	}

	s, problems := site.Load("site.yaml", []byte("nodes:\n"+SiteEntry(u)))
	require.Empty(t, problems, SiteEntry(u))
	n := s.Nodes[0]
	assert.Equal(t, []site.MAC{mac}, n.MACs)
	assert.EqualValues(t, "ipmi://10.10.110.101", n.BMC.Address)
	assert.Equal(t, "S1", n.RootDevice.SerialNumber, "of two disks one must be named")

	for document := range strings.SplitSeq(HostDocument(u), "---\n") {
		require.NoError(t, yaml.UnmarshalStrict([]byte(document), &map[string]any{}), document)
	}
	assert.Contains(t, HostDocument(u), `bootMACAddress: "`+mac+`"`)

	again.IsKnown = func(of string) bool { return of == mac }
	assert.Empty(t, again.List(now), "the site names it now")
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	m, began := machines(t), time.Now()
	for i := range maxMachines + 10 {
		m.Add(fmt.Sprintf("52:54:00:00:%02x:%02x", i>>8, i&0xff), inventory(t, nil), began.Add(time.Duration(i)*time.Second))
	}
	list := m.List(began)
	assert.Len(t, list, maxMachines)
	assert.Equal(t, "52:54:00:00:00:0a", list[0].MAC, "the oldest went")
	assert.Empty(t, m.List(began.Add(maxAge+time.Hour)), "they expire")

	require.NoError(t, os.WriteFile(m.Path, []byte("torn"), 0o600))
	torn := machines(t)
	torn.Path = m.Path
	assert.Empty(t, torn.List(began))
}

// TestNothingOfAStrangerIsTrusted: whatever it sends is bounded and printable, and what is pasted is what is meant.
func TestNothingOfAStrangerIsTrusted(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	const evil = "a\"]\n- name: b\n  overwrite: true # \x1b[2J {{x}} $(reboot) `id` \u202e"
	for name, change := range map[string]func(map[string]any){
		"text": func(i map[string]any) {
			i["system_vendor"] = map[string]any{"manufacturer": evil, "product_name": long, "serial_number": evil}
			i["disks"] = []any{map[string]any{"name": evil, "serial": evil, "model": long, "size": json.Number("1e99")}, map[string]any{"serial": evil}}
			i["bmc_address"] = "10.0.0.1\"}\n- name: b"
		},
		"kinds": func(i map[string]any) {
			for key := range i {
				i[key] = []any{1, nil, "x"}
			}
		},
		"numbers": func(i map[string]any) {
			i["cpu"] = map[string]any{"count": json.Number("-5")}
			i["memory"] = map[string]any{"physical_mb": json.Number("9223372036854775807")}
		},
		"many": func(i map[string]any) {
			i["disks"], i["interfaces"] = make([]any, 100_000), make([]any, 100_000)
			for n := range 100_000 {
				i["disks"].([]any)[n] = map[string]any{"name": "/dev/sda", "size": json.Number("9223372036854775807")}
				i["interfaces"].([]any)[n] = map[string]any{"mac_address": mac}
			}
		},
		"bmc": func(i map[string]any) { i["bmc_address"] = "127.0.0.1" },
	} {
		u := parse(mac, inventory(t, change), time.Now())
		text := Text(u) + SiteEntry(u) + HostDocument(u)
		assert.Less(t, len(text), 8<<10, name)
		for _, r := range text {
			assert.True(t, r == '\n' || r >= ' ' && r <= '~', "%s: %q", name, r)
		}
		s, problems := site.Load("site.yaml", []byte("nodes:\n"+SiteEntry(u)))
		require.Empty(t, problems, "%s: %s", name, SiteEntry(u))
		require.Len(t, s.Nodes, 1, name)
		assert.Empty(t, s.Nodes[0].Overwrite, name)
		if name == "bmc" || name == "text" {
			assert.Nil(t, s.Nodes[0].BMC, name)
			assert.Empty(t, HostDocument(u))
		}
	}
}

func TestNames(t *testing.T) {
	assert.Equal(t, "node-0a0b0c", Name(status.UnknownMachine{MAC: mac}))
}

// TestABMCAloneIsShown, with an entry that can be pasted: its server did not boot, and has no MAC to apply it with.
func TestABMCAloneIsShown(t *testing.T) {
	for _, c := range []struct {
		u       status.UnknownMachine
		address string
	}{
		{status.UnknownMachine{BMC: "10.30.0.101", Found: "52:54:00:bb:00:01 leased 10.30.0.101 and answers a presence ping as IPMI does"},
			"ipmi://10.30.0.101"},
		{status.UnknownMachine{BMC: "10.30.0.102", BMCURL: "redfish://10.30.0.102/redfish/v1/Systems/1", Serial: "ABC1234",
			NICs: []status.UnknownNIC{{MAC: mac}}}, "redfish://10.30.0.102/redfish/v1/Systems/1"},
	} {
		text := Text(c.u)
		assert.True(t, strings.HasPrefix(text, c.u.BMC+"  "), text)
		assert.Contains(t, text, "its BMC alone is known")
		assert.Contains(t, text, c.u.Found)
		s, problems := site.Load("site.yaml", []byte("nodes:\n"+SiteEntry(c.u)))
		require.Empty(t, problems, SiteEntry(c.u))
		assert.EqualValues(t, "node-"+strings.ReplaceAll(c.u.BMC, ".", "-"), s.Nodes[0].Name)
		assert.EqualValues(t, c.address, s.Nodes[0].BMC.Address)
		assert.Empty(t, s.Nodes[0].MACs)
		assert.Empty(t, HostDocument(c.u))
	}
}

// TestTheBlockIsReady: all machines at once, as a site that validates; what two of them claim is given to neither.
func TestTheBlockIsReady(t *testing.T) {
	var all []status.UnknownMachine
	for _, c := range []struct{ mac, bmc string }{
		{"52:54:00:0a:0b:0c", "10.10.110.101"},
		{"52:55:00:0a:0b:0c", "10.10.110.102"}, // ends as the one before
		{"52:54:00:0a:0b:0e", "10.10.110.103"},
		{"52:54:00:0a:0b:0f", "10.10.110.103"}, // the same BMC
		{"52:54:00:0a:0b:10", ""},
	} {
		u := parse(c.mac, inventory(t, nil), time.Now())
		u.BMC = c.bmc
		all = append(all, u)
	}

	text := "nodeDefaults: {bmc: {username: admin, password: common}}\n" + SiteNodes(all)
	s, problems := site.Load("site.yaml", []byte(text))
	require.Empty(t, problems.String(), text)
	require.Len(t, s.Nodes, 5)
	nodes := s.WithDefaults().Nodes
	assert.Equal(t, "common", nodes[0].BMC.Password.Reveal())
	assert.NotEqual(t, nodes[0].Name, nodes[1].Name)
	assert.Nil(t, nodes[2].BMC)
	assert.Nil(t, nodes[3].BMC)
	assert.Contains(t, text, "10.10.110.103, is claimed by another machine")
}
