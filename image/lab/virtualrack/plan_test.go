package virtualrack

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/image/lab"
)

const someKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGZpcnN0bGlnaHQgZXhhbXBsZSBrZXksIG5vIHVzZSEh lab"

func TestDocument(t *testing.T) {
	large := DefaultOrder()
	large.Nodes, large.Firmware, large.Disks, large.NICs, large.Gateway = 3, Mixed, 2, 2, true
	large.Cluster, large.BMC = false, MixedBMCs
	tagged := DefaultOrder()
	tagged.Nodes, tagged.VLAN, tagged.Bond, tagged.Gateway = 1, 7, true, true
	for name, o := range map[string]Order{"two.yaml": DefaultOrder(), "mixed.yaml": large, "tagged.yaml": tagged} {
		require.NoError(t, o.Check())
		text, err := Plan(o).SiteDocument("a secret", someKey)
		require.NoError(t, err)
		goldentest.Check(t, "testdata/"+name, text)
	}
	full := DefaultOrder()
	full.Nodes, full.Gateway, full.NICs = MaxNodes, true, 8
	text, err := Plan(full).SiteDocument("a secret", someKey)
	require.NoError(t, err, "the plan has room for as many nodes as it says")
	s, problems := site.Load("site.yaml", []byte(text))
	require.NoError(t, problems.Err())
	assert.Len(t, s.Nodes, MaxNodes)
}

func TestOrdersAreChecked(t *testing.T) {
	for want, spoil := range map[string]func(*Order){
		"0 nodes; want 1 to 99":                              func(o *Order) { o.Nodes = 0 },
		"100 nodes; want 1 to 99":                            func(o *Order) { o.Nodes = 100 },
		`firmware "efi"; want bios, uefi or mixed`:           func(o *Order) { o.Firmware = "efi" },
		`BMCs "ilo"; want ipmi, redfish or mixed`:            func(o *Order) { o.BMC = "ilo" },
		"512 MiB of memory for a node; want 1024 to 1048576": func(o *Order) { o.MiB = 512 },
		"0 disks for a node; want 1 to 8":                    func(o *Order) { o.Disks = 0 },
		"65 processors of the appliance; want 0 to 64":       func(o *Order) { o.CPUs = 65 },
		"4095 as the tag of a VLAN; want 0 to 4094":          func(o *Order) { o.VLAN = 4095 },
		"a rack whose nodes are discovered cannot have a bond": func(o *Order) {
			o.Discover, o.Bond = true, true
		},

		"a rack whose nodes are discovered cannot have an empty site": func(o *Order) { o.Discover, o.EmptySite = true, true },
		"a rack whose nodes are discovered cannot have firmware of two kinds, because a server that is off does not say which it has": func(o *Order) {
			o.Discover, o.Firmware = true, Mixed
		},
		"a rack whose nodes are discovered cannot have several disks, because the site would have to name one": func(o *Order) {
			o.Discover, o.Disks = true, 2
		},
	} {
		o := DefaultOrder()
		spoil(&o)
		assert.EqualError(t, o.Check(), want)
	}
}

func TestFind(t *testing.T) {
	c, err := Plan(DefaultOrder()).Find("node-2")
	require.NoError(t, err)
	assert.Equal(t, "172.23.0.102", c.BMC.String())
	_, err = Plan(DefaultOrder()).Find("node-3")
	assert.EqualError(t, err, `machine "node-3" is not in the rack; it has appliance, node-1, node-2`)
}

func TestBootOrder(t *testing.T) {
	o := DefaultOrder()
	o.Disks, o.Gateway = 2, true
	r := Plan(o)
	m := r.config(r.Nodes[0], "dir", func(computer string, card int) string { return "port" })
	m.BootFrom(lab.BootNetwork)
	assert.Equal(t, []int{1, 0, 2, 3}, order(m))
	m.BootFrom(lab.BootDisks)
	assert.Equal(t, []int{3, 0, 1, 2}, order(m))
}

// TestApplianceProcessors: as many as were asked for, and two in racks of before anyone could ask.
func TestApplianceProcessors(t *testing.T) {
	for asked, want := range map[int]int{0: 2, 1: 1, 4: 4} {
		o := DefaultOrder()
		o.CPUs = asked
		r := Plan(o)
		port := func(string, int) string { return "port" }
		assert.Equal(t, want, r.config(r.Appliance, "dir", port).CPUs)
		assert.Equal(t, 1, r.config(r.Nodes[0], "dir", port).CPUs)
	}
}

