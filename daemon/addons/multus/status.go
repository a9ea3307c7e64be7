package multus

import (
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

// NetworkStatus is one interface in the annotation StatusKey (De-facto Standard v1.3, 4.2).
type NetworkStatus struct {
	Name      string    `json:"name"`
	Interface string    `json:"interface,omitempty"`
	IPs       []string  `json:"ips,omitempty"`
	MAC       string    `json:"mac,omitempty"`
	MTU       int       `json:"mtu,omitempty"`
	Default   bool      `json:"default,omitempty"`
	DNS       types.DNS `json:"dns"`
	Gateways  []string  `json:"gateway,omitempty"`
}

// networkStatus says what an attachment came to.
func networkStatus(a Attachment, result types.Result) (NetworkStatus, error) {
	s := NetworkStatus{Name: a.Network, Interface: a.Interface, Default: a.IsDefault, Gateways: a.DefaultRoute}
	r, err := current.NewResultFromResult(result)
	if err != nil {
		return s, err
	}

	s.DNS = r.DNS
	own := -1
	for i, link := range r.Interfaces {
		if link.Sandbox != "" && (own < 0 || link.Name == a.Interface) {
			own = i
		}
	}
	if own >= 0 {
		s.Interface, s.MAC, s.MTU = r.Interfaces[own].Name, r.Interfaces[own].Mac, r.Interfaces[own].Mtu
	}
	for _, ip := range r.IPs {
		if ip.Interface == nil || *ip.Interface == own || own < 0 {
			s.IPs = append(s.IPs, ip.Address.IP.String())
		}
	}
	return s, nil
}
