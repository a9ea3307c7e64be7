package site

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// Name is a lower-case DNS label (RFC 1123 2.1).
type Name string

func (n Name) String() string { return string(n) }

func (n *Name) ParseText(s string) error {
	if !isLabel(s) {
		return fmt.Errorf(
			"%s is not a name; use up to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit",
			yamldoc.Quote(s),
		)
	}
	*n = Name(s)
	return nil
}

func isLabel(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// MAC is an EUI-48 in lower-case hexadecimal with colons, or empty.
type MAC string

// ParseMAC reads a MAC of six bytes, with colons or hyphens, in either case. Zero and
// multicast addresses, which no NIC has, are refused.
func ParseMAC(s string) (MAC, error) {
	hw, err := net.ParseMAC(s)
	if err != nil || len(hw) != 6 || len(s) != 17 {
		return "", fmt.Errorf("%s is not a MAC; write six pairs such as 52:54:00:12:34:56", yamldoc.Quote(s))
	}
	if hw[0]&1 == 1 {
		return "", fmt.Errorf("%s is a multicast address; use the MAC of a NIC", yamldoc.Quote(s))
	}
	if hw.String() == "00:00:00:00:00:00" {
		return "", fmt.Errorf("%s is no NIC's MAC; use the one printed on the NIC", yamldoc.Quote(s))
	}

	return MAC(hw.String()), nil
}

func (m MAC) String() string { return string(m) }

// HardwareAddr is the address as six bytes, nil if empty.
func (m MAC) HardwareAddr() net.HardwareAddr {
	hw, _ := net.ParseMAC(string(m))
	return hw
}

func (m *MAC) ParseText(s string) (err error) {
	*m, err = ParseMAC(s)
	return err
}

// Interface names a NIC of the appliance in one of three ways; the zero value names none.
type Interface struct {
	Name string // eno2
	MAC  MAC    // 52:54:00:12:34:56
	PCI  string // 0000:3b:00.0, as in /sys/bus/pci/devices
}

func (i Interface) String() string { return i.Name + string(i.MAC) + i.PCI }

// IsZero reports whether no NIC is named.
func (i Interface) IsZero() bool { return i == Interface{} }

func (i *Interface) ParseText(s string) error {
	switch {
	case yamldoc.MatchesPattern(`^([0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$`, s):
		if len(s) == len("3b:00.0") {
			s = "0000:" + s
		}
		*i = Interface{PCI: strings.ToLower(s)}
		return nil
	case yamldoc.MatchesPattern(`^[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}$`, s):
		mac, err := ParseMAC(s)
		*i = Interface{MAC: mac}
		return err
	case yamldoc.MatchesPattern(`^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$`, s):
		*i = Interface{Name: s}
		return nil
	}
	return fmt.Errorf(
		"%s names no NIC; write a name (eno2), a MAC (52:54:00:12:34:56) or a PCI address (0000:3b:00.0)",
		yamldoc.Quote(s),
	)
}

// Range is a run of addresses, both ends included.
type Range struct {
	First, Last netip.Addr
}

func (r Range) String() string {
	if !r.First.IsValid() {
		return ""
	}
	return r.First.String() + "-" + r.Last.String()
}

// IsZero reports whether no range is given.
func (r Range) IsZero() bool { return r == Range{} }

// Contains reports whether a lies in the range.
func (r Range) Contains(a netip.Addr) bool {
	return r.First.IsValid() && r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
}

func (r *Range) ParseText(s string) error {
	first, last, found := strings.Cut(s, "-")
	a, err1 := netip.ParseAddr(strings.TrimSpace(first))
	b, err2 := netip.ParseAddr(strings.TrimSpace(last))
	switch {
	case !found || err1 != nil || err2 != nil || a.Zone() != "" || b.Zone() != "":
		return fmt.Errorf("%s is not a range; write FIRST-LAST such as 172.22.0.10-172.22.0.100", yamldoc.Quote(s))
	case a.Is4() != b.Is4():
		return fmt.Errorf("%s mixes IPv4 and IPv6; write two addresses of one kind", yamldoc.Quote(s))
	case b.Less(a):
		return fmt.Errorf("%s runs backwards; write %s-%s", yamldoc.Quote(s), b, a)
	}

	*r = Range{a, b}
	return nil
}

// Duration is a length of time, written as in 90s, 60m or 1h30m.
type Duration time.Duration

func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}

	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}

	return s
}

func (d *Duration) ParseText(s string) error {
	t, err := time.ParseDuration(s)
	if err != nil || !yamldoc.MatchesPattern(`^[0-9]`, s) {
		return fmt.Errorf("%s is not a length of time; write a number with s, m or h such as 60m", yamldoc.Quote(s))
	}
	if t < time.Second || t > 365*24*time.Hour {
		return fmt.Errorf("%s is out of bounds; use 1s to 8760h", yamldoc.Quote(s))
	}

	*d = Duration(t)
	return nil
}

// Memory is an amount of memory in bytes.
type Memory int64

const memoryUnits = "Ki|Mi|Gi|Ti|k|M|G|T"

func memoryUnit(u string) int64 {
	return map[string]int64{
		"Ki": 1 << 10,
		"Mi": 1 << 20,
		"Gi": 1 << 30,
		"Ti": 1 << 40,
		"k":  1e3,
		"M":  1e6,
		"G":  1e9,
		"T":  1e12,
	}[u]
}