// order is the place of each NIC and disk.
func order(m lab.Config) []int {
	var all []int
	for _, n := range m.NICs {
		all = append(all, n.BootIx)
	}
	for _, d := range m.Disks {
		all = append(all, d.BootIx)
	}
	return all
}

// TestAnEmptySiteNamesNetworksOnly: what the rack has is there, and whoever has the site learns nothing of it.
func TestAnEmptySiteNamesNetworksOnly(t *testing.T) {
	o := DefaultOrder()
	o.EmptySite = true
	text, err := Plan(o).SiteDocument("secret", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPKpCrRC9MbRSVkaXvH9BLP7tJTyNJlDZpwOjvXkGqPS x")
	require.NoError(t, err)
	assert.Contains(t, text, "networks:")
	assert.Contains(t, text, "clusters: []")
	for _, word := range []string{"nodes:", "node-1", "secret", macOf(1, 1).String()} {
		assert.NotContains(t, text, word)
	}
}

// TestADiscoveredRackNamesNothing: some ten lines, and in them no MAC, no BMC and no node.
func TestADiscoveredRackNamesNothing(t *testing.T) {
	for name, change := range map[string]func(*Order){
		"discover.yaml":     func(*Order) {},
		"discover-one.yaml": func(o *Order) { o.Nodes, o.Firmware, o.BMC = 1, AllUEFI, AllRedfish },
	} {
		o := DefaultOrder()
		o.Discover, o.Nodes = true, DiscoveredNodes
		change(&o)
		require.NoError(t, o.Check())
		text, err := Plan(o).SiteDocument("secret", someKey)
		require.NoError(t, err)
		goldentest.Check(t, "testdata/"+name, text)
		assert.LessOrEqual(t, strings.Count(text, "\n"), 14)
		for _, word := range []string{"nodes:", "node-1", "macs", "ipmi://", "redfish", macOf(0, 1).String(), addressOf(bmcs, firstNode+1).String()} {
			assert.NotContains(t, text, word)
		}
	}

	full := DefaultOrder()
	full.Discover, full.Nodes = true, MaxNodes
	_, err := Plan(full).SiteDocument("secret", someKey)
	require.NoError(t, err, "the plan has room for as many nodes as it says")
}

// TestADiscoveredRackIsBuiltAsItsSiteSays: the appliance's cards are where the site looks for them, and a node says the
// serial number that it is named by.
func TestADiscoveredRackIsBuiltAsItsSiteSays(t *testing.T) {
	o := DefaultOrder()
	o.Discover = true
	r := Plan(o)
	port := func(string, int) string { return "port" }
	text, err := r.SiteDocument("secret", someKey)
	require.NoError(t, err)
	for _, nic := range r.config(r.Appliance, "dir", port).NICs {
		assert.Contains(t, text, `interface: "`+lab.PCIAddress(nic.Slot)+`"`)
	}
	assert.Equal(t, []string{"-smbios", "type=1,serial=node-2"}, r.config(r.Nodes[1], "dir", port).Extra)
}

// TestDifferences: no difference may be without a word, or the refusal names none.
func TestDifferences(t *testing.T) {
	have := DefaultOrder()
	fields := reflect.TypeFor[Order]()
	for i := range fields.NumField() {
		want := have
		switch v := reflect.ValueOf(&want).Elem().Field(i); v.Kind() {
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.Int:
			v.SetInt(v.Int() + 1)
		case reflect.String:
			v.SetString("another")
		}
		if name := fields.Field(i).Name; name != "Capture" { // which is set, not compared
			assert.NotEmpty(t, describeDifferences(have, want), name)
		}
	}
}

func TestFits(t *testing.T) {
	o := DefaultOrder()
	assert.NoError(t, checkMemory(o, "MemTotal:       16000000 kB\nMemAvailable:   10485760 kB\n"))
	assert.EqualError(t, checkMemory(o, "MemTotal:       16000000 kB\nMemAvailable:   8388608 kB\n"),
		"2 nodes and the appliance need 10240 MiB of memory, 8192 MiB are free here; take fewer (--nodes), smaller ones (--memory, --appliance-memory), or end something else")
	o.Nodes = 1
	assert.NoError(t, checkMemory(o, "MemAvailable:   8388608 kB\n"))
	assert.NoError(t, checkMemory(o, "MemTotal: 1 kB\n"), "a kernel that does not say it")
}
