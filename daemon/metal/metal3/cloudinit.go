package metal3

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/hostkey"
	"firstlight.dev/firstlight/assets/site"
)

// userData is cloud-init's configuration of a node (cloud-init, "Cloud config examples").
// It holds no password, only its hash, and no SSH host key, only the place of the one that the node's own ramdisk makes
// (package hostkey).
func userData(s *site.Site, n site.Node, a Appliance) (string, error) {
	keys := loginKeys(s, a)
	user := map[string]any{
		"name": n.OS.Username, "groups": []string{"sudo"}, "shell": "/bin/bash",
		"sudo": "ALL=(ALL) NOPASSWD:ALL", "ssh_authorized_keys": keys, "lock_passwd": true,
	}
	if !n.OS.Password.IsZero() {
		hash, err := a.Hash(n.OS.Password.Reveal())
		if err != nil {
			return "", err
		}
		user["lock_passwd"], user["hashed_passwd"] = false, hash
	}

	var files []any
	if script := wayOut(s, n); script != "" {
		files = append(files, map[string]any{"path": wayOutPath, "permissions": "0755", "content": script})
	}

	config := map[string]any{
		"hostname":                  string(n.Name),
		"fqdn":                      fmt.Sprintf("%s.%s", n.Name, s.Name),
		"prefer_fqdn_over_hostname": false,
		"manage_etc_hosts":          true,
		"users":                     []any{user},
		// Root logs in with the appliance's own key only (runcmd): the installers of clusters need it.
		"disable_root":   false,
		"ssh_pwauth":     !n.OS.Password.IsZero(),
		"ssh_deletekeys": true,
		"ssh_keys":       map[string]string{"ed25519_private": hostkey.Place()},
		"ntp":            map[string]any{"enabled": true, "ntp_client": "systemd-timesyncd", "servers": a.Time},
		"growpart":       map[string]any{"mode": "auto", "devices": []string{"/"}},
		"runcmd": []any{
			[]string{"install", "-d", "-m", "700", "/root/.ssh"},
			[]string{"sh", "-c", `printf '%s\n' "$0" >/root/.ssh/authorized_keys && chmod 600 /root/.ssh/authorized_keys`, a.Key},
		},
	}
	if files != nil {
		config["write_files"] = files
	}
	if commands := bootCommands(n); commands != nil {
		config["bootcmd"] = commands
	}

	out, err := yaml.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("encode: %w", err)
	}

	return "#cloud-config\n" + hostkey.Quote(string(out)), nil
}

// loginKeys are those of who may log in to a node: the appliance first.
func loginKeys(s *site.Site, a Appliance) []string {
	keys := []string{a.Key}
	for _, k := range s.Access.SSHKeys {
		keys = append(keys, string(k))
	}
	return keys
}

// Network data of OpenStack (nova's network_data.json, as cloud-init's ConfigDrive reads
// it): links by MAC, networks on them, resolvers.
type (
	netData struct {
		Links    []netLink    `json:"links"`
		Networks []netNetwork `json:"networks"`
		Services []netService `json:"services"`
	}
	netLink struct {
		ID         string   `json:"id"`
		Type       string   `json:"type"` // phy, bond, vlan
		MAC        string   `json:"ethernet_mac_address,omitempty"`
		MTU        int      `json:"mtu,omitempty"`
		BondLinks  []string `json:"bond_links,omitempty"`
		BondMode   string   `json:"bond_mode,omitempty"`
		BondMiimon int      `json:"bond_miimon,omitempty"`
		VLANLink   string   `json:"vlan_link,omitempty"`
		VLANID     int      `json:"vlan_id,omitempty"`
		VLANMAC    string   `json:"vlan_mac_address,omitempty"`
	}
	netNetwork struct {
		ID      string     `json:"id"`
		Link    string     `json:"link"`
		Type    string     `json:"type"` // ipv4, ipv6, ipv4_dhcp, ipv6_dhcp
		Address string     `json:"ip_address,omitempty"`
		Netmask string     `json:"netmask,omitempty"`
		Routes  []netRoute `json:"routes,omitempty"`
	}
	netRoute struct {
		Network string `json:"network"`
		Netmask string `json:"netmask"`
		Gateway string `json:"gateway"`
	}
	netService struct {
		Type    string `json:"type"`
		Address string `json:"address"`
	}
)

