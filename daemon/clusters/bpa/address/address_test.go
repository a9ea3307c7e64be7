package address

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	macA = "52:54:00:00:00:0a"
	macB = "52:54:00:00:00:0b"
)

var now = time.Date(2026, 11, 20, 12, 30, 0, 0, time.UTC)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// TestISC reads lease files as dhcpd leaves them behind, whole and torn.
func TestISC(t *testing.T) {
	block := func(ip, state, mac string) string {
		return fmt.Sprintf("lease %s {\n  starts 5 2026/11/20 12:00:00;\n  ends 5 2026/11/20 13:00:00;\n  binding state %s;\n  next binding state free;\n  rewind binding state free;\n  hardware ethernet %s;\n  uid \"\\001RT\";\n}\n", ip, state, mac)
	}
	for _, c := range []struct {
		name, text string
		active     string // of macA; "" is none
		known      bool
	}{
		{"active", block("10.0.0.1", "active", macA), "10.0.0.1", true},
		{"upper case", block("10.0.0.1", "active", "52:54:00:00:00:0A"), "10.0.0.1", true},
		{"free", block("10.0.0.1", "free", macA), "", true},
		{"last block wins: active", block("10.0.0.1", "free", macA) + block("10.0.0.2", "active", macA), "10.0.0.2", true},
		{"last block wins: free", block("10.0.0.1", "active", macA) + block("10.0.0.1", "free", macA), "", true},
		{"another's block after it", block("10.0.0.1", "active", macA) + block("10.0.0.2", "free", macB), "10.0.0.1", true},
		{"next binding state does not count", "lease 10.0.0.1 {\n  next binding state active;\n  binding state free;\n  hardware ethernet " + macA + ";\n}\n", "", true},
		{"no state", "lease 10.0.0.1 {\n  hardware ethernet " + macA + ";\n}\n" + block("10.0.0.2", "active", macB), "", true},
		{"no MAC: neighbours are left alone", block("10.0.0.1", "active", macA) + "lease 10.0.0.9 {\n  binding state active;\n}\n" + block("10.0.0.2", "free", macB), "10.0.0.1", true},
		{"torn at the end", block("10.0.0.1", "active", macA) + "lease 10.0.0.7 {\n  binding state active;\n  hardware ethernet " + macA, "10.0.0.1", true},
		{"torn in the middle", "lease 10.0.0.7 {\n  binding state active;\n  hardware ethernet " + macA + ";\n" + block("10.0.0.2", "active", macB), "", false},
		{"a stray quote and comments", "# comment\nauthoring-byte-order little-endian;\nserver-duid \"x\";\n\nlease 10.0.0.1 {\n  client-hostname \"a\"b\";\n  binding state active; \n  hardware ethernet " + macA + ";\n}\n", "10.0.0.1", true},
		{"carriage returns", "lease 10.0.0.1 {\r\n  binding state active;\r\n  hardware ethernet " + macA + ";\r\n}\r\n", "10.0.0.1", true},
		{"ended", "lease 10.0.0.1 {\n  ends 5 2026/11/20 12:29:59;\n  binding state active;\n  hardware ethernet " + macA + ";\n}\n", "", true},
		{"ends never", "lease 10.0.0.1 {\n  ends never;\n  binding state active;\n  hardware ethernet " + macA + ";\n}\n", "10.0.0.1", true},
		{"ends by the epoch", "lease 10.0.0.1 {\n  ends epoch 4102444800; # Fri\n  binding state active;\n  hardware ethernet " + macA + ";\n}\n", "10.0.0.1", true},
		{"ends at nonsense", "lease 10.0.0.1 {\n  ends soon;\n  binding state active;\n  hardware ethernet " + macA + ";\n}\n", "", true},
		{"IPv6", "lease 2001:db8::7 {\n  binding state active;\n  hardware ethernet " + macA + ";\n}\n", "2001:db8::7", true},
		{"no address", "lease nowhere {\n  binding state active;\n  hardware ethernet " + macA + ";\n}\n", "", true},
		{"empty", "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, known := ParseISC([]byte(c.text))[macA]
			assert.Equal(t, c.known, known)
			assert.Equal(t, c.active != "", l.IsActive(now))
			if c.active != "" {
				assert.Equal(t, addr(c.active), l.Addr)
			}
		})
	}
}

