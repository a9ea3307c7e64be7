package provisioning

import (
	"cmp"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/netboot"
	"firstlight.dev/firstlight/pxe"
)

// discIdle is how long neither the BMC of a node reads its disc nor the agent from it calls, before what the BMC reads
// next is another disc, with another token. Ironic waits less long for an agent.
const discIdle = 20 * time.Minute

// Discs says what is on the discs of nodes that boot from one. Some BMCs read a disc at once, others block by block
// while their server boots, and none says when it begins: a disc stays the same until it is idle.
type Discs struct {
	Site func() *site.Site // with its defaults
	// Host is the host with a MAC, nil if there is none; current: the API was asked since the daemon started.
	Host     func(mac string) (h *metal3api.BareMetalHost, current bool)
	Mint     func(m pxe.Machine) (pxe.Secret, error)
	CalledAt func(mac string) time.Time      // an agent last did, with the newest token of its machine
	Args     func(token pxe.Secret) []string // of the kernel, whatever the node
	Now      func() time.Time

	mu   sync.Mutex
	made map[string]discMade // by MAC
}

// discMade is what one machine finds on its disc.
type discMade struct {
	node  string // Ironic's, for which its token is
	link  string // arguments that give the machine its address
	args  []string
	since time.Time
	read  time.Time // by the BMC, the last time
}

var _ netboot.Discs = (*Discs)(nil)

func (p *Provisioner) newDiscs() *Discs {
	return &Discs{
		Site:     p.Site,
		Host:     p.Hosts.HostByMAC,
		Mint:     func(m pxe.Machine) (pxe.Secret, error) { return p.Gate.Mint(m, pxe.Boot{}) },
		CalledAt: p.Gate.Boots.CalledAt,
		Args:     func(token pxe.Secret) []string { return p.ironic().DiscArgs(token) },
		Now:      time.Now,
	}
}

// MachineAt implements pxe.Machines: the machine of the node whose BMC has an address.
func (d *Discs) MachineAt(bmc netip.Addr) (pxe.Machine, bool) {
	n, ok := d.nodeOf(func(n site.Node) bool { return n.BMC.Address.Host() == bmc.Unmap().String() })
	if !ok {
		return pxe.Machine{}, false
	}

	l, _ := n.DiscLink()
	return pxe.Machine{MAC: n.BootMAC.HardwareAddr(), Addr: l.Address.Prefix.Addr()}, true
}

// nodeOf is the first node that boots from a disc and fits.
func (d *Discs) nodeOf(fits func(site.Node) bool) (site.Node, bool) {
	for _, n := range d.Site().Nodes {
		if _, ok := n.DiscLink(); ok && fits(n) {
			return n, true
		}
	}
	return site.Node{}, false
}

// Arguments implements netboot.Discs.
func (d *Discs) Arguments(m pxe.Machine) ([]string, time.Time, error) {
	mac := m.MAC.String()
	n, ok := d.nodeOf(func(n site.Node) bool { return string(n.BootMAC) == mac })
	if !ok {
		return nil, time.Time{}, errors.New("its node is not in the site any more")
	}

	h, current := d.Host(mac)
	called := d.CalledAt(mac)
	link := strings.Join(linkArgs(n, d.Site().Networks.Provisioning.Gateway), " ")
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.Now()
	made, has := d.made[mac]
	isBusy := now.Sub(made.read) < discIdle || now.Sub(called) < discIdle
	switch refusal := metal3.DecideDisc(h, current); {
	case h != nil && metal3.InService(h):
		return nil, time.Time{}, errors.New(refusal)
	case has && isBusy && h != nil && made.node == h.Status.Provisioning.ID && made.link == link:
		made.read = now
		d.made[mac] = made
		return made.args, made.since, nil
	case refusal != "":
		return nil, time.Time{}, errors.New(refusal)
	case !has && isBusy:
		return nil, time.Time{}, errors.New("the agent from a disc of before the daemon started is at work")
	}

	token, err := d.Mint(m)
	if err != nil {
		return nil, time.Time{}, err
	}

	args := append(d.Args(token), strings.Fields(link)...)
	if d.made == nil {
		d.made = map[string]discMade{}
	}
	d.made[mac] = discMade{node: h.Status.Provisioning.ID, link: link, args: args, since: now, read: now}
	return args, now, nil
}

// linkArgs tell the ramdisk which NIC has which address. BOOTIF is as iPXE writes it, and has the agent say which NIC
// its machine booted by; the others are for overlays/ramdisk/init. gateway is the one of the provisioning network.
func linkArgs(n site.Node, gateway netip.Addr) []string {
	l, _ := n.DiscLink()
	args := []string{
		"BOOTIF=01-" + strings.ReplaceAll(string(n.BootMAC), ":", "-"),
		"firstlight.address=" + l.Address.Prefix.String(),
	}
	if router := cmp.Or(l.Gateway, gateway); router.IsValid() {
		args = append(args, "firstlight.gateway="+router.String())
	}

	var servers []string
	for _, a := range l.DNS {
		if a.Is4() {
			servers = append(servers, a.String())
		}
	}
	if len(servers) > 0 {
		args = append(args, "firstlight.dns="+strings.Join(servers, ","))
	}

	return args
}
