package dhcp

import (
	"fmt"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"firstlight.dev/firstlight/pxe"
)

// bootAnswer is what a machine is told to load: file, or nothing and the reason.
type bootAnswer struct {
	file   string
	class  string // option 60 to send
	reason Reason
	text   string
}

// boot asks the policy and looks up the file. A booted system, which does not ask for a
// boot file, is none of the policy's business. iPXE always gets its script: the script
// can tell people why a machine may not boot, firmware cannot.
func (d *decision) boot() bootAnswer {
	m := d.req.Machine
	if m.Firmware == pxe.FirmwareUnknown || d.booter == nil || d.plan.HTTP == "" {
		return bootAnswer{}
	}
	if m.Firmware == pxe.FirmwareIPXE {
		return bootAnswer{
			file:  d.plan.HTTP + pxe.ScriptPath + strings.ReplaceAll(d.req.MAC.String(), ":", "-"),
			class: classPXE,
		}
	}

	b := d.booter.Boot(d.ctx, m)
	switch b.Action {
	case pxe.ActionRefuse:
		return bootAnswer{reason: ReasonBootRefused, text: b.Reason}
	case pxe.ActionDisk:
		return bootAnswer{
			reason: ReasonBootDisk,
			text:   "boots its own disk: no boot file is offered, so firmware continues with the next device",
		}
	case pxe.ActionInspect, pxe.ActionRamdisk, pxe.ActionWait:
	}

	f, ok := d.plan.files[m.Arch]
	if !ok {
		return bootAnswer{
			reason: ReasonArchUnknown,
			text:   fmt.Sprintf("no boot file for firmware architecture %d (option 93)", m.Arch),
		}
	}

	name := f.Name
	if b.SecureBoot && d.plan.Server.Is6() {
		return bootAnswer{
			reason: ReasonArchUnknown,
			text:   "it is to boot with Secure Boot, and by IPv6 the signed shim does not get on to GRUB",
		}
	}
	if b.SecureBoot {
		if len(f.Signed) == 0 {
			return bootAnswer{
				reason: ReasonArchUnknown,
				text:   fmt.Sprintf("no signed boot program for firmware architecture %d (option 93), and it is to boot with Secure Boot", m.Arch),
			}
		}
		name = f.Signed[0]
	}

	if m.Firmware == pxe.FirmwareHTTPBoot {
		return bootAnswer{file: d.plan.HTTP + pxe.BootPath + name, class: classHTTP}
	}

	return bootAnswer{file: name, class: classPXE}
}

var (
	// PXE_DISCOVERY_CONTROL (6) with bit 3: load the file named here, look for no other
	// boot server. Without it firmware that sees PXEClient goes on to multicast discovery.
	pxeUseFile = []byte{6, 1, 8, 255}
	// iPXE's no-pxedhcp (176): do not wait for a ProxyDHCP offer.
	ipxeNoProxy = []byte{176, 1, 1}
)

// write puts b into reply. The file goes into the header, which every firmware reads, and
// into option 67 for those that ask; UEFI HTTP boot is sent both without asking.
func (b bootAnswer) write(d *decision, reply *dhcpv4.DHCPv4) {
	if b.file == "" {
		return
	}

	put := func(code dhcpv4.OptionCode, v []byte) { reply.Options[code.Code()] = v }
	reply.ServerIPAddr = d.plan.Server.AsSlice()
	reply.BootFileName = b.file
	put(dhcpv4.OptionClassIdentifier, []byte(b.class))
	if id := d.req.Packet.Options.Get(dhcpv4.OptionClientMachineIdentifier); len(id) == 17 {
		put(dhcpv4.OptionClientMachineIdentifier, id) // RFC 4578 2.3: echoed
	}

	wants := d.req.Packet.IsOptionRequested
	if b.class == classHTTP || wants(dhcpv4.OptionBootfileName) {
		put(dhcpv4.OptionBootfileName, []byte(b.file))
	}

	if wants(dhcpv4.OptionTFTPServerName) {
		put(dhcpv4.OptionTFTPServerName, []byte(d.plan.Server.String()))
	}

	if b.class == classPXE {
		put(dhcpv4.OptionVendorSpecificInformation, pxeUseFile)
	}

	if d.req.Machine.Firmware == pxe.FirmwareIPXE {
		put(optIPXE, ipxeNoProxy)
	}
}

// bootServer answers on port 4011, where firmware asks again when its offer came from two
// servers, and some of it always (PXE 2.1, 2.2.3). The reply carries no address.
func (d *decision) bootServer() {
	switch d.req.Packet.MessageType() {
	case dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform, dhcpv4.MessageTypeDiscover:
		d.bootOnly(dhcpv4.MessageTypeAck, KindAck)
	default:
		d.refuse(ReasonUnexpected, "message %v is not for boot servers", d.req.Packet.MessageType())
	}
}

// proxyOffer answers a DISCOVER with a boot file and no address.
func (d *decision) proxyOffer() {
	if t := d.req.Packet.MessageType(); t != dhcpv4.MessageTypeDiscover {
		d.refuse(ReasonProxy, "message %v is the business of the server that gives addresses", t)
		return
	}
	d.addEvent(Event{Kind: KindDiscover})
	d.bootOnly(dhcpv4.MessageTypeOffer, KindOffer)
}

func (d *decision) bootOnly(t dhcpv4.MessageType, kind Kind) {
	d.req.Machine.Addr = addr4(d.req.Packet.ClientIPAddr)
	b := d.boot()
	if b.file == "" {
		if b.reason == "" {
			b.reason, b.text = ReasonProxy, "not a boot firmware"
		}
		d.refuse(b.reason, "%s", b.text)
		return
	}

	r := d.newReply(t)
	r.ClientIPAddr = d.req.Packet.ClientIPAddr
	b.write(d, r)
	d.answer.Reply = r
	d.addEvent(Event{Kind: kind, File: b.file})
}
