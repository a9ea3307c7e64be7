// Package dhcp is the DHCP server of the provisioning network: DHCPv4 (RFC 2131, 2132, 3046,
// 4578, PXE 2.1, UEFI HTTP boot), and of others where it only gives addresses; or DHCPv6 (RFC 8415,
// 5970) with router advertisements (RFC 4861), by the family of Config.Server. It answers
// on one interface only, stays silent while a foreign server is there, and acknowledges no
// lease that is not on disk.
package dhcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"

	"firstlight.dev/firstlight/pxe/lease"
)

// Config says what to serve. Validate names everything that is wrong with it.
type Config struct {
	Interface    string        // the only interface ever listened or sent on
	Server       netip.Addr    // our address there: server identifier and TFTP server
	HTTP         string        // base URL of the HTTP server, e.g. http://172.22.0.1:8080; "": addresses only, no boot files
	Subnets      []Subnet      // the one that holds Server is local, others are reached by relays
	Reservations []Reservation // known machines
	Files        []BootFile    // nil: DefaultFiles
	Mode         Mode          // ModeServer or ModeProxy
	Foreign      ForeignPolicy // what to do while another DHCP server answers
	ProbeEvery   time.Duration // 0: 3 minutes; a tenth of it while silent
	ProbeWait    time.Duration // how long a probe listens; 0: 4 seconds
	Quarantine   time.Duration // a declined address rests this long; 0: 1 hour
	ConflictWait time.Duration // ARP probe before a stranger's first offer; 0: none
	LeaseDir     string        // directory of the journal
	ISCFile      string        // ISC dhcpd.leases text for readers; "": not written
}

// Mode is how much of DHCP is ours.
type Mode int

// Modes.
const (
	ModeServer Mode = iota // addresses and boot files
	ModeProxy              // boot files only, beside another server that gives addresses (PXE 2.1, ProxyDHCP)
)

// ForeignPolicy says what happens while another DHCP server answers on the interface.
type ForeignPolicy int

// Policies. EDK2 under QEMU ignores ProxyDHCP offers, so silence is the default.
const (
	ForeignSilent ForeignPolicy = iota
	ForeignProxy

	// ForeignIgnoreUnknown goes on serving next to a server that is not another appliance, and names it: for a
	// network that is ours alone, where whoever answers is out of place, and might do so to silence us.
	ForeignIgnoreUnknown
)

// Subnet is one network that machines are on, with its own range.
type Subnet struct {
	Prefix netip.Prefix
	Pool   Range         // addresses for strangers; zero: strangers are refused
	Known  Range         // addresses for Reservations without one; strangers never get them
	Lease  time.Duration // 0: 1 hour
	Router netip.Addr    // invalid: no router option is sent
	DNS    []netip.Addr
	NTP    []netip.Addr
	Domain string
	MTU    uint16  // 0: not sent
	Routes []Route // classless static routes (RFC 3442)
}

// Route is one classless static route.
type Route struct {
	Dest netip.Prefix
	Via  netip.Addr
}

// Range is First to Last, both included.
type Range = lease.Range

// Reservation is a known machine. Addr must lie in one of the subnets; if it is invalid
// the machine gets an address from the subnet's Known range, or the pool if that is full.
type Reservation struct {
	MAC      net.HardwareAddr
	Addr     netip.Addr
	Hostname string // option 12; "": not sent
}

// BootFile is what one kind of firmware loads first. A machine whose pxe.Boot says SecureBoot is told the first of
// Signed instead of Name; that loads the others, each under its name, from next to it.
type BootFile struct {
	Arch   uint16 // option 93, IANA processor architecture types
	Name   string
	Signed []string // empty: firmware of this kind can load nothing that is signed
}

// Names are all of f.
func (f BootFile) Names() []string { return append([]string{f.Name}, f.Signed...) }

// signedX64 are shim, which Microsoft signed, and the GRUB for networks that Debian signed, by the name that is
// compiled into shim.
var signedX64 = []string{"shimx64.efi", "grubx64.efi"}

// DefaultFiles are iPXE's programs as Debian names them, and the loaders for HTTP boot.
// An architecture that is not listed is refused with reason arch-unknown.
func DefaultFiles() []BootFile {
	return []BootFile{
		{Arch: 0, Name: "undionly.kpxe"},                   // x86 BIOS
		{Arch: 7, Name: "snponly.efi", Signed: signedX64},  // x64 UEFI as registered (EFI BC in RFC 4578)
		{Arch: 9, Name: "snponly.efi", Signed: signedX64},  // x64 UEFI as much firmware sends it
		{Arch: 11, Name: "ipxe-arm64.efi"},                 // arm64 UEFI: Debian builds no snponly for it
		{Arch: 16, Name: "snponly.efi", Signed: signedX64}, // x64 UEFI by HTTP
		{Arch: 19, Name: "ipxe-arm64.efi"},                 // arm64 UEFI by HTTP
	}
}

// maxURL leaves room in the 128 bytes of the file field for path and name.
const maxURL = 70

