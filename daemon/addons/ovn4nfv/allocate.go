package ovn4nfv

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"go4.org/netipx"
)

// users are who has which address, by network.
type users map[string]map[netip.Addr]string

// add says that a pod has what its annotation says.
func (u users) add(pod string, all []Interface) {
	for _, i := range all {
		prefix, err := i.prefix()
		if err != nil {
			continue
		}
		if u[i.Network] == nil {
			u[i.Network] = map[netip.Addr]string{}
		}
		u[i.Network][prefix.Addr()] = pod
	}
}

// findNetwork returns what a pod of a namespace means by a name: the network of its namespace, else that of default.
func findNetwork(all map[string]Network, namespace, name string) (Network, bool) {
	for _, in := range []string{namespace, sharedNamespace} {
		if n, ok := all[in+"/"+name]; ok {
			return n, true
		}
	}
	return Network{}, false
}

// allocate decides what a pod gets for what it asks for. It gets all of it or nothing.
func allocate(pod, namespace string, requests []Request, all map[string]Network, used users) ([]Interface, error) {
	var given []Interface
	taken := users{}
	for _, r := range requests {
		n, ok := findNetwork(all, namespace, r.Network)
		if !ok {
			return nil, fmt.Errorf("interface %s: no Network or ProviderNetwork %s is ready in %s or %s; create it, or see "+
				"its status", r.Interface, r.Network, namespace, sharedNamespace)
		}
		address, err := n.choose(r.Address, used[n.String()], taken[n.String()])
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", r.Interface, err)
		}

		i := Interface{
			Addresses: []string{netip.PrefixFrom(address, n.Subnet.Bits()).String()},
			MAC:       r.MAC, DefaultGateway: strconv.FormatBool(r.DefaultGateway), Interface: r.Interface,
			Network: n.String(), Gateways: []string{},
		}
		if i.MAC == "" {
			i.MAC = macOf(address)
		}
		gateway := r.Gateway
		if !gateway.IsValid() {
			gateway = n.Gateway
		}
		switch {
		case gateway.IsValid() && !isHost(n.Subnet, gateway):
			return nil, fmt.Errorf("interface %s: gwipaddress %s is none of the addresses of network %s",
				r.Interface, gateway, n)
		case gateway.IsValid():
			i.Gateways = append(i.Gateways, gateway.String())
		case r.DefaultGateway:
			return nil, fmt.Errorf("interface %s: network %s has no gateway; give it one, or the interface a gwipaddress",
				r.Interface, n)
		}
		given = append(given, i)
		taken.add(pod, given[len(given)-1:])
	}
	return given, nil
}

// choose returns the address that is asked for, or the lowest that is free.
func (n Network) choose(wanted netip.Addr, used ...map[netip.Addr]string) (netip.Addr, error) {
	if wanted.IsValid() {
		if !isHost(n.Subnet, wanted) || wanted == n.Gateway {
			return wanted, fmt.Errorf("ipAddress %s is none of network %s, whose addresses are %s", wanted, n, n.Subnet)
		}
		for _, u := range used {
			if pod, isUsed := u[wanted]; isUsed {
				return wanted, fmt.Errorf("ipAddress %s of network %s is pod %s's", wanted, n, pod)
			}
		}
		return wanted, nil
	}

	var free netipx.IPSetBuilder
	free.AddSet(n.Free)
	for _, u := range used {
		for a := range u {
			free.Remove(a)
		}
	}
	left, err := free.IPSet()
	if err != nil {
		return wanted, err
	}
	for _, r := range left.Ranges() {
		return r.From(), nil
	}
	return wanted, fmt.Errorf("network %s has no free address; delete pods, or make another network", n)
}

// macOf is the MAC of an interface or a router with an address: no two of one network have the same.
func macOf(a netip.Addr) string {
	four := a.As4()
	return net.HardwareAddr{0x0a, 0x58, four[0], four[1], four[2], four[3]}.String()
}
