package dhcp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe/lease"
)

func testConfig6() Config {
	a := netip.MustParseAddr
	return Config{
		Interface: "srv0", Server: a("fd00:1::1"), HTTP: "http://[fd00:1::1]:8080", LeaseDir: "/nonexistent",
		Subnets: []Subnet{{
			Prefix: netip.MustParsePrefix("fd00:1::/64"), Pool: Range{First: a("fd00:1::1:1"), Last: a("fd00:1::1:32")},
			Known: Range{First: a("fd00:1::2:1"), Last: a("fd00:1::2:32")}, Lease: time.Hour,
			DNS: []netip.Addr{a("fd00:1::1")}, MTU: 1500,
		}, {
			Prefix: netip.MustParsePrefix("fd00:2::/64"), Pool: Range{First: a("fd00:2::1:1"), Last: a("fd00:2::1:32")},
		}},
		Reservations: []Reservation{
			{MAC: mustMAC(known), Addr: a("fd00:1::11")},
			{MAC: mustMAC(unpinned)},
		},
	}
}

// own6 is the server's identifier in these tests.
func own6() dhcpv6.DUID {
	return &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: mustMAC("02:00:00:00:00:01")}
}

// bench6 decides as a server does, without a wire.
type bench6 struct {
	t     *testing.T
	plan  *Plan
	table *lease.Table
}

func newBench6(t *testing.T) *bench6 {
	plan, err := NewPlan(testConfig6())
	require.NoError(t, err)
	return &bench6{t: t, plan: plan, table: lease.NewTable(plan.Spaces(), nil)}
}

// message is one of a client whose identifier is a UUID, as firmware's is: it has no MAC in it.
func message6(kind dhcpv6.MessageType, mods ...dhcpv6.Modifier) *dhcpv6.Message {
	p := &dhcpv6.Message{MessageType: kind, TransactionID: dhcpv6.TransactionID{1, 2, 3}}
	p.AddOption(dhcpv6.OptClientID(&dhcpv6.DUIDUUID{UUID: [16]byte{1, 2, 3, 4}}))
	p.AddOption(dhcpv6.OptRequestedOption(
		dhcpv6.OptionBootfileURL, dhcpv6.OptionBootfileParam, dhcpv6.OptionDNSRecursiveNameServer,
	))
	for _, m := range mods {
		m(p)
	}
	return p
}

func identity6(addr string) dhcpv6.Modifier {
	ia := &dhcpv6.OptIANA{IaId: [4]byte{0, 0, 0, 7}}
	if addr != "" {
		ia.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: netip.MustParseAddr(addr).AsSlice()})
	}
	return dhcpv6.WithOption(ia)
}

func toServer6(id dhcpv6.DUID) dhcpv6.Modifier { return dhcpv6.WithOption(dhcpv6.OptServerID(id)) }

func firmware6(class string, arch iana.Arch) dhcpv6.Modifier {
	return func(p dhcpv6.DHCPv6) {
		p.AddOption(dhcpv6.OptClientArchType(arch))
		p.AddOption(&dhcpv6.OptVendorClass{EnterpriseNumber: enterpriseIntel, Data: [][]byte{[]byte(class + ":Arch:00007:UNDI:003016")}})
	}
}

// ask has a machine's message decided, as if its frame came from mac, and does what was decided.
func (b *bench6) ask(mac string, p dhcpv6.DHCPv6) Answer {
	f := frame6{
		mac:  mustMAC(mac),
		from: netip.MustParseAddrPort("[fe80::1234]:546"),
		to:   netip.AddrPortFrom(allServers(), PortServer6),
	}
	r, err := ParseRequest6(f, p.ToBytes())
	require.NoError(b.t, err)
	a := Decide6(b.t.Context(), b.plan, b.table, goldenNow, policy{}, own6(), r)
	if a.Declined == nil { // of which the server says what comes of it
		require.NotEmpty(b.t, a.Events, "a request without a trace")
	}
	if a.Hold.IsValid() {
		b.table.Hold(lease.Query{MAC: r.MAC, Subnet: b.plan.Subnets[0].Prefix}, a.Hold, goldenNow)
	}
	if a.Put != nil {
		b.table.Put(*a.Put)
	}
	return a
}

