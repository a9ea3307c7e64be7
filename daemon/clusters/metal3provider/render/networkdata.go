package render

import (
	"encoding/json"
	"fmt"
	"net"
	"regexp"

	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

type fields = map[string]any

// NetworkData renders OpenStack's network_data.json, as YAML. The three lists are always there.
func NetworkData(t *v1beta2.NetworkData, in Input) ([]byte, error) {
	links, err := in.links(t.Links)
	if err != nil {
		return nil, fmt.Errorf("networkData.links: %w", err)
	}
	networks, err := in.networks(t.Networks)
	if err != nil {
		return nil, fmt.Errorf("networkData.networks: %w", err)
	}
	services, err := in.services(t.Services)
	if err != nil {
		return nil, fmt.Errorf("networkData.services: %w", err)
	}

	text, err := yaml.Marshal(fields{"links": links, "networks": networks, "services": services})
	if err != nil {
		return nil, fmt.Errorf("encode networkData: %w", err)
	}
	return text, nil
}

// links are bonds, ethernets and VLANs, in this order.
func (in Input) links(t v1beta2.NetworkLinks) ([]fields, error) {
	all := []fields{}
	for _, b := range t.Bonds {
		l, err := in.link(b.Link, "bond", "ethernet_mac_address")
		if err != nil {
			return nil, err
		}
		l["bond_mode"], l["bond_links"] = b.BondMode, append([]string{}, b.BondLinks...)
		if b.BondXmitHashPolicy != "" {
			l["bond_xmit_hash_policy"] = b.BondXmitHashPolicy
		}
		if err := addParameters(l, b); err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	for _, e := range t.Ethernets {
		l, err := in.link(e.Link, e.Type, "ethernet_mac_address")
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	for _, v := range t.Vlans {
		l, err := in.link(v.Link, "vlan", "vlan_mac_address")
		if err != nil {
			return nil, err
		}
		l["vlan_id"], l["vlan_link"] = v.VlanID, v.VlanLink
		all = append(all, l)
	}
	return all, nil
}

func addParameters(l fields, b v1beta2.LinkBond) error {
	for _, p := range b.Parameters {
		name := "bond_" + p.Name
		if _, taken := l[name]; taken {
			return fmt.Errorf("bond %s: parameter %s has its own field", b.ID, p.Name)
		}
		var value any
		if len(p.Value.Raw) > 0 {
			if err := json.Unmarshal(p.Value.Raw, &value); err != nil {
				return fmt.Errorf("bond %s: parameter %s: %w", b.ID, p.Name, err)
			}
		}
		l[name] = value
	}
	return nil
}

func (in Input) link(t v1beta2.Link, kind, macKey string) (fields, error) {
	l := fields{"type": kind, "id": t.ID, "mtu": t.MTU}
	if t.MTU == 0 {
		l["mtu"] = 1500
	}
	if t.Name != "" {
		l["name"] = t.Name
	}
	if t.MACAddress != nil {
		mac, err := in.mac(*t.MACAddress)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.ID, err)
		}
		l[macKey] = mac
	}
	return l, nil
}

var macPattern = regexp.MustCompile(`^[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}$`)

func (in Input) mac(t v1beta2.LinkMAC) (mac string, err error) {
	switch {
	case t.String != nil:
		mac = *t.String
	case t.FromHostInterface != nil:
		mac, err = in.interfaceMAC(*t.FromHostInterface)
	case t.FromAnnotation != nil:
		mac, err = in.annotation(*t.FromAnnotation)
	}
	if err == nil && !macPattern.MatchString(mac) {
		err = fmt.Errorf("macAddress %q is not six pairs of hexadecimal digits", mac)
	}
	return mac, err
}

// annotation is the value of an annotation, which must be there.
func (in Input) annotation(r v1beta2.AnnotationReference) (string, error) {
	o, err := in.object(r.Object)
	if err != nil {
		return "", err
	}
	value := o.GetAnnotations()[r.Annotation]
	if value == "" {
		return "", fmt.Errorf("%s %s has no annotation %s", r.Object, o.GetName(), r.Annotation)
	}
	return value, nil
}

// networks are static ones, those by DHCP, and those by router advertisements, IPv4 before IPv6.
func (in Input) networks(t v1beta2.Networks) ([]fields, error) {
	all := []fields{}
	for _, list := range []struct {
		kind string
		bits int
		of   []v1beta2.StaticNetwork
	}{{"ipv4", 32, t.IPv4}, {"ipv6", 128, t.IPv6}} {
		for _, s := range list.of {
			n, err := in.network(s.Network, list.kind, list.bits)
			if err != nil {
				return nil, err
			}
			pool, err := in.staticPool(s)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.ID, err)
			}
			a, err := in.address(pool)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.ID, err)
			}
			n["ip_address"], n["netmask"] = a.Address, netmask(a.Prefix, list.bits)
			all = append(all, n)
		}
	}
	for _, list := range []struct {
		kind string
		bits int
		of   []v1beta2.Network
	}{{"ipv4_dhcp", 32, t.IPv4DHCP}, {"ipv6_dhcp", 128, t.IPv6DHCP}, {"ipv6_slaac", 128, t.IPv6SLAAC}} {
		for _, d := range list.of {
			n, err := in.network(d, list.kind, list.bits)
			if err != nil {
				return nil, err
			}
			all = append(all, n)
		}
	}
	return all, nil
}

