package provisioning

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/daemon/metal/agentgate"
	"firstlight.dev/firstlight/daemon/metal/ironic"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/limit"
)

// bootsFile remembers on DATA which machine was given which boot.
const bootsFile = stick.DataDir + "/agents/boots.json"

// ironicTimeout is how long Ironic may take for what an agent asks: it looks at one thing at a time.
const ironicTimeout = 4 * time.Minute

// newGate makes what stands between the agents and Ironic.
func (p *Provisioner) newGate() *agentgate.Gate {
	return &agentgate.Gate{
		Log:        limit.Log(p.Log.With("part", "agents")),
		Boots:      &agentgate.Boots{Path: bootsFile, Log: p.Log},
		Ironic:     p.ironicHTTP,
		Host:       p.gateHost,
		Owner:      p.bootOwner,
		NodeOwner:  p.nodeOwner,
		Refused:    p.reportRefusal,
		WithoutMAC: p.hasHostWithoutMAC,
		Inspected:  func(mac string, said map[string]any) { p.Unknown.Add(mac, said, time.Now()) },
		MayWrite:   p.mayWrite,
		MayErase:   p.mayErase,
		NoteErased: p.noteErased,
		Machines:   p.Boot,
		IsInside:   func(from netip.Addr) bool { return isInside(from, p.Site()) },
	}
}

// ServeAgents lets agents through to Ironic from the moment that the provisioning network has its address, and starts
// again when the site changes that.
func (p *Provisioner) ServeAgents(ctx context.Context, up func() bool) error {
	addrs := func() ([]netip.Addr, bool) { return gateAddrs(p.Site()), true }
	return rerun.OnChange(ctx, up, addrs, func(ctx context.Context, addrs []netip.Addr) error {
		var listeners []net.Listener
		for _, addr := range addrs {
			listener, err := new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(addr, ironic.Port).String())
			if err != nil {
				for _, opened := range listeners {
					err = errors.Join(err, opened.Close())
				}
				return fmt.Errorf("listen for agents: %w", err)
			}
			listeners = append(listeners, listener)
		}

		server := ca.Server{Authority: p.Vault.Authority, Names: ca.Names{Of: "agentgate", Addrs: addrs}}
		return p.Gate.Serve(ctx, server.Certificate, listeners...)
	})
}

// gateAddrs are where agents reach the gate, and pods if that is elsewhere.
func gateAddrs(s *site.Site) []netip.Addr {
	return slices.Compact([]netip.Addr{s.Networks.Provisioning.Address, s.InnerAddress()})
}

// isInside reports whether an address is this machine's own or a pod's: the kernel drops packets from elsewhere that
// claim ours of IPv4, and answers to a pod's address go to that pod. No program of the appliance calls from one of IPv6.
func isInside(from netip.Addr, s *site.Site) bool {
	return from.IsLoopback() || from == s.InnerAddress() || s.Appliance.PodCIDR.Contains(from)
}

func (p *Provisioner) gateHost(mac string) (*agentgate.Host, bool) {
	h, current := p.Hosts.HostByMAC(mac)
	if h == nil {
		return nil, current
	}
	return &agentgate.Host{Name: h.Name, UUID: h.Status.Provisioning.ID, InService: metal3.InService(h)}, current
}

// bootOwner is the host that boots from a MAC. Another NIC's MAC says nothing: some makers give the same one to the NIC
// between BMC and system of all their servers.
func (p *Provisioner) bootOwner(mac string) string {
	h := p.Hosts.FindHost(func(h *metal3api.BareMetalHost) bool { return metal3.BootMAC(h) == mac })
	if h == nil {
		return ""
	}
	return h.Name
}

// nodeOwner is the host that one of Ironic's nodes stands for.
func (p *Provisioner) nodeOwner(uuid string) string {
	h := p.Hosts.FindHost(func(h *metal3api.BareMetalHost) bool { return h.Status.Provisioning.ID == uuid })
	if h == nil {
		return ""
	}
	return h.Name
}

func (p *Provisioner) hasHostWithoutMAC(bmc string) bool {
	return nil != p.Hosts.FindHost(func(h *metal3api.BareMetalHost) bool {
		return h.Spec.BootMACAddress == "" && bmcHost(h.Spec.BMC.Address) == bmc
	})
}

// bmcHost is the host of a BMC's address as Metal3 writes it: a URL, or a bare host for IPMI.
func bmcHost(address string) string {
	if !strings.Contains(address, "://") {
		address = "ipmi://" + address
	}

	u, err := url.Parse(address)
	if err != nil {
		return ""
	}

	return u.Hostname()
}

// ironicHTTP is how the gate asks Ironic: without a password, as agents do.
func (p *Provisioner) ironicHTTP() (string, *http.Client, error) {
	authority, err := p.Vault.Authority()
	if err != nil {
		return "", nil, err
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if pem := string(authority.PEM()); p.agentClient == nil || p.agentRoot != pem {
		transport, err := ironic.NewTransport(authority.PEM())
		if err != nil {
			return "", nil, err
		}
		p.agentClient, p.agentRoot = &http.Client{Transport: transport, Timeout: ironicTimeout}, pem
	}

	return ironic.Endpoint(), p.agentClient, nil
}

// tokenBooter asks for a token with each ramdisk: what runs in it speaks for its machine.
type tokenBooter struct{ pxe.Booter }

// Boot implements pxe.Booter.
func (b tokenBooter) Boot(ctx context.Context, m pxe.Machine) pxe.Boot {
	boot := b.Booter.Boot(ctx, m)
	boot.Mint = boot.Action == pxe.ActionInspect || boot.Action == pxe.ActionRamdisk
	return boot
}

// Booter says what machines boot.
func (p *Provisioner) Booter() pxe.Booter {
	p.Hosts.Ramdisk = p.Ramdisk()
	return tokenBooter{p.Hosts}
}
