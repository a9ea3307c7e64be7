package simulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// leaseTimeout is how long a host waits for an answer before it asks for an address again.
const leaseTimeout = 5 * time.Second

// addr is the host's address on the provisioning network.
func (h *Server) addr() netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.address
}

// acquireAddress asks the DHCP server of the provisioning network for the host's address, as its firmware does, until
// it has one. All hosts share one interface; each has its own MAC in what it sends, and its own address.
func (h *Server) acquireAddress(ctx context.Context) error {
	if h.simulator.config.NIC == "" {
		return nil
	}

	for ctx.Err() == nil {
		addr, err := h.requestLease(ctx)
		if err == nil {
			return h.setAddress(addr)
		}
		h.logEvent("boot: no address: %v", err)
	}

	return ctx.Err()
}

func (h *Server) requestLease(ctx context.Context) (addr netip.Addr, err error) {
	if h.simulator.isIPv6() {
		return h.requestLease6(ctx)
	}

	mac, err := net.ParseMAC(h.MAC)
	if err != nil {
		return addr, err
	}

	var client *nclient4.Client
	err = inNamespace(h.simulator.wire.path(), func() (err error) {
		client, err = nclient4.New(
			h.simulator.config.NIC, nclient4.WithHWAddr(mac), nclient4.WithTimeout(leaseTimeout), nclient4.WithRetry(3),
		)
		return err
	})
	if err != nil {
		return addr, fmt.Errorf("ask for an address: %w", err)
	}
	defer client.Close()

	lease, err := client.Request(ctx, dhcpv4.WithBroadcast(true)) // a frame to its own MAC would not get here
	if err != nil {
		return addr, fmt.Errorf("ask for an address: %w", err)
	}

	addr, ok := netip.AddrFromSlice(lease.ACK.YourIPAddr.To4())
	if !ok {
		return addr, errors.New("ask for an address: the server gave none")
	}

	return addr, nil
}

// setAddress gives the shared interface the host's address, in the place of its last one, unless that is another
// host's by now: a new DHCP server knows nothing of the leases of the last one.
func (h *Server) setAddress(addr netip.Addr) error {
	h.simulator.leasing.Lock()
	defer h.simulator.leasing.Unlock()
	h.mu.Lock()
	last := h.address
	h.address = addr
	h.mu.Unlock()
	taken := h.simulator.hasAddress(last)
	return inNamespace(h.simulator.wire.path(), func() error {
		link, err := netlink.LinkByName(h.simulator.config.NIC)
		if err != nil {
			return fmt.Errorf("set address %s: %w", addr, err)
		}

		if !taken && !last.IsUnspecified() && !last.IsLoopback() {
			_ = netlink.AddrDel(link, &netlink.Addr{IPNet: hostNet(last)}) // it may be gone with the interface
		}

		if err := netlink.AddrReplace(link, hostAddr(addr)); err != nil {
			return fmt.Errorf("set address %s: %w", addr, err)
		}

		return nil
	})
}

// nobodys is an address of the shared interface that no host has, and that nothing is sent from: with the last address of
// an interface its routes are gone (Linux, fib_disable_ip), and the next boot would reach nobody.
var nobodys = netlink.Addr{
	IPNet: hostNet(netip.AddrFrom4([4]byte{169, 254, 255, 254})),
	Scope: int(netlink.SCOPE_LINK),
}

// releaseAddress takes the host's address from the shared interface, unless another host has it by now: what starts from
// the host's disk has a network of its own.
func (h *Server) releaseAddress() error {
	if h.simulator.config.NIC == "" {
		return nil
	}

	h.simulator.leasing.Lock()
	defer h.simulator.leasing.Unlock()
	h.mu.Lock()
	last := h.address
	h.address = netip.IPv4Unspecified()
	h.mu.Unlock()
	if h.simulator.hasAddress(last) {
		return nil
	}

	return inNamespace(h.simulator.wire.path(), func() error {
		link, err := netlink.LinkByName(h.simulator.config.NIC)
		if err != nil {
			return fmt.Errorf("release address %s: %w", last, err)
		}
		if err := netlink.AddrReplace(link, &nobodys); err != nil {
			return fmt.Errorf("release address %s: %w", last, err)
		}
		_ = netlink.AddrDel(link, &netlink.Addr{IPNet: hostNet(last)}) // it has none if it did not boot by the network
		return nil
	})
}

// hasAddress reports whether an address is a host's.
func (f *Simulator) hasAddress(addr netip.Addr) bool {
	return slices.ContainsFunc(f.hosts, func(h *Server) bool { return h.addr() == addr })
}

// hostAddr is an address of the shared interface. One of IPv6 is there at once: the server has asked for it, and nobody
// else is asked whether it has it (RFC 4862, 5.4).
func hostAddr(addr netip.Addr) *netlink.Addr {
	a := &netlink.Addr{IPNet: hostNet(addr)}
	if addr.Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

func hostNet(addr netip.Addr) *net.IPNet {
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
}