func givenAddr(t *testing.T, p *dhcpv6.Message) string {
	t.Helper()
	require.NotNil(t, p)
	again, err := dhcpv6.MessageFromBytes(p.ToBytes())
	require.NoError(t, err)
	require.NotNil(t, again.Options.OneIANA())
	return wantedAddr(again).String()
}

// TestMachineHasOneAddressByIPv6: firmware, iPXE and ramdisk make up identifiers; the MAC stays.
func TestMachineHasOneAddressByIPv6(t *testing.T) {
	b := newBench6(t)
	solicit := message6(dhcpv6.MessageTypeSolicit, identity6(""), firmware6("PXEClient", iana.EFI_X86_64))
	offer := b.ask(stranger, solicit).Reply6
	assert.Equal(t, dhcpv6.MessageTypeAdvertise, offer.MessageType)
	addr := givenAddr(t, offer)
	assert.True(t, b.plan.Subnets[0].Pool.Contains(netip.MustParseAddr(addr)), addr)
	assert.Equal(t, [4]byte{0, 0, 0, 7}, offer.Options.OneIANA().IaId)

	granted := b.ask(stranger, message6(dhcpv6.MessageTypeRequest, identity6(addr), toServer6(own6())))
	assert.Equal(t, addr, givenAddr(t, granted.Reply6))
	require.NotNil(t, granted.Put)
	assert.Equal(t, time.Hour, granted.Put.Duration)
	assert.Equal(t, time.Hour, granted.Reply6.Options.OneIANA().Options.OneAddress().ValidLifetime)

	other, err := dhcpv6.NewSolicit(mustMAC(stranger)) // with another identifier
	require.NoError(t, err)
	assert.Equal(t, addr, givenAddr(t, b.ask(stranger, other).Reply6))
	assert.NotEqual(t, addr, givenAddr(t, b.ask("52:54:00:00:00:98", solicit).Reply6), "the same identifier on another NIC")
	assert.Equal(t, "fd00:1::11", givenAddr(t, b.ask(known, solicit).Reply6))
}

// TestBootURLByIPv6: the same policy as DHCPv4's says who is told what to load, and no one who does not ask.
func TestBootURLByIPv6(t *testing.T) {
	pxeX64, httpX64 := firmware6("PXEClient", iana.EFI_X86_64), firmware6("HTTPClient", iana.EFI_X86_64_HTTP)
	ipxe := func(p dhcpv6.DHCPv6) {
		firmware6("PXEClient", iana.EFI_X86_64)(p)
		p.AddOption(&dhcpv6.OptUserClass{UserClasses: [][]byte{[]byte("iPXE")}})
	}
	for name, x := range map[string]struct {
		mac    string
		mod    dhcpv6.Modifier
		file   string
		reason Reason
	}{
		"pxe":             {stranger, pxeX64, "tftp://[fd00:1::1]/snponly.efi", ""},
		"http":            {stranger, httpX64, "http://[fd00:1::1]:8080/boot/snponly.efi", ""},
		"ipxe":            {stranger, ipxe, "http://[fd00:1::1]:8080/ipxe/52-54-00-00-00-99", ""},
		"refused":         {barred, pxeX64, "", ReasonBootRefused},
		"boots its disk":  {settled, httpX64, "", ReasonBootDisk},
		"refused by ipxe": {barred, ipxe, "http://[fd00:1::1]:8080/ipxe/52-54-00-00-00-66", ""}, // whose script says why
		"secure":          {secure, pxeX64, "", ReasonArchUnknown},
		"unknown":         {stranger, firmware6("PXEClient", 77), "", ReasonArchUnknown},
		"system":          {stranger, func(dhcpv6.DHCPv6) {}, "", ""},
	} {
		a := newBench6(t).ask(x.mac, message6(dhcpv6.MessageTypeSolicit, identity6(""), x.mod))
		assert.Equal(t, x.file, a.Reply6.Options.BootFileURL(), name)
		last := a.Events[len(a.Events)-1]
		assert.Equal(t, x.reason, last.Reason, name)
		assert.Equal(t, x.file, last.File, name)
		givenAddr(t, a.Reply6) // an address in any case
		classes := a.Reply6.Options.VendorClass(enterpriseIntel)
		assert.Equal(t, name == "http", len(classes) == 1 && string(classes[0]) == "HTTPClient", name)
	}

	silent := message6(dhcpv6.MessageTypeSolicit, identity6(""), pxeX64)
	silent.UpdateOption(dhcpv6.OptRequestedOption(dhcpv6.OptionDNSRecursiveNameServer))
	reply := newBench6(t).ask(stranger, silent).Reply6
	assert.Empty(t, reply.Options.BootFileURL(), "not asked for")
	assert.Len(t, reply.Options.DNS(), 1)
}

