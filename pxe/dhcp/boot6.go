package dhcp

import (
	"net"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"firstlight.dev/firstlight/pxe"
)

// enterpriseIntel is the number in firmware's vendor class (UEFI 2.10, 24.3.1).
const enterpriseIntel = 343

// writeBoot puts what the machine shall load into a reply, if it asks for that: a URL whatever the protocol (RFC 5970
// 3.1), which it returns. For HTTP boot the vendor class is sent back, without which UEFI drops the offer.
func (d *decision6) writeBoot(b bootAnswer, reply *dhcpv6.Message) string {
	if b.file == "" || !d.msg.IsOptionRequested(dhcpv6.OptionBootfileURL) {
		return ""
	}

	file := b.file
	if d.req.Machine.Firmware == pxe.FirmwarePXE {
		file = "tftp://[" + d.plan.Server.String() + "]/" + b.file
	}

	reply.AddOption(dhcpv6.OptBootFileURL(file))
	if b.class == classHTTP {
		reply.AddOption(&dhcpv6.OptVendorClass{EnterpriseNumber: enterpriseIntel, Data: [][]byte{[]byte(classHTTP)}})
	}

	return file
}

func toIPs(all []netip.Addr) []net.IP {
	var out []net.IP
	for _, a := range all {
		out = append(out, a.AsSlice())
	}
	return out
}
