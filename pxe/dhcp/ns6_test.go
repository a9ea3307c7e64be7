package dhcp

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/dhcpv6/nclient6"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe/lease"
)

// client6 is a firmware of UEFI on cli0: SOLICIT to REPLY by a client that is not of this tree.
func client6(out io.Writer) error {
	ifi, err := net.InterfaceByName("cli0")
	if err != nil {
		return err
	}
	client, err := nclient6.New("cli0", nclient6.WithTimeout(time.Second), nclient6.WithRetry(20))
	if err != nil {
		return err
	}
	defer client.Close()
	boot := []dhcpv6.Modifier{
		dhcpv6.WithClientID(&dhcpv6.DUIDUUID{UUID: [16]byte{1, 2, 3}}),
		dhcpv6.WithRequestedOptions(dhcpv6.OptionBootfileURL), dhcpv6.WithArchType(iana.EFI_X86_64),
		dhcpv6.WithOption(&dhcpv6.OptVendorClass{EnterpriseNumber: enterpriseIntel, Data: [][]byte{[]byte("PXEClient:Arch:00007")}}),
	}
	ctx := context.Background()
	offer, err := client.Solicit(ctx, boot...)
	if err != nil {
		return err
	}
	reply, err := client.Request(ctx, offer, boot...)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, ifi.HardwareAddr, wantedAddr(reply), reply.Options.BootFileURL())
	return nil
}

// newLab6 is a lab without IPv4.
func newLab6(t *testing.T) lab {
	l := newLab(t)
	run(t, "ip", "-n", l.server, "-4", "addr", "flush", "dev", "srv0")
	l.up("srv0", "fd00:1::1/64")
	run(t, "ip", "-n", l.client, "link", "set", "cli0", "down")
	run(t, "ip", "-n", l.client, "link", "set", "cli0", "address", known)
	run(t, "ip", "-n", l.client, "link", "set", "cli0", "up")
	return l
}

func (l lab) config6() Config {
	c := testConfig6()
	c.LeaseDir, c.ProbeWait, c.ProbeEvery = l.t.TempDir(), 1500*time.Millisecond, 8*time.Second
	return c
}

// awaitClient6 runs client6 until it gets an answer: its link-local address takes a while.
func awaitClient6(t *testing.T, l lab, p *process) (line string) {
	self, err := os.Executable()
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var err error
		line, err = in(t, l.client, "env", clientEnv+"=client6", self)
		return err == nil
	}, 10*time.Minute, time.Second, "%s", lastLines{p})
	return strings.TrimSpace(line)
}

// TestMachineBootsByIPv6: a client gets its reserved address and URL though its identifier has no MAC; the lease is on
// disk; the kernel on the other end has learned the prefix from the advertisement and has made up no address in it.
func TestMachineBootsByIPv6(t *testing.T) {
	l := newLab6(t)
	c := l.config6()
	p := start(t, l.server, c)
	p.waitFor("status serving")
	assert.Equal(t, known+" fd00:1::11 tftp://[fd00:1::1]/snponly.efi", awaitClient6(t, l, p))
	p.waitFor("ack  mac=" + known + " addr=fd00:1::11 file=tftp://[fd00:1::1]/snponly.efi")
	require.Eventually(t, func() bool {
		routes, err := in(t, l.client, "ip", "-6", "route", "show", "dev", "cli0")
		require.NoError(t, err)
		return strings.Contains(routes, "fd00:1::/64 proto kernel")
	}, 10*time.Minute, 100*time.Millisecond, "no advertisement")
	routes, err := in(t, l.client, "ip", "-6", "route")
	require.NoError(t, err)
	assert.NotContains(t, routes, "default")
	addrs, err := in(t, l.client, "ip", "-6", "-o", "addr", "show", "dev", "cli0", "scope", "global")
	require.NoError(t, err)
	assert.Empty(t, addrs, "an address that no one gave")

	p.kill()
	kept := leasesIn(t, c.LeaseDir)
	require.Len(t, kept, 1)
	assert.Equal(t, lease.ListedLease{
		Addr: kept[0].Addr, MAC: known, Subnet: c.Subnets[0].Prefix, State: "active", Starts: kept[0].Starts, Ends: kept[0].Ends,
	}, kept[0])
	p = start(t, l.server, c)
	p.waitFor("status serving")
	assert.Contains(t, awaitClient6(t, l, p), "fd00:1::11", "after a restart")
}

// TestFault04ForeignServerByIPv6: who finds another DHCPv6 server is silent, advertises nothing, and serves when it is
// gone.
func TestFault04ForeignServerByIPv6(t *testing.T) {
	l := newLab6(t)
	other := l.config6()
	other.Interface = "cli0"
	run(t, "ip", "-n", l.client, "addr", "add", "fd00:1::1/64", "dev", "cli0", "nodad")
	foreign := start(t, l.client, other)
	foreign.waitFor("status serving")
	p := start(t, l.server, l.config6())
	p.waitFor("status silent: DHCP server fe80::")
	assert.Zero(t, p.count("status serving"), "served before it had looked")
	foreign.kill()
	p.waitFor("status serving")
}

// TestPortTakenByIPv6: two servers on one machine are an error that is told.
func TestPortTakenByIPv6(t *testing.T) {
	l := newLab6(t)
	first := start(t, l.server, l.config6())
	first.waitFor("status serving")
	second := start(t, l.server, l.config6())
	second.waitFor("status broken: no DHCP on srv0: listen on srv0: listen: ")
	first.stop()
	second.waitFor("status serving")
}