// TestOnlyWhoIsMeantAnswersByIPv6: what is for another server, or was not sent to servers, changes nothing.
func TestOnlyWhoIsMeantAnswersByIPv6(t *testing.T) {
	b := newBench6(t)
	foreign := &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: mustMAC("02:00:00:00:00:02")}
	for _, kind := range []dhcpv6.MessageType{
		dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline,
		dhcpv6.MessageTypeInformationRequest,
	} {
		a := b.ask(stranger, message6(kind, identity6("fd00:1::1:5"), toServer6(foreign)))
		assert.Nil(t, a.Reply6, kind)
		assert.Nil(t, a.Put, kind)
		assert.Equal(t, ReasonOtherServer, a.Events[0].Reason, kind)
	}

	solicit := message6(dhcpv6.MessageTypeSolicit, identity6("")).ToBytes()
	_, err := ParseRequest6(frame6{mac: mustMAC(stranger), to: netip.MustParseAddrPort("[fd00:1::1]:547")}, solicit)
	assert.ErrorContains(t, err, "not to all servers")
	all := netip.AddrPortFrom(allServers(), PortServer6)
	_, err = ParseRequest6(frame6{mac: mustMAC("01:00:5e:00:00:01"), to: all}, solicit)
	assert.ErrorContains(t, err, "is not a machine's")
}

// TestStrangersByIPv6: without a pool for them they hear nothing; with one they take no node's address.
func TestStrangersByIPv6(t *testing.T) {
	b := newBench6(t)
	for i := range 60 {
		mac := mustMAC("02:00:00:00:01:00")
		mac[5] = byte(i)
		b.ask(mac.String(), message6(dhcpv6.MessageTypeSolicit, identity6("fd00:1::11")))
	}
	a := b.ask(stranger, message6(dhcpv6.MessageTypeSolicit, identity6("")))
	assert.Nil(t, a.Reply6)
	assert.Equal(t, ReasonPoolEmpty, a.Events[1].Reason)
	assert.Equal(t, "fd00:1::11", givenAddr(t, b.ask(known, message6(dhcpv6.MessageTypeSolicit, identity6(""))).Reply6))
	assert.NotNil(t, b.ask(unpinned, message6(dhcpv6.MessageTypeSolicit, identity6(""))).Reply6)

	c := testConfig6()
	c.Subnets[0].Pool = Range{}
	plan, err := NewPlan(c)
	require.NoError(t, err)
	b = &bench6{t: t, plan: plan, table: lease.NewTable(plan.Spaces(), nil)}
	a = b.ask(stranger, message6(dhcpv6.MessageTypeSolicit, identity6("")))
	assert.Nil(t, a.Reply6)
	assert.Equal(t, ReasonUnknownMachine, a.Events[1].Reason)
}