// TestISCOfOurOwnServer reads what package pxe/lease writes.
func TestISCOfOurOwnServer(t *testing.T) {
	text, err := os.ReadFile("../../../../pxe/lease/testdata/dhcpd.leases")
	require.NoError(t, err)
	all := ParseISC(text)
	assert.Len(t, all, 3)
	assert.Equal(t, Lease{addr("172.22.0.1"), "active", time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC)}, all["02:00:00:00:00:01"])
	assert.Equal(t, "abandoned", all["02:00:00:00:00:03"].State)
}

func FuzzISC(f *testing.F) {
	text, err := os.ReadFile("../../../../pxe/lease/testdata/dhcpd.leases")
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte("lease {\nlease\n}\n{ends epoch\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for mac, l := range ParseISC(text) {
			if len(mac) != 17 || l.IsActive(now) && !l.Addr.IsValid() {
				t.Errorf("%q: %+v", mac, l)
			}
		}
		// Appending a whole block decides, whatever comes before it.
		whole := append(text, "\nlease 10.9.9.9 {\n  binding state active;\n  hardware ethernet "+macA+";\n}\n"...)
		if l := ParseISC(whole)[macA]; l.Addr != addr("10.9.9.9") || !l.IsActive(now) {
			t.Errorf("the last block did not win: %+v", l)
		}
	})
}

const network = `{"links":[
 {"id":"nic0","type":"phy","ethernet_mac_address":"52:54:00:00:00:0A"},{"id":"nic1","type":"phy","ethernet_mac_address":"52:54:00:00:00:0b"},
 {"id":"bond","type":"bond","bond_links":["nic0","nic1"]},{"id":"v","type":"vlan","vlan_link":"bond","vlan_id":5},{"id":"nic2","type":"phy","ethernet_mac_address":"52:54:00:00:00:0c"}],
 "networks":[{"link":"bond","type":"ipv4","ip_address":"10.1.0.5"},{"link":"v","type":"ipv4","ip_address":"10.2.0.5/24","routes":[{"network":"0.0.0.0","netmask":"0.0.0.0","gateway":"10.2.0.1"}]},
 {"link":"nic2","type":"ipv4_dhcp"},{"link":"none","type":"ipv4","ip_address":"10.3.0.5"}],"services":[]}`

func TestNetworkData(t *testing.T) {
	all, err := ParseNetworkData([]byte(network))
	require.NoError(t, err)
	want := Static{addr("10.2.0.5"), true}
	assert.Equal(t, map[string]Static{macA: want, macB: want}, all)
	_, err = ParseNetworkData([]byte("links:"))
	assert.ErrorContains(t, err, "read network data")
	_, err = ParseNetworkData([]byte(`{"links":[{"id":"a","vlan_link":"a"}],"networks":[{"link":"a","ip_address":"10.0.0.1"}]}`))
	assert.NoError(t, err, "a link below itself")
}

func TestOf(t *testing.T) {
	leases := func(state string, ip string) Leases { return Leases{macA: {Addr: addr(ip), State: state}} }
	nics := []NIC{{macA, addr("10.0.0.3")}, {macB, addr("10.0.0.4")}}
	for _, c := range []struct {
		name    string
		host    Host
		leases  Leases
		want    Result
		reason  string
		message string
	}{
		{"the active lease before what inspection saw", Host{NICs: nics}, leases("active", "10.0.0.1"), Result{macA, addr("10.0.0.1"), FromLease}, "", ""},
		{"what inspection saw", Host{NICs: nics}, nil, Result{macA, addr("10.0.0.3"), FromInspection}, "", ""},
		{"the site's before the ramdisk's lease", Host{NICs: nics, Static: map[string]Static{macA: {Addr: addr("10.0.0.9")}}}, leases("active", "10.0.0.1"), Result{macA, addr("10.0.0.9"), FromSite}, "", ""},
		{"not what inspection saw once the lease is over", Host{Name: "h", NICs: nics}, leases("free", "10.0.0.3"), Result{}, NoActiveLease, "No active ip address lease found for MAC address " + macA + ": host h: its lease of 10.0.0.3 is free"},
		{"IPv4 before IPv6 of one NIC", Host{NICs: []NIC{{macA, addr("2001:db8::3")}, {macA, addr("10.0.0.3")}}}, nil, Result{macA, addr("10.0.0.3"), FromInspection}, "", ""},
		{"IPv6", Host{NICs: []NIC{{macA, addr("fe80::1")}, {macA, addr("2001:db8::3")}}}, nil, Result{macA, addr("2001:db8::3"), FromInspection}, "", ""},
		{"another NIC's address is not it", Host{Name: "h", NICs: []NIC{{MAC: macA}, {macB, addr("10.0.0.4")}}}, nil, Result{}, NoAddress,
			"IP address not found for host with MAC address " + macA + ": host h: the site gives that NIC none, it has no lease, and inspection saw none; cable it, give it an address in site.yaml, or name another NIC of the host (" + macB + ")"},
		{"link-local is none", Host{NICs: []NIC{{macA, addr("169.254.3.4")}}}, nil, Result{}, NoAddress, "IP address not found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ForNIC(c.host, macA, c.leases, now)
			assert.Equal(t, c.want, got)
			if c.reason == "" {
				require.NoError(t, err)
				return
			}
			var m *MissingError
			require.ErrorAs(t, err, &m)
			assert.Equal(t, c.reason, m.Reason)
			assert.Contains(t, m.Sentence, c.message)
		})
	}
}

