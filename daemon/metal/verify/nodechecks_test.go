package verify

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/verify/fact"
	"firstlight.dev/firstlight/daemon/metal/verify/netprobe"
	"firstlight.dev/firstlight/daemon/metal/verify/shell"
)

// proven are findings with which every check holds: a plain link without address, and one
// with a static address.
func proven(t *testing.T) Findings {
	q := netprobe.NewQuestion()
	return Findings{
		Node: node(t), Host: &fact.Host{Name: "node-1", State: "provisioned"},
		Answer: shell.Answer{Verdict: shell.Reached, Address: address, AskedAt: noon, Doubt: 200 * time.Millisecond, Question: q, Report: shell.Report{
			Hostname: "node-1", Time: noon.Add(time.Second),
			NICs: []shell.NIC{
				{Name: "eno1", MAC: "52:54:00:12:34:01", Up: true, MTU: 1500, Addresses: prefixes("fe80::1/64")},
				{Name: "eno2", MAC: "52:54:00:12:34:02", Up: true, MTU: 1500, Addresses: prefixes("10.10.110.21/24")},
			},
			Defaults: []shell.Route{{Via: router, Interface: "eno2"}}, Resolvers: []netip.Addr{dns},
			Routers: map[netip.Addr]string{router: "echo"}, DNS: map[netip.Addr][]byte{dns: answerTo(t, q)},
		}},
	}
}

