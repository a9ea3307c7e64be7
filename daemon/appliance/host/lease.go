package host

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/atomicfile"
)

const (
	leaseLook = 2 * time.Second  // between two looks at what is due
	leaseTry  = 15 * time.Second // after a server did not answer
)

// lease is an address that a DHCP server gave us.
type lease struct {
	server   string
	response *nclient4.Lease
	dns      []string
	due      time.Time // renew, or ask again
	until    time.Time // the address is ours
}

// rebindTime is when any server may be asked instead of the one that gave the address
// (RFC 2131 4.4.5: at seven eighths of the lease).
func (l lease) rebindTime() time.Time {
	return l.until.Add(-l.response.ACK.IPAddressLeaseTime(time.Hour) / 8)
}

// afterSilence is what is left of a lease when nobody answered at now: all of it, until it
// ends. It is asked for again a little later.
func (l lease) afterSilence(now time.Time) lease {
	if !now.Before(l.until) {
		l = lease{}
	}
	l.due = now.Add(leaseTry)
	return l
}

// MaintainLeases keeps an address from the owner's DHCP server on every network that has no static
// one, until ctx ends. Nothing waits for it: the appliance works without.
func (h *Host) MaintainLeases(ctx context.Context) error {
	tick := time.NewTicker(leaseLook)
	defer tick.Stop()
	for {
		for _, l := range h.layout() {
			if l.Kind == KindBridge && l.DHCP {
				h.maintainLease(ctx, l.Name)
			}
		}

		h.forgetLeases(time.Now())
		h.writeResolvers()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (h *Host) maintainLease(ctx context.Context, bridge string) {
	h.mu.Lock()
	have := h.nets.leases[bridge]
	h.mu.Unlock()
	link, err := netlink.LinkByName(bridge)
	if err != nil || link.Attrs().RawFlags&unix.IFF_LOWER_UP == 0 || time.Now().Before(have.due) {
		return
	}

	next, err := h.requestLease(ctx, bridge, have)
	if ctx.Err() != nil {
		return
	}

	if err != nil {
		h.Log.Debug("no lease", "network", bridge, "error", err)
		if errors.As(err, new(*nclient4.ErrNak)) {
			have = lease{} // it was taken back
		}
		next = have.afterSilence(time.Now())
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nets.leases == nil {
		h.nets.leases = map[string]lease{}
	}

	h.nets.leases[bridge] = next
}

// forgetLeases drops what has run out, also where nobody can be asked: without a link, or
// on a network that has a static address now. The address ran out by its own lifetime.
func (h *Host) forgetLeases(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for bridge, l := range h.nets.leases {
		if l.response != nil && !now.Before(l.until) {
			h.nets.leases[bridge] = l.afterSilence(now)
		}
	}
}

// requestLease gets a lease, or the one we have again (RFC 2131 4.4.5), and puts it on the bridge.
// A server that is silent for a while does not cost us the address: until rebind no other is
// asked.
func (h *Host) requestLease(ctx context.Context, bridge string, have lease) (lease, error) {
	c, err := nclient4.New(bridge, nclient4.WithTimeout(2*time.Second), nclient4.WithRetry(2))
	if err != nil {
		return lease{}, fmt.Errorf("open %s for DHCP: %w", bridge, err)
	}
	defer c.Close()

	name := dhcpv4.WithOption(dhcpv4.OptHostName(h.Hostname()))
	var got *nclient4.Lease
	var refused error
	if have.response != nil {
		got, refused = c.Renew(ctx, have.response, name)
		if refused != nil && !have.mayAskOthers(refused, time.Now()) {
			return lease{}, fmt.Errorf("renew the lease on %s: %w", bridge, refused)
		}
	}

	if got == nil {
		got, err = c.Request(ctx, name, dhcpv4.WithRequestedOptions(dhcpv4.OptionNTPServers))
	}

	if err != nil {
		return lease{}, fmt.Errorf("ask for a lease on %s: %w", bridge, errors.Join(refused, err))
	}

	return h.applyLease(bridge, got)
}

// mayAskOthers reports whether other servers than the lease's are asked, at the time now, after that one refused to
// renew it or was silent.
func (l lease) mayAskOthers(refused error, now time.Time) bool {
	return errors.As(refused, new(*nclient4.ErrNak)) || !now.Before(l.rebindTime())
}

func (h *Host) applyLease(bridge string, got *nclient4.Lease) (lease, error) {
	ack := got.ACK
	addr, ok := netip.AddrFromSlice(ack.YourIPAddr.To4())
	mask := ack.SubnetMask()
	bits, _ := mask.Size()
	if !ok || mask == nil || bits == 0 {
		return lease{}, fmt.Errorf("lease on %s without address or mask", bridge)
	}

	life := ack.IPAddressLeaseTime(time.Hour)
	if err := addAddress(bridge, netip.PrefixFrom(addr, bits), int(life.Seconds())); err != nil {
		return lease{}, err
	}

	if routers := ack.Router(); len(routers) > 0 {
		if gw, ok := netip.AddrFromSlice(routers[0].To4()); ok {
			if err := addRoute(bridge, gw); err != nil {
				return lease{}, err
			}
		}
	}

	now := time.Now()
	l := lease{response: got, due: now.Add(max(ack.IPAddressRenewalTime(life/2), 30*time.Second)), until: now.Add(life)}
	if id := ack.ServerIdentifier(); id != nil {
		l.server = id.String()
	}

	for _, d := range ack.DNS() {
		l.dns = append(l.dns, d.String())
	}

	h.Log.Info("address leased", "network", bridge, "address", addr, "server", l.server, "for", life)
	return l, nil
}

// writeResolvers names the site's resolvers, or those that came with a lease.
func (h *Host) writeResolvers() {
	networks := h.Site().Networks
	var servers []string
	for _, role := range []string{Baremetal, Provisioning, BMC} {
		if n := networks.Role(role); n != nil {
			for _, a := range n.DNS {
				servers = append(servers, a.String())
			}
		}
	}

	h.mu.Lock()
	if len(servers) == 0 {
		for _, role := range []string{Baremetal, BMC} {
			servers = append(servers, h.nets.leases[role].dns...)
		}
	}

	h.mu.Unlock()
	var b strings.Builder
	b.WriteString("# Written by firstlightd: the site's resolvers, or those of a lease.\n")
	for _, s := range servers[:min(len(servers), 3)] { // resolv.conf(5): at most three
		b.WriteString("nameserver " + s + "\n")
	}

	if err := atomicfile.WriteChanged(h.path("/etc/resolv.conf"), []byte(b.String()), 0o644); err != nil {
		h.Log.Warn("resolvers not written", "error", err)
	}
}
