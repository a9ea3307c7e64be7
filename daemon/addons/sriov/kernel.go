package sriov

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/daemon/addons/devices"
)

// linux is the Kernel of this machine.
type linux struct {
	devices.Sysfs
}

const (
	// driverWait is how long a driver may need to make its interface, and udev to name it.
	driverWait = 5 * time.Second
	// carrierWait is how long a link may need to come up. Without it the interface is as it is.
	carrierWait = 3 * time.Second
	poll        = 50 * time.Millisecond
)

// waitFor reports whether a condition holds within a time.
func waitFor(most time.Duration, holds func() bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	for !holds() {
		select {
		case <-ctx.Done():
			return holds()
		case <-time.After(poll):
		}
	}
	return true
}

// Function is of Kernel.
func (l linux) Function(address string) (devices.VirtualFunction, bool) {
	return l.VirtualFunction(address)
}

// HasNamespace is of Kernel.
func (l linux) HasNamespace(path string) bool {
	if path == "" {
		return false
	}
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return false
	}
	_ = ns.Close()

	var s unix.Statfs_t // a path whose namespace is gone may be a plain file
	return unix.Statfs(path, &s) == nil && s.Type == unix.NSFS_MAGIC
}

// inNamespace calls do in a namespace.
func (l linux) inNamespace(path string, do func(*netlink.Handle) error) error {
	handle := &netlink.Handle{} // uses this namespace
	if path != "" {
		ns, err := netns.GetFromPath(path)
		if err != nil {
			return fmt.Errorf("open the pod's network namespace: %w", err)
		}
		defer ns.Close()
		// A socket of each family that the package knows would need modules of the kernel that a node may not have.
		if handle, err = netlink.NewHandleAt(ns, unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("open the pod's network namespace: %w", err)
		}
		defer handle.Close()
	}
	return do(handle)
}

// withLink calls do with an interface of a namespace.
func (l linux) withLink(path, name string, do func(*netlink.Handle, netlink.Link) error) error {
	return l.inNamespace(path, func(h *netlink.Handle) error {
		link, err := h.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find interface %s: %w", name, err)
		}
		return do(h, link)
	})
}

// Settings is of Kernel.
func (l linux) Settings(pf string, index int) (s Settings, err error) {
	link, err := netlink.LinkByName(pf)
	if err != nil {
		return s, fmt.Errorf("find physical function %s: %w", pf, err)
	}
	for _, vf := range link.Attrs().Vfs {
		if vf.ID != index {
			continue
		}
		mac, state := vf.Mac.String(), vf.LinkState
		s = Settings{
			MAC: &mac, VLAN: &VLAN{vf.Vlan, vf.Qos, vf.VlanProto}, SpoofChk: &vf.Spoofchk, LinkState: &state,
			Rate: &Rate{int(vf.MinTxRate), int(vf.MaxTxRate)},
		}
		if s.VLAN.Protocol == 0 {
			s.VLAN.Protocol = vlanProtocols["802.1q"]
		}
		isTrusted := vf.Trust == 1 // a device that has no trust says another number
		s.Trust = &isTrusted
		return s, nil
	}
	return s, fmt.Errorf("physical function %s has no virtual function %d", pf, index)
}

// Set is of Kernel.
func (l linux) Set(pf string, index int, s Settings) error {
	link, err := netlink.LinkByName(pf)
	if err != nil {
		return fmt.Errorf("find physical function %s: %w", pf, err)
	}

	explain := func(field string, err error) error {
		if errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("%s: the device cannot do that; leave it out of the configuration", field)
		}
		return fmt.Errorf("%s: %w", field, err)
	}
	if s.MAC != nil {
		mac, err := net.ParseMAC(*s.MAC)
		if err != nil {
			return explain("mac", err)
		}
		err = netlink.LinkSetVfHardwareAddr(link, index, mac)
		if isNone := strings.Trim(mac.String(), "0:") == ""; err != nil && !isNone { // some devices keep the last one
			return explain("mac", err)
		}
	}
	if s.VLAN != nil {
		if err := setVLAN(link, index, *s.VLAN); err != nil {
			return explain("vlan", err)
		}
	}
	if s.SpoofChk != nil {
		if err := netlink.LinkSetVfSpoofchk(link, index, *s.SpoofChk); err != nil {
			return explain("spoofchk", err)
		}
	}
	if s.Trust != nil {
		if err := netlink.LinkSetVfTrust(link, index, *s.Trust); err != nil {
			return explain("trust", err)
		}
	}
	if s.LinkState != nil {
		if err := netlink.LinkSetVfState(link, index, *s.LinkState); err != nil {
			return explain("link_state", err)
		}
	}
	if s.Rate != nil {
		if err := netlink.LinkSetVfRate(link, index, s.Rate.Min, s.Rate.Max); err != nil {
			return explain("min_tx_rate and max_tx_rate", err)
		}
	}
	return nil
}

