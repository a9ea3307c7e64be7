package ovn4nfv

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Request is one interface that a pod asks for.
type Request struct {
	Network        string     // name of a Network or ProviderNetwork
	Interface      string     // its name in the pod
	DefaultGateway bool       // whether the pod's default route is by it
	Address        netip.Addr // zero for any
	MAC            string     // "" for any
	Gateway        netip.Addr // of the default route; zero for the network's
}

// Interface is one that a pod has, in the annotation InterfacesKey. Fields are upstream's.
type Interface struct {
	Addresses      []string `json:"ip_address"` // each with the length of its prefix
	MAC            string   `json:"mac_address"`
	Gateways       []string `json:"gateway_ip"`
	DefaultGateway string   `json:"defaultGateway,omitempty"` // true or false
	Interface      string   `json:"interface"`
	Network        string   `json:"network,omitempty"` // NAMESPACE/NAME; upstream has no such field
}

// asString is a text, or a boolean that was meant as one.
type asString string

// UnmarshalJSON is of json.Unmarshaler.
func (s *asString) UnmarshalJSON(text []byte) error {
	var plain string
	if err := json.Unmarshal(text, &plain); err == nil {
		*s = asString(plain)
		return nil
	}
	var is bool
	if err := json.Unmarshal(text, &is); err != nil {
		return err
	}
	*s = asString(fmt.Sprint(is))
	return nil
}

// ParseRequests reads the annotation NetworkKey. Interfaces are in the order that is asked for.
func ParseRequests(text string) (all []Request, err error) {
	fault := func(format string, a ...any) ([]Request, error) {
		return nil, fmt.Errorf("annotation "+NetworkKey+": "+format, a...)
	}
	var list struct {
		Type      string `json:"type"`
		Interface []struct {
			Name           string   `json:"name"`
			Interface      string   `json:"interface"`
			DefaultGateway asString `json:"defaultGateway"`
			Address        string   `json:"ipAddress"`
			MAC            string   `json:"macAddress"`
			Gateway        string   `json:"gwipaddress"`
		} `json:"interface"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return fault("%w", err)
	}
	if list.Type != cniType {
		return fault("type %q is not %s", list.Type, cniType)
	}

	seen := map[string]bool{}
	for i, one := range list.Interface {
		r := Request{Network: one.Name, Interface: one.Interface}
		at := fmt.Sprintf("interface %d", i+1)
		switch {
		case one.Name == "":
			return fault("%s: it has no name of a network", at)
		case !isInterfaceName(one.Interface):
			return fault("%s: %q is no name of an interface; give it one such as net0, with up to 15 characters",
				at, one.Interface)
		case one.Interface == "eth0" || one.Interface == "lo" || seen[one.Interface]:
			return fault("%s: %s is in use; give it another name", at, one.Interface)
		}
		seen[one.Interface] = true

		switch one.DefaultGateway {
		case "true":
			r.DefaultGateway = true
		case "", "false":
		default:
			return fault("%s: defaultGateway %q is neither true nor false", at, one.DefaultGateway)
		}
		if r.Address, err = parseAddress(one.Address); err != nil {
			return fault("%s: ipAddress: %w", at, err)
		}
		if r.Gateway, err = parseAddress(one.Gateway); err != nil {
			return fault("%s: gwipaddress: %w", at, err)
		}
		if one.MAC != "" {
			mac, err := net.ParseMAC(one.MAC)
			if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
				return fault("%s: macAddress: %q is no MAC of an interface; write 02:00:00:00:00:07", at, one.MAC)
			}
			r.MAC = mac.String()
		}
		all = append(all, r)
	}
	return all, nil
}

// parseAddress reads an address, of which the length of its prefix does not count. Empty is zero.
func parseAddress(text string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	plain, _, _ := strings.Cut(text, "/")
	a, err := netip.ParseAddr(plain)
	if err != nil || !a.Is4() {
		return a, fmt.Errorf("%q is no IPv4 address", text)
	}
	return a, nil
}

// isInterfaceName reports whether the kernel takes a name.
func isInterfaceName(name string) bool {
	return name != "" && len(name) <= 15 && name != "." && name != ".." && !strings.ContainsAny(name, "/: \t\n*")
}

// ParseInterfaces reads the annotation InterfacesKey.
func ParseInterfaces(text string) (all []Interface, err error) {
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", InterfacesKey, err)
	}
	for _, i := range all {
		if _, err := i.prefix(); err != nil || !isInterfaceName(i.Interface) || i.MAC == "" {
			return nil, fmt.Errorf("annotation %s: interface %q is not as the operator writes it", InterfacesKey, i.Interface)
		}
	}
	return all, nil
}

// prefix is the interface's address.
func (i Interface) prefix() (netip.Prefix, error) {
	if len(i.Addresses) != 1 {
		return netip.Prefix{}, fmt.Errorf("%d addresses", len(i.Addresses))
	}
	return netip.ParsePrefix(i.Addresses[0])
}

// portName is that of an interface's port in OVN, as upstream's.
func portName(namespace, pod, device string) string { return namespace + "_" + pod + "_" + device }