// networkData is the node's network as cloud-init reads it.
func networkData(s *site.Site, n site.Node) (string, error) {
	out, err := json.Marshal(nodeNetwork(s, n))
	return string(out), err
}

// nodeNetwork describes the node's links. A node without any asks DHCP on every NIC that
// the site names, which at least finds the provisioning network.
func nodeNetwork(s *site.Site, n site.Node) netData {
	links := n.Links
	if len(links) == 0 {
		for _, mac := range withBoot(n) {
			links = append(links, site.Link{MAC: mac, Address: site.LinkAddress{Method: "dhcp"}})
		}
	}

	data := netData{Links: []netLink{}, Networks: []netNetwork{}, Services: []netService{}}
	for i, l := range links {
		base := fmt.Sprintf("link%d", i)
		mac := l.MAC
		if l.Bond != nil {
			mac = l.Bond.MACs[0]
			bond := netLink{
				ID:         base,
				Type:       "bond",
				MAC:        string(mac),
				MTU:        l.MTU,
				BondMode:   l.Bond.Mode,
				BondMiimon: 100,
			}
			for j, m := range l.Bond.MACs {
				nic := fmt.Sprintf("%s-nic%d", base, j)
				data.Links = append(data.Links, netLink{ID: nic, Type: "phy", MAC: string(m), MTU: l.MTU})
				bond.BondLinks = append(bond.BondLinks, nic)
			}

			data.Links = append(data.Links, bond)
		} else if !slices.ContainsFunc(
			data.Links, func(o netLink) bool { return o.Type == "phy" && o.MAC == string(mac) },
		) {
			data.Links = append(data.Links, netLink{ID: base, Type: "phy", MAC: string(mac), MTU: l.MTU})
		} else { // two VLANs on one NIC
			base = data.Links[slices.IndexFunc(data.Links, func(o netLink) bool { return o.MAC == string(mac) })].ID
		}

		on := base
		if l.VLAN != 0 {
			on = fmt.Sprintf("%s-vlan%d", base, l.VLAN)
			data.Links = append(
				data.Links,
				netLink{
					ID:       on,
					Type:     "vlan",
					VLANLink: base,
					VLANID:   l.VLAN,
					VLANMAC:  string(mac),
					MTU:      l.MTU,
				},
			)
		}

		switch l.Address.Method {
		case "dhcp":
			family := "ipv4_dhcp"
			if s.LeasesIPv6(n, l) {
				family = "ipv6_dhcp"
			}
			data.Networks = append(data.Networks, netNetwork{ID: fmt.Sprintf("net%d", i), Link: on, Type: family})
		case "static":
			data.Networks = append(data.Networks, staticNetwork(i, on, l))
		}

		for _, d := range l.DNS {
			if s := (netService{"dns", d.String()}); !slices.Contains(data.Services, s) {
				data.Services = append(data.Services, s)
			}
		}
	}

	return data
}

func withBoot(n site.Node) []site.MAC {
	if n.BootMAC == "" || slices.Contains(n.MACs, n.BootMAC) {
		return n.MACs
	}
	return append([]site.MAC{n.BootMAC}, n.MACs...)
}

func staticNetwork(i int, link string, l site.Link) netNetwork {
	p := l.Address.Prefix
	net := netNetwork{
		ID:      fmt.Sprintf("net%d", i),
		Link:    link,
		Type:    "ipv4",
		Address: p.Addr().String(),
		Netmask: netmask(p),
	}
	any := "0.0.0.0"
	if p.Addr().Is6() {
		net.Type, any = "ipv6", "::"
	}

	if l.Gateway.IsValid() {
		net.Routes = []netRoute{{Network: any, Netmask: any, Gateway: l.Gateway.String()}}
	}

	return net
}

func netmask(p netip.Prefix) string {
	return net.IP(net.CIDRMask(p.Bits(), p.Addr().BitLen())).String()
}

func list(images map[string]Image) string {
	return cmp.Or(strings.Join(slices.Sorted(maps.Keys(images)), ", "), "none")
}