// setVLAN uses the older request for the usual protocol: not every driver knows the other one.
func setVLAN(pf netlink.Link, index int, v VLAN) error {
	if v.Protocol == vlanProtocols["802.1q"] {
		return netlink.LinkSetVfVlanQos(pf, index, v.ID, v.QoS)
	}
	return netlink.LinkSetVfVlanQosProto(pf, index, v.ID, v.QoS, v.Protocol)
}

// Rebind is of Kernel.
func (l linux) Rebind(address string) error {
	before := l.Interfaces(address)
	if err := l.Unbind(address); err != nil {
		return err
	}
	if err := l.Probe(address); err != nil {
		return err
	}

	hasOne := func() bool { return len(l.Interfaces(address)) > 0 }
	if !waitFor(driverWait, hasOne) {
		return errors.New("its network interface does not come back; see the kernel's messages")
	}
	if len(before) > 0 { // udev names it as before, some time after it is there
		waitFor(time.Second, func() bool {
			now := l.Interfaces(address)
			return len(now) > 0 && now[0] == before[0]
		})
	}
	return nil
}

// Interface is of Kernel.
func (l linux) Interface(namespace, name string) (i Interface, err error) {
	err = l.withLink(namespace, name, func(_ *netlink.Handle, link netlink.Link) error {
		i = Interface{MAC: link.Attrs().HardwareAddr.String(), MTU: link.Attrs().MTU}
		return nil
	})
	return i, err
}

// SetInterface is of Kernel.
func (l linux) SetInterface(namespace, name string, to Interface) error {
	return l.withLink(namespace, name, func(h *netlink.Handle, link netlink.Link) error {
		if err := h.LinkSetDown(link); err != nil {
			return err
		}
		if to.MAC != "" {
			mac, err := net.ParseMAC(to.MAC)
			if err != nil {
				return err
			}
			if err := h.LinkSetHardwareAddr(link, mac); err != nil {
				return fmt.Errorf("set MAC %s: %w", mac, err)
			}
		}
		if to.MTU != 0 {
			if err := h.LinkSetMTU(link, to.MTU); err != nil {
				return fmt.Errorf("set MTU %d: %w", to.MTU, err)
			}
		}
		return nil
	})
}

// Move is of Kernel.
func (l linux) Move(namespace, name, toNamespace, toName, between string) error {
	to, err := netns.Get()
	if toNamespace != "" {
		_ = to.Close()
		to, err = netns.GetFromPath(toNamespace)
	}
	if err != nil {
		return fmt.Errorf("open the network namespace: %w", err)
	}
	defer to.Close()

	err = l.withLink(namespace, name, func(h *netlink.Handle, link netlink.Link) error {
		if err := h.LinkSetDown(link); err != nil {
			return err
		}
		if err := h.LinkSetName(link, between); err != nil {
			return err
		}
		return h.LinkSetNsFd(link, int(to))
	})
	if err != nil {
		return err
	}
	return l.rename(toNamespace, between, toName)
}

// Rename is of Kernel.
func (l linux) Rename(name, to string) error { return l.rename("", name, to) }

func (l linux) rename(namespace, name, to string) error {
	return l.withLink(namespace, name, func(h *netlink.Handle, link netlink.Link) error {
		if err := h.LinkSetDown(link); err != nil {
			return err
		}
		if err := h.LinkSetName(link, to); err != nil {
			return fmt.Errorf("rename interface %s to %s: %w", name, to, err)
		}
		return nil
	})
}

// Configure is of Kernel.
func (l linux) Configure(namespace, name string, a Addresses) error {
	return l.withLink(namespace, name, func(h *netlink.Handle, link netlink.Link) error {
		for _, n := range a.Networks {
			if err := h.AddrAdd(link, &netlink.Addr{IPNet: n}); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("add address %s: %w", n, err)
			}
		}
		if err := h.LinkSetUp(link); err != nil {
			return fmt.Errorf("take it up: %w", err)
		}
		waitFor(carrierWait, func() bool {
			now, err := h.LinkByIndex(link.Attrs().Index)
			return err == nil && now.Attrs().OperState == netlink.OperUp
		})

		for _, r := range a.Routes {
			route := &netlink.Route{
				LinkIndex: link.Attrs().Index, Dst: r.To, Gw: r.Gateway, MTU: r.MTU, Priority: r.Metric,
			}
			if r.Gateway == nil {
				route.Scope = netlink.SCOPE_LINK
			}
			if err := h.RouteAdd(route); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("add route to %s: %w", r.To, err)
			}
		}
		return nil
	})
}