func (in Input) network(t v1beta2.Network, kind string, bits int) (fields, error) {
	routes := []fields{}
	for i, r := range t.Routes {
		gateway, err := in.gateway(r.Gateway)
		if err != nil {
			return nil, fmt.Errorf("%s: routes[%d]: %w", t.ID, i, err)
		}
		services, err := in.services(r.Services)
		if err != nil {
			return nil, fmt.Errorf("%s: routes[%d]: %w", t.ID, i, err)
		}
		routes = append(routes, fields{
			"network":  r.Network,
			"netmask":  netmask(r.Prefix, bits),
			"gateway":  gateway,
			"services": services,
		})
	}
	return fields{"type": kind, "id": t.ID, "link": t.Link, "routes": routes}, nil
}

// staticPool is the pool of a static network.
func (in Input) staticPool(s v1beta2.StaticNetwork) (Pool, error) {
	switch {
	case s.FromPoolAnnotation != nil:
		name, err := in.annotation(*s.FromPoolAnnotation)
		return NewPool("", "", name), err
	case s.FromPoolRef != nil:
		return NewPool(s.FromPoolRef.APIGroup, s.FromPoolRef.Kind, s.FromPoolRef.Name), nil
	}
	return NewPool("", "", s.IPAddressFromIPPool), nil
}

// gatewayPool is the pool whose gateway is meant; false if none is.
func (in Input) gatewayPool(g v1beta2.Gateway) (Pool, bool, error) {
	switch {
	case g.String != nil:
	case g.FromPoolAnnotation != nil:
		name, err := in.annotation(*g.FromPoolAnnotation)
		return NewPool("", "", name), true, err
	case g.FromPoolRef != nil:
		return NewPool(g.FromPoolRef.APIGroup, g.FromPoolRef.Kind, g.FromPoolRef.Name), true, nil
	case g.FromIPPool != nil:
		return NewPool("", "", *g.FromIPPool), true, nil
	}
	return Pool{}, false, nil
}

func (in Input) gateway(g v1beta2.Gateway) (string, error) {
	pool, of, err := in.gatewayPool(g)
	if err != nil {
		return "", err
	}
	if !of {
		if g.String == nil {
			return "", nil
		}
		return *g.String, nil
	}
	a, err := in.address(pool)
	return a.Gateway, err
}

func (in Input) services(t v1beta2.NetworkServices) ([]fields, error) {
	all := []fields{}
	servers := append([]string{}, t.DNS...)
	if t.DNSFromIPPool != nil {
		a, err := in.address(NewPool("", "", *t.DNSFromIPPool))
		if err != nil {
			return nil, err
		}
		servers = append(servers, a.DNSServers...)
	}
	for _, s := range servers {
		all = append(all, fields{"type": "dns", "address": s})
	}
	return all, nil
}

// netmask is the mask of a prefix in the notation of its addresses; "" for no prefix.
func netmask(prefix int32, bits int) string {
	if prefix == 0 {
		return ""
	}
	return net.IP(net.CIDRMask(int(prefix), bits)).String()
}

// Pools are all pools that a template refers to, each once, in the order in which it does.
func Pools(t v1beta2.Metal3DataTemplateSpec, in Input) ([]Pool, error) {
	var all []Pool
	seen := map[Pool]bool{}
	add := func(p Pool) {
		if p.Name != "" && !seen[p] {
			seen[p] = true
			all = append(all, p)
		}
	}

	if m := t.MetaData; m != nil {
		for _, list := range [][]v1beta2.FromPool{
			m.IPAddressesFromPool, m.PrefixesFromPool, m.GatewaysFromPool, m.DNSServersFromPool,
		} {
			for _, f := range list {
				add(NewPool(f.APIGroup, f.Kind, f.Name))
			}
		}
	}
	if n := t.NetworkData; n != nil {
		if err := in.addNetworkPools(n, add); err != nil {
			return nil, err
		}
	}
	return all, checkNames(all)
}

func (in Input) addNetworkPools(n *v1beta2.NetworkData, add func(Pool)) error {
	addServices := func(s v1beta2.NetworkServices) {
		if s.DNSFromIPPool != nil {
			add(NewPool("", "", *s.DNSFromIPPool))
		}
	}
	var networks []v1beta2.Network
	for _, list := range [][]v1beta2.StaticNetwork{n.Networks.IPv4, n.Networks.IPv6} {
		for _, s := range list {
			p, err := in.staticPool(s)
			if err != nil {
				return fmt.Errorf("networkData.networks: %s: %w", s.ID, err)
			}
			add(p)
			networks = append(networks, s.Network)
		}
	}
	for _, list := range [][]v1beta2.Network{n.Networks.IPv4DHCP, n.Networks.IPv6DHCP, n.Networks.IPv6SLAAC} {
		networks = append(networks, list...)
	}
	for _, network := range networks {
		for _, r := range network.Routes {
			p, of, err := in.gatewayPool(r.Gateway)
			if err != nil {
				return fmt.Errorf("networkData.networks: %s: %w", network.ID, err)
			}
			if of {
				add(p)
			}
			addServices(r.Services)
		}
	}
	addServices(n.Services)
	return nil
}

// checkNames refuses two pools of one name: their claims would be called the same.
func checkNames(all []Pool) error {
	names := map[string]Pool{}
	for _, p := range all {
		if other, taken := names[p.Name]; taken {
			return fmt.Errorf("pools %s %s and %s %s have one name; rename one", other.Kind, other.Name, p.Kind, p.Name)
		}
		names[p.Name] = p
	}
	return nil
}
