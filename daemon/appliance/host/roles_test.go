package host

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/site"
)

func nic(n int, link bool) NIC {
	return NIC{Name: fmt.Sprintf("eno%d", n), MAC: fmt.Sprintf("52:54:00:00:00:%02x", n), PCI: fmt.Sprintf("0000:%02x:00.0", n), Link: link}
}

func mac(n int) string { return nic(n, true).MAC }

var (
	silent   = Probe{}
	answered = Probe{Answered: true, Server: "10.0.0.1"}
)

// networksOf reads the networks of a site and fills in its defaults.
func networksOf(t *testing.T, text string) site.Networks {
	s, problems := site.Load("site.yaml", []byte(text))
	require.NoError(t, problems.Err())
	return s.WithDefaults().Networks
}

// inWords is "provisioning=eno1 baremetal=eno2+eno3", without the reasons.
func inWords(all []Assignment) string {
	var words []string
	for _, a := range all {
		var names []string
		for _, n := range a.NICs {
			names = append(names, n.Name)
		}
		words = append(words, a.Role+"="+strings.Join(names, "+"))
	}
	return strings.Join(words, " ")
}

func TestRoles(t *testing.T) {
	for _, c := range []struct {
		name       string
		nics       []NIC
		probes     map[string]Probe
		remembered map[string]string
		site       string
		want       string
		undecided  string // names
		notes      int
	}{
		{name: "no NIC", want: "provisioning="},
		{name: "no link anywhere", nics: []NIC{nic(1, false), nic(2, false)}, want: "provisioning=", notes: 2},
		{name: "a link that was not probed", nics: []NIC{nic(1, true), nic(2, false)}, want: "provisioning=", undecided: "eno1", notes: 1},
		{name: "one NIC, silent", nics: []NIC{nic(1, true)}, probes: map[string]Probe{mac(1): silent}, want: "provisioning=eno1"},
		{name: "one NIC, a server answers: never ours to answer on", nics: []NIC{nic(1, true)}, probes: map[string]Probe{mac(1): answered}, want: "provisioning= baremetal=eno1"},
		{name: "two NICs", nics: []NIC{nic(1, true), nic(2, true)}, probes: map[string]Probe{mac(1): answered, mac(2): silent}, want: "provisioning=eno2 baremetal=eno1"},
		{name: "two NICs, both silent: the first by PCI address", nics: []NIC{nic(2, true), nic(1, true)}, probes: map[string]Probe{mac(1): silent, mac(2): silent}, want: "provisioning=eno1", notes: 1},
		{name: "two NICs, servers on both", nics: []NIC{nic(1, true), nic(2, true)}, probes: map[string]Probe{mac(1): answered, mac(2): answered}, want: "provisioning= baremetal=eno1", notes: 1},
		{name: "three NICs", nics: []NIC{nic(1, true), nic(2, true), nic(3, true)}, probes: map[string]Probe{mac(1): silent, mac(2): answered, mac(3): silent}, want: "provisioning=eno1 baremetal=eno2", notes: 1},
		{name: "three NICs, the third without a link", nics: []NIC{nic(1, true), nic(2, true), nic(3, false)}, probes: map[string]Probe{mac(1): silent, mac(2): answered}, want: "provisioning=eno1 baremetal=eno2", notes: 1},
		{name: "remembered: nobody is asked", nics: []NIC{nic(1, true), nic(2, true)}, remembered: map[string]string{mac(1): Baremetal, mac(2): Provisioning}, want: "provisioning=eno2 baremetal=eno1"},
		{name: "remembered, and the server is late today", nics: []NIC{nic(1, true), nic(2, true)}, probes: map[string]Probe{mac(1): silent, mac(2): silent},
			remembered: map[string]string{mac(1): Baremetal, mac(2): Provisioning}, want: "provisioning=eno2 baremetal=eno1"},
		{name: "remembered, and the link is gone", nics: []NIC{nic(1, false)}, remembered: map[string]string{mac(1): Provisioning}, want: "provisioning=eno1"},
		{name: "remembered of a NIC that was taken out", nics: []NIC{nic(2, true)}, probes: map[string]Probe{mac(2): silent}, remembered: map[string]string{mac(1): Provisioning}, want: "provisioning=eno2"},
		{name: "rubbish remembered", nics: []NIC{nic(1, true)}, probes: map[string]Probe{mac(1): silent}, remembered: map[string]string{mac(1): "bmc"}, want: "provisioning=eno1"},
		{name: "named by name, without a link, against what was remembered", nics: []NIC{nic(1, false), nic(2, true)}, remembered: map[string]string{mac(1): Baremetal},
			site: "networks: {provisioning: {interface: eno1}, baremetal: {interface: eno2}}", want: "provisioning=eno1 baremetal=eno2"},
		{name: "named by MAC", nics: []NIC{nic(1, true), nic(2, true)}, probes: map[string]Probe{mac(1): silent},
			site: "networks: {provisioning: {interface: \"52:54:00:00:00:02\"}}", want: "provisioning=eno2", notes: 1},
		{name: "named by PCI address", nics: []NIC{nic(1, true), nic(2, true)},
			site: "networks: {provisioning: {interface: \"0000:02:00.0\"}}", want: "provisioning=eno2", undecided: "eno1"},
		{name: "a named NIC that is not there", nics: []NIC{nic(1, true)}, probes: map[string]Probe{mac(1): answered},
			site: "networks: {provisioning: {interface: eno7}}", want: "provisioning= baremetal=eno1", notes: 1},
		{name: "a bond", nics: []NIC{nic(1, true), nic(2, true), nic(3, true)}, probes: map[string]Probe{mac(3): silent},
			site: "networks: {baremetal: {bond: {interfaces: [eno1, eno2]}}}", want: "provisioning=eno3 baremetal=eno1+eno2"},
		{name: "one NIC for two roles by VLAN", nics: []NIC{nic(1, true)},
			site: "networks: {provisioning: {interface: eno1}, bmc: {interface: eno1, vlan: 40, cidr: 10.4.0.0/24, address: 10.4.0.2}}", want: "provisioning=eno1 bmc=eno1"},
		{name: "bmc cannot be detected", nics: []NIC{nic(1, true)}, probes: map[string]Probe{mac(1): silent},
			site: "networks: {bmc: {cidr: 10.4.0.0/24, address: 10.4.0.2}}", want: "provisioning=eno1 bmc=", notes: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := networksOf(t, c.site)
			all, undecided, detected, notes := AssignRoles(c.nics, c.probes, c.remembered, ns)
			assert.Equal(t, c.want, inWords(all))
			var names []string
			for _, n := range undecided {
				names = append(names, n.Name)
			}
			assert.Equal(t, c.undecided, strings.Join(names, " "))
			assert.Len(t, notes, c.notes, "%q", notes)
			for _, a := range all {
				assert.NotEmpty(t, a.Why, "%s has no reason", a.Role)
			}
			// Whatever order the kernel finds the NICs in, and once decided, whatever their names.
			reversed := slices.Clone(c.nics)
			slices.Reverse(reversed)
			again, _, _, _ := AssignRoles(reversed, c.probes, c.remembered, ns)
			assert.Equal(t, c.want, inWords(again), "another order of NICs")
			known := maps.Clone(detected)
			if c.site == "" {
				later, _, _, _ := AssignRoles(reversed, nil, known, ns)
				assert.Equal(t, c.want, inWords(later), "the next boot")
			}
		})
	}
}