// Validate returns every fault of c, one line each: where, what, what to do.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Interface == "" || len(c.Interface) > 15 {
		bad("interface: %q is not an interface name; name the provisioning interface", c.Interface)
	}

	if a := c.Server; !a.Is4() && (!a.IsGlobalUnicast() || a.Is4In6() || a.Zone() != "") {
		bad("server: %v is not an IPv4 or global IPv6 address; give this machine's address on %s", c.Server, c.Interface)
	}

	if c.Server.Is6() && (c.Mode == ModeProxy || c.Foreign == ForeignProxy) {
		bad("mode, foreign: a proxy is of IPv4 alone; serve addresses, or leave DHCP out")
	}

	if c.HTTP == "" && c.Mode == ModeProxy {
		bad("http: empty; a proxy has nothing but boot files to offer")
	}

	if u, err := url.Parse(c.HTTP); c.HTTP != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || len(c.HTTP) > maxURL) {
		bad("http: %q is not a base URL of at most %d bytes; give e.g. http://%v", c.HTTP, maxURL, netip.AddrPortFrom(c.Server, 8080))
	}

	for i, s := range c.Subnets {
		errs = append(errs, s.validate(i, c.Server)...)
		for j, other := range c.Subnets[:i] {
			if s.Prefix.Overlaps(other.Prefix) {
				bad("subnets[%d].prefix: %v overlaps subnets[%d] %v; make them disjoint", i, s.Prefix, j, other.Prefix)
			}
		}
	}

	if c.Mode == ModeServer {
		if _, ok := c.subnetOf(c.Server); !ok {
			bad("subnets: none contains the server's address %v; add the local subnet", c.Server)
		}
		if c.LeaseDir == "" {
			bad("leaseDir: empty; name a directory that survives a restart")
		}
	}

	errs = append(errs, c.validateReservations()...)
	return errors.Join(errs...)
}

func (s Subnet) validate(i int, server netip.Addr) []error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("subnets[%d]."+format, append([]any{i}, args...)...))
	}
	kind, example, longest := "IPv4", "172.22.0.0/24", 30
	if server.Is6() {
		kind, example, longest = "IPv6", "fd00:1::/64", 112
	}

	isOther := func(a netip.Addr) bool { return a.Is4() != server.Is4() || !a.IsValid() }
	if isOther(s.Prefix.Addr()) || s.Prefix.Masked() != s.Prefix || s.Prefix.Bits() > longest {
		bad("prefix: %v is not an %s network; write it like %s", s.Prefix, kind, example)
		return errs
	}

	if server.Is6() && (s.Router.IsValid() || len(s.Routes) > 0 || s.Domain != "") {
		bad("router, routes, domain: there is none of them in our DHCPv6 and router advertisements; leave them out")
	}

	ranges := []struct {
		name string
		r    Range
	}{{"pool", s.Pool}, {"known", s.Known}}
	for _, x := range ranges {
		if x.r.IsZero() {
			continue
		}
		if err := x.r.Check(s.Prefix); err != nil {
			bad("%s: %w", x.name, err)
		}
	}

	if s.Pool.Overlaps(s.Known) {
		bad(
			"known: %v overlaps pool %v; strangers would take known machines' addresses; make them disjoint", s.Known,
			s.Pool,
		)
	}

	if s.Lease != 0 && (s.Lease < 2*time.Minute || s.Lease > 30*24*time.Hour) {
		bad("lease: %v is out of bounds; choose 2m to 720h", s.Lease)
	}

	if s.Router.IsValid() && !s.Prefix.Contains(s.Router) {
		bad("router: %v is not in %v; give an address machines can reach, or none", s.Router, s.Prefix)
	}

	if s.MTU != 0 && s.MTU < 68 {
		bad("mtu: %d is below 68 (RFC 2132 5.1); leave it out", s.MTU)
	}

	for _, list := range [][]netip.Addr{s.DNS, s.NTP} {
		if len(list) > 8 {
			bad("dns, ntp: %d servers; at most 8 fit a boot firmware's packet", len(list))
		}
		for _, a := range list {
			if isOther(a) {
				bad("dns, ntp: %v is not an %s address", a, kind)
			}
		}
	}

	if len(s.Routes) > 16 || len(s.Domain) > 64 {
		bad("routes, domain: too long for a boot firmware's packet; at most 16 routes and 64 bytes")
	}

	for _, r := range s.Routes {
		if isOther(r.Dest.Addr()) || isOther(r.Via) {
			bad("routes: %v via %v is not %s", r.Dest, r.Via, kind)
		}
	}

	return errs
}

func (c Config) validateReservations() []error {
	var errs []error
	macs, addrs := map[lease.MAC]int{}, map[netip.Addr]int{}
	for i, r := range c.Reservations {
		mac, ok := lease.MACFrom(r.MAC)
		if !ok {
			errs = append(errs, fmt.Errorf("reservations[%d].mac: %q is not a MAC address", i, r.MAC.String()))
			continue
		}

		if j, dup := macs[mac]; dup {
			errs = append(errs, fmt.Errorf("reservations[%d].mac: %s is also reservations[%d]; remove one", i, mac, j))
		}

		macs[mac] = i
		if len(r.Hostname) > 63 {
			errs = append(errs, fmt.Errorf("reservations[%d].hostname: longer than 63 bytes", i))
		}

		if !r.Addr.IsValid() {
			continue
		}

		if j, dup := addrs[r.Addr]; dup {
			errs = append(errs, fmt.Errorf(
				"reservations[%d].address: %v is also reservations[%d]; give each machine its own", i, r.Addr, j,
			))
		}

		addrs[r.Addr] = i
		s, ok := c.subnetOf(r.Addr)
		if !ok {
			errs = append(
				errs, fmt.Errorf("reservations[%d].address: %v is in no subnet; choose one inside", i, r.Addr),
			)
		} else if r.Addr == c.Server || r.Addr == s.Router || !lease.IsHost(r.Addr, s.Prefix) {
			errs = append(errs, fmt.Errorf(
				"reservations[%d].address: %v is the server, the router, the network or its broadcast; choose another",
				i, r.Addr,
			))
		}
	}

	return errs
}

func (c Config) subnetOf(a netip.Addr) (Subnet, bool) {
	for _, s := range c.Subnets {
		if s.Prefix.Contains(a) {
			return s, true
		}
	}
	return Subnet{}, false
}

func (s Subnet) leaseTime() time.Duration {
	if s.Lease == 0 {
		return time.Hour
	}
	return s.Lease
}