func answerTo(t *testing.T, q netprobe.Question) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(q.Packet())
	require.NoError(t, err)
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true}}
	packet, err := m.Pack()
	require.NoError(t, err)
	return packet
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range texts {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func TestProve(t *testing.T) {
	nic := func(f *Findings, i int) *shell.NIC { return &f.Answer.Report.NICs[i] }
	bond := func(f *Findings) { // both NICs in a bond, with the address on a VLAN of it
		r := &f.Answer.Report
		r.NICs = []shell.NIC{
			{Name: "eno1", MAC: "52:54:00:12:34:01", Up: true, MTU: 1500, Master: "bond0"},
			{Name: "eno2", MAC: "52:54:00:12:34:02", Up: true, MTU: 1500, Master: "bond0"},
			{Name: "bond0", MAC: "52:54:00:12:34:01", Up: true, MTU: 1500},
			{Name: "bond0.7", MAC: "52:54:00:12:34:01", Up: true, MTU: 1500, VLAN: 7, Parent: "bond0", Addresses: prefixes("10.10.110.21/24")},
		}
		f.Node.Links = []site.Link{{Network: "baremetal", Bond: &site.NodeBond{MACs: []site.MAC{"52:54:00:12:34:01", "52:54:00:12:34:02"}}, VLAN: 7, MTU: 1500,
			Address: site.LinkAddress{Method: "static", Prefix: netip.MustParsePrefix("10.10.110.21/24")}}}
	}
	byDHCP := func(f *Findings) { f.Node.Links = nil }
	for _, c := range []struct {
		name, check string
		change      func(*Findings)
		state       status.CheckState
		text        string
	}{
		{"no host", "installed", func(f *Findings) { f.Host = nil }, status.CheckWaiting, "no host"},
		{"being installed", "installed", func(f *Findings) { f.Host.State = "provisioning" }, status.CheckWaiting, "provisioning"},
		{"booting", "login", func(f *Findings) {
			f.Answer = shell.Answer{Verdict: shell.Silent, Text: "nothing answers SSH at 10.10.110.21"}
		}, status.CheckWaiting, "nothing answers"},
		{"another machine", "login", func(f *Findings) { f.Answer = shell.Answer{Verdict: shell.OtherMachine, Text: "another machine"} }, status.CheckFailed, "another machine"},
		{"key refused", "login", func(f *Findings) { f.Answer = shell.Answer{Verdict: shell.Locked, Text: "cloud-init did not"} }, status.CheckFailed, "cloud-init"},
		{"no shell", "login", func(f *Findings) { f.Answer = shell.Answer{Verdict: shell.Odd, Text: "no shell"} }, status.CheckFailed, "no shell"},
		{"no carrier", "links", func(f *Findings) { nic(f, 0).Up = false }, status.CheckFailed, "provisioning (52:54:00:12:34:01): eno1 (52:54:00:12:34:01) has no carrier"},
		{"no such NIC", "links", func(f *Findings) { nic(f, 1).MAC = "52:54:00:00:00:00" }, status.CheckFailed, "no NIC has the MAC 52:54:00:12:34:02"},
		{"small packets", "links", func(f *Findings) { f.Node.Links[1].MTU = 9000 }, status.CheckFailed, "packets of 1500 bytes, site.yaml says 9000"},
		{"bond and VLAN", "links", bond, status.CheckOK, "bond0.7"},
		{"half a bond", "links", func(f *Findings) { bond(f); nic(f, 1).Up = false }, status.CheckFailed, "eno2 (52:54:00:12:34:02) has no carrier"},
		{"no bond", "links", func(f *Findings) { bond(f); nic(f, 0).Master = "" }, status.CheckFailed, "is in no bond"},
		{"no VLAN", "links", func(f *Findings) { bond(f); nic(f, 3).VLAN = 8 }, status.CheckFailed, "bond0 has no VLAN 7"},
		{"wrong address", "addresses", func(f *Findings) { nic(f, 1).Addresses = prefixes("10.10.110.99/24") }, status.CheckFailed, "eno2 has 10.10.110.99/24, site.yaml says 10.10.110.21/24"},
		{"wrong length", "addresses", func(f *Findings) { nic(f, 1).Addresses = prefixes("10.10.110.21/16") }, status.CheckFailed, "10.10.110.21/16"},
		{"an address where none belongs", "addresses", func(f *Findings) { nic(f, 0).Addresses = prefixes("172.22.0.33/24") }, status.CheckFailed, "site.yaml says none"},
		{"address on a bridge", "addresses", func(f *Findings) {
			nic(f, 1).Addresses, nic(f, 1).Master = nil, "br0"
			f.Answer.Report.NICs = append(f.Answer.Report.NICs, shell.NIC{Name: "br0", Up: true, Addresses: prefixes("10.10.110.21/24")})
		}, status.CheckOK, "10.10.110.21/24"},
		{"bond's address", "addresses", bond, status.CheckOK, "10.10.110.21/24"},
		{"no lease", "addresses", byDHCP, status.CheckFailed, "got no address by DHCP"},
		{"a lease", "addresses", func(f *Findings) { byDHCP(f); nic(f, 0).Addresses = prefixes("172.22.0.33/24") }, status.CheckOK, "172.22.0.33/24 by DHCP"},
		{"no route", "gateway", func(f *Findings) { f.Answer.Report.Defaults = nil }, status.CheckFailed, "no default route through 10.10.110.1"},
		{"router silent", "gateway", func(f *Findings) { f.Answer.Report.Routers[router] = "" }, status.CheckFailed, "10.10.110.1 does not answer"},
		{"router does not echo", "gateway", func(f *Findings) { f.Answer.Report.Routers[router] = "neighbour" }, status.CheckOK, "answers"},
		{"a router that announced itself", "gateway", func(f *Findings) {
			for i := range f.Node.Links {
				f.Node.Links[i].Gateway = netip.Addr{}
			}
			f.Answer.Report.Defaults = append(f.Answer.Report.Defaults, shell.Route{Via: netip.MustParseAddr("fe80::1"), Interface: "eno2"})
		}, status.CheckOK, "10.10.110.1"},
		{"resolver silent", "dns", func(f *Findings) { f.Answer.Report.DNS[dns] = nil }, status.CheckFailed, "10.10.110.2 does not answer"},
		{"no resolver there", "dns", func(f *Findings) { f.Answer.Report.DNS[dns] = []byte("hello, who is there?") }, status.CheckFailed, "no resolver"},
		{"clock behind", "clock", func(f *Findings) { f.Answer.Report.Time = noon.Add(-time.Hour) }, status.CheckFailed, "1h0m0s behind"},
		{"clock ahead", "clock", func(f *Findings) { f.Answer.Report.Time = noon.Add(6 * time.Second) }, status.CheckFailed, "6s ahead"},
		{"a slow answer is no wrong clock", "clock", func(f *Findings) {
			f.Answer.Report.Time, f.Answer.Doubt = noon.Add(6*time.Second), 2*time.Second
		}, status.CheckOK, "right"},
		{"an IOMMU", "iommu", func(f *Findings) { f.Node.IOMMU, f.Answer.Report.IOMMUGroups = true, 14 }, status.CheckOK, "14 groups of devices"},
		{"a boot loader that says nothing of it", "iommu", func(f *Findings) { f.Node.IOMMU, f.Answer.Report.CmdLine = true, []string{"quiet"} }, status.CheckFailed, "it was started without intel_iommu=on"},
		{"a server without one", "iommu", func(f *Findings) {
			f.Node.IOMMU, f.Answer.Report.CmdLine = true, []string{"quiet", "intel_iommu=on", "iommu=pt"}
		}, status.CheckFailed, "it has no IOMMU"},
		{"no clock", "clock", func(f *Findings) { f.Answer.Report.Time = time.Time{} }, status.CheckFailed, "does not tell"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := proven(t)
			require.True(t, AllPassed(VerifyNode(f)), "%+v", VerifyNode(f))
			c.change(&f)
			found := false
			for _, got := range VerifyNode(f) {
				if got.Name == c.check {
					found = true
					assert.Equal(t, c.state, got.State, got.Text)
					assert.Contains(t, got.Text, c.text)
					assert.Equal(t, got.State == status.CheckFailed, got.Fix != "", "the way out is named if and only if it failed")
				}
			}
			assert.True(t, found, "no check is called %s", c.check)
			if c.state != status.CheckOK {
				assert.False(t, AllPassed(VerifyNode(f)), "it counts as proven")
			}
		})
	}
}