// TestLifeOfALeaseByIPv6: renew, rebind, confirm, release, decline.
func TestLifeOfALeaseByIPv6(t *testing.T) {
	b := newBench6(t)
	own := toServer6(own6())
	addr := givenAddr(t, b.ask(stranger, message6(dhcpv6.MessageTypeRequest, identity6(""), own)).Reply6)
	assert.Equal(t, addr, givenAddr(t, b.ask(stranger, message6(dhcpv6.MessageTypeRenew, identity6(addr), own)).Reply6))
	assert.NotNil(t, b.ask(stranger, message6(dhcpv6.MessageTypeRebind, identity6(addr))).Put)

	a := b.ask("52:54:00:00:00:98", message6(dhcpv6.MessageTypeRebind, identity6(addr)))
	assert.Nil(t, a.Put, "another machine's")
	assert.Zero(t, a.Reply6.Options.OneIANA().Options.OneAddress().ValidLifetime)
	assert.Equal(t, KindNak, a.Events[0].Kind)

	status := func(a Answer) iana.StatusCode { return a.Reply6.Options.Status().StatusCode }
	assert.Equal(t, iana.StatusSuccess, status(b.ask(stranger, message6(dhcpv6.MessageTypeConfirm, identity6(addr)))))
	assert.Equal(t, iana.StatusNotOnLink, status(b.ask(stranger, message6(dhcpv6.MessageTypeConfirm, identity6("fd00:9::1")))))

	assert.Nil(t, b.ask("52:54:00:00:00:98", message6(dhcpv6.MessageTypeDecline, identity6(addr), own)).Declined, "not its")
	declined := b.ask(stranger, message6(dhcpv6.MessageTypeDecline, identity6(addr), own)).Declined
	require.NotNil(t, declined)
	assert.Equal(t, time.Hour, declined.Duration)

	released := b.ask(stranger, message6(dhcpv6.MessageTypeRelease, identity6(addr), own))
	assert.Equal(t, iana.StatusSuccess, status(released))
	assert.Equal(t, KindRelease, released.Events[0].Kind)
	still, _ := b.table.LeaseAt(netip.MustParseAddr(addr))
	assert.True(t, still.IsActive(goldenNow), "firmware goes on with the address that it released")
	assert.Nil(t, b.ask(stranger, message6(dhcpv6.MessageTypeInformationRequest)).Reply6.Options.OneIANA())
}

// TestRelayNamesTheMachine: by RFC 6939, else by its identifier; without both there is no MAC to decide by.
func TestRelayNamesTheMachine(t *testing.T) {
	b := newBench6(t)
	relay := func(inner dhcpv6.DHCPv6, link string, options ...dhcpv6.Option) *dhcpv6.RelayMessage {
		r, err := dhcpv6.EncapsulateRelay(
			inner, dhcpv6.MessageTypeRelayForward, netip.MustParseAddr(link).AsSlice(), netip.MustParseAddr("fe80::9").AsSlice(),
		)
		require.NoError(t, err)
		for _, o := range options {
			r.AddOption(o)
		}
		return r
	}
	solicit := message6(dhcpv6.MessageTypeSolicit, identity6(""))
	mac := dhcpv6.OptClientLinkLayerAddress(iana.HWTypeEthernet, mustMAC(stranger))
	port := dhcpv6.OptInterfaceID([]byte("port 7"))
	a := b.ask("02:00:00:00:00:aa", relay(relay(solicit, "fd00:2::1", mac, port), "::"))
	assert.Equal(t, stranger, a.Events[0].Machine.MAC.String())
	assert.True(t, b.plan.Subnets[1].Pool.Contains(netip.MustParseAddr(givenAddr(t, a.Reply6))), "of the relay's network")

	byID, err := dhcpv6.NewSolicit(mustMAC(known))
	require.NoError(t, err)
	a = b.ask("02:00:00:00:00:aa", relay(byID, "fd00:1::9"))
	assert.Equal(t, "fd00:1::11", givenAddr(t, a.Reply6))

	a = b.ask("02:00:00:00:00:aa", relay(solicit, "fd00:3::1", mac))
	assert.Nil(t, a.Reply6)
	assert.Equal(t, ReasonUnknownRelay, a.Events[0].Reason)

	_, err = ParseRequest6(frame6{mac: mustMAC(stranger)}, relay(solicit, "fd00:1::9").ToBytes())
	assert.ErrorContains(t, err, "RFC 6939")
}