// TestANICThatIsNotUsedNamesItsHost: ICN's Provisionings asked by the NIC of the bootstrap network, which the installed
// system does not use here.
func TestANICThatIsNotUsedNamesItsHost(t *testing.T) {
	data := []byte(`{"links":[{"id":"a","ethernet_mac_address":"` + strings.ToUpper(macA) + `"}],"networks":[{"link":"a","type":"ipv4","ip_address":"10.10.110.21/24","gateway":"10.10.110.1"}]}`)
	static, err := ParseNetworkData(data)
	require.NoError(t, err)
	linked, err := ParseLinked(data)
	require.NoError(t, err)
	h := Host{Name: "metal3/n", Static: static, Linked: linked, BootMAC: macB, NICs: []NIC{{MAC: macB, Addr: addr("172.22.0.17")}}}
	leases := Leases{macB: {Addr: addr("172.22.0.17"), State: "active", Ends: now.Add(time.Hour)}}
	found, err := ForNIC(h, macB, leases, now)
	require.NoError(t, err)
	assert.Equal(t, Result{macA, addr("10.10.110.21"), FromSite}, found, "what the deploy ramdisk had on a NIC that is down now")

	none, err := ParseLinked([]byte(`{"links":[],"networks":[]}`))
	require.NoError(t, err)
	h.Linked, h.Static = none, nil
	found, err = ForNIC(h, macB, leases, now)
	require.NoError(t, err)
	assert.Equal(t, FromLease, found.From, "the site says nothing of its links")
	_, err = ParseLinked([]byte("nonsense"))
	assert.Error(t, err)
}

func TestAnEndedLeaseSaysWhen(t *testing.T) {
	_, err := ForNIC(Host{Name: "h"}, macA, Leases{macA: {addr("10.0.0.1"), "active", now.Add(-time.Hour)}}, now)
	assert.ErrorContains(t, err, "its lease of 10.0.0.1 ended at 2026-11-20 11:30:00")
}

func TestBest(t *testing.T) {
	nics := []NIC{{macA, addr("10.0.0.3")}, {macB, addr("10.0.0.4")}}
	for _, c := range []struct {
		name string
		host Host
		want Result
	}{
		{"the way out first", Host{NICs: nics, BootMAC: macA, Static: map[string]Static{macB: {addr("10.1.0.4"), true}}}, Result{macB, addr("10.1.0.4"), FromSite}},
		{"then the NIC it booted from", Host{NICs: nics, BootMAC: macB}, Result{macB, addr("10.0.0.4"), FromInspection}},
		{"then the first by MAC", Host{NICs: []NIC{nics[1], nics[0]}}, Result{macA, addr("10.0.0.3"), FromInspection}},
		{"the first that has one", Host{NICs: []NIC{{MAC: macA}, nics[1]}, BootMAC: macA}, Result{macB, addr("10.0.0.4"), FromInspection}},
	} {
		got, err := ForHost(c.host, nil, now)
		require.NoError(t, err, c.name)
		assert.Equal(t, c.want, got, c.name)
	}
	_, err := ForHost(Host{Name: "h", BootMAC: macA}, nil, now)
	assert.ErrorContains(t, err, "IP address not found for host with MAC address "+macA)
	_, err = ForHost(Host{Name: "h"}, nil, now)
	assert.ErrorContains(t, err, "IP address not found for host h")
}