// TestALeaseOfIPv6IsAnAddress where the site says so, and only there.
func TestALeaseOfIPv6IsAnAddress(t *testing.T) {
	f := proven(t)
	f.Node.Links = nil
	f.Answer.Report.NICs[0].Addresses = prefixes("fd00:22::33/128", "fe80::1/64")
	p, _ := FirstProblem(VerifyNode(f))
	assert.Equal(t, "addresses", p.Name)
	f.LeasesIPv6 = func(l site.Link) bool { return l.MAC == "52:54:00:12:34:01" }
	require.True(t, AllPassed(VerifyNode(f)), "%+v", VerifyNode(f))
	f.Answer.Report.NICs[0].Addresses = prefixes("172.22.0.33/24", "fe80::1/64")
	p, _ = FirstProblem(VerifyNode(f))
	assert.Equal(t, "addresses", p.Name, "it is of the other family")
}

// TestANodeIsAskedAtItsAddressesOfIPv6Last.
func TestANodeIsAskedAtItsAddressesOfIPv6Last(t *testing.T) {
	link := func(p string) site.Link {
		return site.Link{Address: site.LinkAddress{Method: "static", Prefix: netip.MustParsePrefix(p)}}
	}
	n := site.Node{Links: []site.Link{link("fd00:22::9/64"), link("10.0.0.9/24"), link("fe80::9/64")}}
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00:22::9")}, staticAddrs(n))
}

func TestWhatDHCPGaveIsAskedToo(t *testing.T) {
	f := proven(t)
	f.Node.Links = nil
	f.Answer.Report.NICs[0].Addresses = prefixes("172.22.0.33/24")
	require.True(t, AllPassed(VerifyNode(f)), "%+v", VerifyNode(f))
	f.Answer.Report.Routers[router] = ""
	p, _ := FirstProblem(VerifyNode(f))
	assert.Equal(t, "gateway", p.Name)
	f = proven(t)
	f.Node.Links = nil
	f.Answer.Report.NICs[0].Addresses = prefixes("172.22.0.33/24")
	f.Answer.Report.DNS[dns] = nil
	p, _ = FirstProblem(VerifyNode(f))
	assert.Equal(t, "dns", p.Name)
}
