package address

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Static is an address that a NIC was given by the site.
type Static struct {
	Addr    netip.Addr
	Default bool // the default route goes this way
}

// networkData is what matters of OpenStack's network_data.json, which a host's system was
// configured by.
type networkData struct {
	Links []struct {
		ID        string   `json:"id"`
		MAC       string   `json:"ethernet_mac_address"`
		BondLinks []string `json:"bond_links"`
		VLANLink  string   `json:"vlan_link"`
		VLANMAC   string   `json:"vlan_mac_address"`
	} `json:"links"`
	Networks []struct {
		Link    string `json:"link"`
		Type    string `json:"type"`
		Address string `json:"ip_address"` // with or without its length
		Gateway string `json:"gateway"`
		Routes  []struct {
			Network string `json:"network"`
			Netmask string `json:"netmask"`
		} `json:"routes"`
	} `json:"networks"`
}

// ParseNetworkData returns the static addresses by MAC, in lower case with colons; a bond's
// by that of each of its NICs. Of several on one NIC the one with the default route counts,
// else the first.
func ParseNetworkData(text []byte) (map[string]Static, error) {
	var d networkData
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("read network data: %w", err)
	}

	all := map[string]Static{}
	for _, n := range d.Networks {
		if strings.HasSuffix(n.Type, "dhcp") || strings.HasSuffix(n.Type, "slaac") {
			continue
		}

		bare, _, _ := strings.Cut(n.Address, "/")
		addr, err := netip.ParseAddr(bare)
		if err != nil {
			continue
		}

		s := Static{Addr: addr, Default: n.Gateway != ""}
		for _, r := range n.Routes {
			s.Default = s.Default || r.Network == "0.0.0.0" || r.Network == "::" || strings.HasSuffix(r.Network, "/0")
		}

		for _, mac := range d.macs(n.Link, 0) {
			if had, ok := all[mac]; !ok || s.Default && !had.Default {
				all[mac] = s
			}
		}
	}

	return all, nil
}

// ParseLinked returns the MACs of the NICs that have a network, in lower case with colons; nil if there are none.
func ParseLinked(text []byte) ([]string, error) {
	var d networkData
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("read network data: %w", err)
	}

	var all []string
	for _, n := range d.Networks {
		all = append(all, d.macs(n.Link, 0)...)
	}

	slices.Sort(all)
	return slices.Compact(all), nil
}

// macs are the NICs below a link.
func (d *networkData) macs(link string, depth int) []string {
	var all []string
	for _, l := range d.Links {
		if l.ID != link || depth > 4 {
			continue
		}
		for _, mac := range []string{l.MAC, l.VLANMAC} {
			if mac != "" {
				all = append(all, strings.ToLower(mac))
			}
		}
		for _, below := range append(slices.Clone(l.BondLinks), l.VLANLink) {
			all = append(all, d.macs(below, depth+1)...)
		}
	}

	slices.Sort(all)
	return slices.Compact(all)
}