// describe is a layout as text, one link per line.
func describe(links []Link) string {
	var b strings.Builder
	for _, l := range links {
		fmt.Fprintf(&b, "%-6s %-14s", l.Kind, l.Name)
		for _, p := range []struct{ name, value string }{{"in", l.Master}, {"on", l.Parent}, {"mode", l.Mode}, {"mac", l.MAC}} {
			if p.value != "" {
				fmt.Fprintf(&b, " %s %s", p.name, p.value)
			}
		}
		if l.VLAN != 0 {
			fmt.Fprintf(&b, " vlan %d", l.VLAN)
		}
		fmt.Fprintf(&b, " mtu %d", l.MTU)
		if l.Address.IsValid() {
			fmt.Fprintf(&b, " address %s", l.Address)
		}
		if l.Inner.IsValid() {
			fmt.Fprintf(&b, " inner %s", l.Inner)
		}
		if l.Gateway.IsValid() {
			fmt.Fprintf(&b, " gateway %s", l.Gateway)
		}
		if l.DHCP {
			b.WriteString(" by DHCP")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestLayout(t *testing.T) {
	nics := []NIC{nic(1, true), nic(2, true), nic(3, true)}
	probes := map[string]Probe{mac(1): silent, mac(2): answered, mac(3): silent}
	var got strings.Builder
	for _, c := range []struct {
		name, site string
		nics       []NIC
	}{
		{"no site, no NIC", "", nil},
		{"no site, two networks", "", nics},
		{"static addresses", "networks: {provisioning: {cidr: 10.1.0.0/16, address: 10.1.0.9}, baremetal: {cidr: 10.2.0.0/24, address: 10.2.0.9, gateway: 10.2.0.1, mtu: 9000}}", nics},
		{"three roles by VLAN on one NIC", "networks: {provisioning: {interface: eno1}, bmc: {interface: eno1, vlan: 40, cidr: 10.4.0.0/24, address: 10.4.0.2}, baremetal: {interface: eno1, vlan: 41, mtu: 9000}}", nics},
		{"VLAN on a bond", "networks: {provisioning: {interface: eno1}, baremetal: {bond: {interfaces: [eno2, eno3], mode: 802.3ad}, vlan: 100}}", nics},
		{"provisioning by IPv6", "networks: {provisioning: {cidr: 'fd00:22::/64'}}", nics},
		{"a bond", "networks: {provisioning: {bond: {interfaces: [eno1, eno2]}}}", nics},
	} {
		ns := networksOf(t, c.site)
		all, _, _, _ := AssignRoles(c.nics, probes, nil, ns)
		fmt.Fprintf(&got, "--- %s\n%s", c.name, describe(Layout(all, ns)))
		for _, l := range Layout(all, ns) {
			assert.LessOrEqual(t, len(l.Name), 15, "the kernel takes no longer name than that: %s", l.Name)
		}
	}
	goldentest.Check(t, "testdata/layout", got.String())
}