func (m Memory) String() string {
	for _, u := range []string{"Ti", "T", "Gi", "G", "Mi", "M", "Ki", "k"} {
		if f := memoryUnit(u); m != 0 && int64(m)%f == 0 {
			return strconv.FormatInt(int64(m)/f, 10) + u
		}
	}
	return strconv.FormatInt(int64(m), 10)
}

func (m *Memory) ParseText(s string) error {
	parts := regexp.MustCompile(`^([0-9]{1,9})(` + memoryUnits + `)$`).FindStringSubmatch(s)
	if parts == nil {
		return fmt.Errorf("%s is not an amount of memory; write a number with a unit such as 16Gi", yamldoc.Quote(s))
	}

	n, err := strconv.ParseInt(parts[1], 10, 64)
	if unit := memoryUnit(parts[2]); err != nil || n == 0 || n > (1<<50)/unit {
		return fmt.Errorf("%s is out of bounds; use 1Ki to 1024Ti", yamldoc.Quote(s))
	}

	*m = Memory(n * memoryUnit(parts[2]))
	return nil
}

// Host is a host name (RFC 1123) or an address.
type Host string

func (h Host) String() string { return string(h) }

func (h *Host) ParseText(s string) error {
	if !isHost(s) {
		return fmt.Errorf(
			"%s is neither a host name nor an address; write ntp.example.org or 10.0.0.1", yamldoc.Quote(s),
		)
	}
	*h = Host(s)
	return nil
}

func isHost(s string) bool {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Zone() == ""
	}
	if len(s) > 253 || yamldoc.MatchesPattern(`^[0-9.]+$`, s) {
		return false
	}

	for label := range strings.SplitSeq(strings.ToLower(s), ".") {
		if !isLabel(label) {
			return false
		}
	}

	return true
}

// URL is an absolute http or https address without credentials.
type URL string

func (u URL) String() string { return string(u) }

func (u *URL) ParseText(s string) error {
	v, err := url.Parse(s)
	switch {
	case err != nil || v.Host == "" || (v.Scheme != "http" && v.Scheme != "https"):
		return errors.New("this is not an address of a file; use http://HOST/PATH or https://HOST/PATH")
	case v.User != nil:
		return errors.New("credentials do not belong into an address; serve the file without them")
	}

	*u = URL(s)
	return nil
}

// SHA256 is a digest in 64 lower-case hexadecimal digits.
type SHA256 string

func (d SHA256) String() string { return string(d) }

func (d *SHA256) ParseText(s string) error {
	if b, err := hex.DecodeString(s); err != nil || len(b) != 32 {
		return fmt.Errorf(
			"%s is not a SHA-256; write the 64 hexadecimal digits that sha256sum prints", yamldoc.Quote(s),
		)
	}
	*d = SHA256(strings.ToLower(s))
	return nil
}

// Consent is what of a disk may be lost: "" or "false" nothing, "true" data, or the fingerprint of what was seen there
// (assets/inspection). "false" is written, so that it stands against a default.
type Consent string

// IsGranted reports whether anything may be lost.
func (c Consent) IsGranted() bool { return c != "" && c != "false" }

func (c Consent) String() string { return string(c) }

// TakesBool implements yamldoc.BoolText.
func (Consent) TakesBool() {}

func (c *Consent) ParseText(s string) error {
	switch {
	case s == "true", s == "false", yamldoc.MatchesPattern(`^data-[0-9a-f]{12}$`, s):
		*c = Consent(s)
	default:
		return fmt.Errorf("%s is no consent; use true, false, or the fingerprint that firstlightd status names, such as "+
			"data-0123456789ab", yamldoc.Quote(s))
	}
	return nil
}

// SSHKey is one public key in the form of authorized_keys.
type SSHKey string

func (k SSHKey) String() string { return string(k) }

func (k *SSHKey) ParseText(s string) error {
	if strings.Contains(s, "PRIVATE KEY") {
		return errors.New("this is a private key; use the public one, the file ending in .pub, and replace the pair")
	}

	s = strings.TrimSpace(s)
	_, _, _, _, err := ssh.ParseAuthorizedKey([]byte(s))
	if err != nil || !yamldoc.IsPrintable(s) {
		return fmt.Errorf(
			"%s is not an SSH public key; paste the one line of a file such as id_ed25519.pub", yamldoc.Quote(s),
		)
	}

	*k = SSHKey(s)
	return nil
}

// LinkAddress says how a node's link gets its address.
type LinkAddress struct {
	Method string       // "dhcp", "none", "static", or empty if not given
	Prefix netip.Prefix // with "static": the address and the length of its network
}

// IsZero reports whether nothing is said.
func (a LinkAddress) IsZero() bool { return a == LinkAddress{} }

func (a LinkAddress) String() string {
	if a.Method == "static" {
		return a.Prefix.String()
	}
	return a.Method
}

func (a *LinkAddress) ParseText(s string) error {
	if s == "dhcp" || s == "none" {
		*a = LinkAddress{Method: s}
		return nil
	}

	p, err := netip.ParsePrefix(s)
	if err != nil {
		return fmt.Errorf(
			"%s is not an address of a link; write dhcp, none, or an address with its length such as 10.10.110.21/24",
			yamldoc.Quote(s),
		)
	}

	*a = LinkAddress{"static", p}
	return nil
}
