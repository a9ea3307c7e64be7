package chain

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attributes and settings of an interface for IPv4, of linux/if_link.h and linux/ip.h.
const (
	inetConf              = 1 // IFLA_INET_CONF
	confForwarding        = 1 // IPV4_DEVCONF_FORWARDING
	confAcceptRedirects   = 4 // IPV4_DEVCONF_ACCEPT_REDIRECTS
	settingOff, settingOn = 0, 1
)

// OpenForwarding has the kernel forward what comes in by these interfaces of the network namespace, and by no others. It
// is the sysctl net.ipv4.conf.NAME.forwarding, set by rtnetlink: a container that is not privileged cannot write to
// /proc/sys, and needs NET_ADMIN alone for this.
func OpenForwarding(names ...string) error {
	for _, name := range names {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find interface %s: %w; if the add-on multus is ready, delete this pod to have it attached again",
				name, err)
		}

		request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
		message := nl.NewIfInfomsg(unix.AF_UNSPEC)
		message.Index = int32(link.Attrs().Index)
		request.AddData(message)
		spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
		conf := spec.AddRtAttr(unix.AF_INET, nil).AddRtAttr(inetConf, nil)
		conf.AddRtAttr(confForwarding, nl.Uint32Attr(settingOn))
		conf.AddRtAttr(confAcceptRedirects, nl.Uint32Attr(settingOff))
		request.AddData(spec)
		if _, err := request.Execute(unix.NETLINK_ROUTE, 0); err != nil {
			return fmt.Errorf("have interface %s forward: %w", name, err)
		}
	}
	return nil
}
