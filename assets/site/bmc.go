package site

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// BMCAddress is the address of a BMC in the form BareMetalHost takes.
type BMCAddress string

func (a BMCAddress) String() string { return string(a) }

// Scheme is ipmi, redfish or redfish-virtualmedia, the latter two also with +http or +https.
func (a BMCAddress) Scheme() string {
	scheme, _, _ := strings.Cut(string(a), "://")
	return scheme
}

// Host is the host name or address without port.
func (a BMCAddress) Host() string {
	u, err := url.Parse(string(a))
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// Port is the port given or the usual one: 623 for ipmi, 80 for redfish+http, else 443.
func (a BMCAddress) Port() int {
	u, err := url.Parse(string(a))
	if err != nil {
		return 0
	}
	if port, err := strconv.Atoi(u.Port()); err == nil {
		return port
	}

	switch {
	case u.Scheme == "ipmi":
		return 623
	case strings.HasSuffix(u.Scheme, "+http"):
		return 80
	}

	return 443
}

// IsRedfish reports whether the BMC is spoken to by Redfish.
func (a BMCAddress) IsRedfish() bool { return strings.HasPrefix(a.Scheme(), "redfish") }

// HasVirtualMedia reports whether the BMC puts a disc into the drive of its server, which boots from it.
func (a BMCAddress) HasVirtualMedia() bool {
	kind, _, _ := strings.Cut(a.Scheme(), "+")
	return kind == "redfish-virtualmedia"
}

// HasTLS reports whether the BMC is spoken to by TLS, so that it shows a certificate.
func (a BMCAddress) HasTLS() bool {
	scheme := a.Scheme()
	return scheme != "ipmi" && !strings.HasSuffix(scheme, "+http")
}

// Endpoint is the BMC's host and port. Several servers of one chassis may have the same.
func (a BMCAddress) Endpoint() string {
	return net.JoinHostPort(strings.ToLower(a.Host()), strconv.Itoa(a.Port()))
}

// SystemKey identifies the server behind the address, whatever its spelling.
func (a BMCAddress) SystemKey() string {
	u, err := url.Parse(string(a))
	if err != nil {
		return string(a)
	}
	return fmt.Sprintf("%s:%d%s", strings.ToLower(a.Host()), a.Port(), strings.TrimRight(u.Path, "/"))
}

func (a *BMCAddress) ParseText(s string) error {
	const example = "; write ipmi://10.0.0.5 or redfish://10.0.0.5/redfish/v1/Systems/1"
	if !strings.Contains(s, "://") {
		return fmt.Errorf("%s has no scheme%s", yamldoc.Quote(withoutUser(s)), example)
	}

	u, err := url.Parse(s)
	if err != nil {
		return errors.New("this is not an address of a BMC" + example)
	}

	switch scheme, _, _ := strings.Cut(s, "://"); scheme {
	case "ipmi", "redfish", "redfish+http", "redfish+https",
		"redfish-virtualmedia", "redfish-virtualmedia+http", "redfish-virtualmedia+https":
	default:
		return fmt.Errorf("scheme %s is not a BMC; use redfish:// or ipmi://", yamldoc.Quote(scheme))
	}

	port, err := strconv.Atoi(u.Port())
	switch {
	case u.User != nil:
		return errors.New("credentials do not belong into the address; use bmc.username and bmc.password")
	case !isHost(u.Hostname()):
		return fmt.Errorf("%s is neither a host name nor an address%s", yamldoc.Quote(u.Hostname()), example)
	case u.Port() != "" && (err != nil || port < 1 || port > 65535):
		return fmt.Errorf("port %s is out of bounds; use 1 to 65535", yamldoc.Quote(u.Port()))
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("a BMC address ends with its path; remove what follows '?' or '#'")
	case u.Scheme == "ipmi" && strings.Trim(u.Path, "/") != "":
		return fmt.Errorf("path %s has no meaning with ipmi; remove it", yamldoc.Quote(u.Path))
	case u.Scheme != "ipmi" && !strings.HasPrefix(u.Path, "/redfish/v1/Systems/"):
		return fmt.Errorf(
			"path %s names no system; write redfish://%s/redfish/v1/Systems/ID with the ID that the BMC lists",
			yamldoc.Quote(u.Path), u.Host,
		)
	}

	*a = BMCAddress(s)
	return nil
}

// withoutUser drops what stands before an '@', which may be a password.
func withoutUser(s string) string {
	return s[strings.LastIndex(s, "@")+1:]
}

// CertificateCheck is how a BMC's certificate is checked; "" is the default.
type CertificateCheck string

// Checks of a BMC's certificate.
const (
	CheckPin  CertificateCheck = "pin"  // it is the one that the BMC had at first contact, or one that a person accepted
	CheckCA   CertificateCheck = "ca"   // a known authority signed it for the host in the address
	CheckNone CertificateCheck = "none" // it is not checked
)

func (c CertificateCheck) String() string { return string(c) }

// TakesBool implements yamldoc.BoolText: the field was once true or false.
func (CertificateCheck) TakesBool() {}

func (c *CertificateCheck) ParseText(s string) error {
	switch s {
	case "true":
		*c = CheckCA
	case "false":
		*c = CheckNone
	case string(CheckPin), string(CheckCA), string(CheckNone):
		*c = CertificateCheck(s)
	default:
		return fmt.Errorf("%s is no check of a certificate; use pin, ca or none", yamldoc.Quote(s))
	}
	return nil
}

// withDefaults is a BMC whose certificate is checked in the way of the site, unless it has none or says otherwise.
func (b *BMC) withDefaults(site BMCs) *BMC {
	if b == nil || !b.Address.HasTLS() || b.VerifyCertificate != "" {
		return b
	}

	b = cloneOrZero(b)
	b.VerifyCertificate = site.VerifyCertificate
	return b
}