// TestRouterAdvertisementSaysWhereAddressesComeFrom holds the bytes to RFC 4861 4.2 and 4.6.
func TestRouterAdvertisementSaysWhereAddressesComeFrom(t *testing.T) {
	b := routerAdvertisement(mustMAC(known), testConfig6().Subnets[0])
	assert.Equal(t, []byte{134, 0, 0, 0, 64, 0xc0, 0, 0}, b[:8], "managed, other, and no router")
	assert.Equal(t, append([]byte{1, 1}, mustMAC(known)...), b[16:24])
	assert.Equal(t, []byte{5, 1, 0, 0, 0, 0, 0x05, 0xdc}, b[24:32])
	assert.Equal(t, []byte{3, 4, 64, 0x80}, b[32:36], "on the link, and not for addresses that machines make up")
	assert.Equal(t, testConfig6().Subnets[0].Prefix.Addr().AsSlice(), b[48:])
}

// FuzzDecide6: no packet panics, and no machine changes another's lease.
func FuzzDecide6(f *testing.F) {
	plan, err := NewPlan(testConfig6())
	require.NoError(f, err)
	for kind := range dhcpv6.MessageType(14) {
		f.Add(message6(kind, identity6("fd00:1::1:3"), toServer6(own6()), firmware6("PXEClient", 7)).ToBytes())
	}
	r, err := dhcpv6.EncapsulateRelay(
		message6(dhcpv6.MessageTypeSolicit, identity6("")), dhcpv6.MessageTypeRelayForward, netip.MustParseAddr("fd00:2::1").AsSlice(),
		netip.MustParseAddr("fe80::9").AsSlice(),
	)
	require.NoError(f, err)
	r.AddOption(dhcpv6.OptClientLinkLayerAddress(iana.HWTypeEthernet, mustMAC(stranger)))
	f.Add(r.ToBytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		frame := frame6{
			mac: mustMAC(stranger), from: netip.MustParseAddrPort("[fe80::1]:546"), to: netip.AddrPortFrom(allServers(), PortServer6),
		}
		r, err := ParseRequest6(frame, data)
		if err != nil {
			return
		}
		mac, _ := lease.MACFrom(mustMAC("02:00:00:00:00:07"))
		other := lease.Lease{
			Addr: netip.MustParseAddr("fd00:1::1:3"), MAC: mac, Subnet: plan.Subnets[0].Prefix, State: lease.Active,
			Start: goldenNow, Duration: 1e12,
		}
		table := lease.NewTable(plan.Spaces(), []lease.Lease{other})
		a := Decide6(t.Context(), plan, table, goldenNow, policy{}, own6(), r)
		require.True(t, a.Declined != nil || len(a.Events) > 0, "a request without a trace")
		if a.Put != nil && r.MAC != mac {
			table.Put(*a.Put)
			l, _ := table.LeaseAt(other.Addr)
			assert.Equal(t, other, l, "another machine's lease changed")
		}
		if a.Reply6 != nil {
			assert.True(t, r.Message.Options.ClientID().Equal(a.Reply6.Options.ClientID()))
			assert.LessOrEqual(t, len(a.Reply6.ToBytes()), 1452, "a reply that fits no Ethernet frame")
		}
	})
}
