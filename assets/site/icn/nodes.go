package icn

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// nodesJSON carries over the servers of a nodes.json.
func (im *importer) nodesJSON(file string, doc value) error {
	before := len(im.notes)
	im.noteUnknownKeys(file, doc, "", "nodes")
	for i, n := range doc.get("nodes").items {
		if err := im.importNode(file, n, fmt.Sprintf("nodes[%d]", i)); err != nil {
			return err
		}
	}

	if len(doc.get("nodes").items) == 0 {
		im.addNote(file, doc.line, "nodes", "there is no server in this file")
	} else {
		im.addNote(file, 0, "rootDevice", "ICN installed on any disk of 48 GB or more; here a node with more than one disk needs a rootDevice that names one")
	}

	sortNotes(im.notes[before:])
	return nil
}

// noteUnknownKeys notes the keys of v that are not among the known ones.
func (im *importer) noteUnknownKeys(file string, v value, path string, known ...string) {
	for i, k := range v.keys {
		found := false
		for _, name := range known {
			found = found || k == name
		}
		if !found {
			im.addNote(
				file, v.items[i].line, strings.TrimPrefix(path+"."+truncate(k), "."),
				"not a key of ICN; look for its place in docs/site.md",
			)
		}
	}
}

func newNode(name string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	set(n, name, "name")
	return n
}

func (im *importer) addNode(n *yaml.Node) {
	for i := 0; i < len(im.doc.Content); i += 2 {
		if im.doc.Content[i].Value == "nodes" {
			im.doc.Content[i+1].Content = append(im.doc.Content[i+1].Content, n)
			return
		}
	}
	put(im.doc, &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: []*yaml.Node{n}}, "nodes")
}

// nodeName makes a host name of a name in nodes.json, telling when it had to be changed.
func (im *importer) nodeName(file string, line int, subject, name string) string {
	fixed := strings.Trim(regexp.MustCompile(`[^a-z0-9-]+`).ReplaceAllString(strings.ToLower(name), "-"), "-")
	if len(fixed) > 63 {
		fixed = strings.Trim(fixed[:63], "-")
	}

	if fixed != name {
		im.addNote(file, line, subject, "%s is not a host name; carried over as %q", truncate(name), fixed)
	}

	return fixed
}

func (im *importer) importNode(file string, v value, path string) error {
	im.noteUnknownKeys(file, v, path, "name", "ipmi_driver_info", "os", "net")
	name := v.get("name")
	n := newNode(im.nodeName(file, name.line, path+".name", name.text))
	ipmi := v.get("ipmi_driver_info")
	im.noteUnknownKeys(file, ipmi, path+".ipmi_driver_info", "username", "password", "address")
	links := im.importLinks(file, v.get("net"), path+".net")
	boot, macs := provisioningMAC(v.get("net")), allMACs(v.get("net"))
	if len(macs) > 0 {
		put(n, list(macs...), "macs")
	}

	if boot != "" {
		set(n, boot, "bootMAC")
	}

	if a := ipmi.get("address"); a.word {
		set(n, "ipmi://"+a.text, "bmc", "address")
		for _, key := range []string{"username", "password"} {
			if c := ipmi.get(key); c.word {
				set(n, c.text, "bmc", key)
			}
		}
	}

	os := v.get("os")
	im.noteUnknownKeys(file, os, path+".os", "image_name", "username", "password")
	if image := os.get("image_name"); image.word && image.text != "" {
		im.addNote(
			file, image.line, path+".os.image_name",
			"ICN read %s and did not use it, every node got one image; write os.image, or os.url and os.sha256",
			truncate(image.text),
		)
	}

	if user := os.get("username"); user.word && user.text != "" {
		set(n, user.text, "os", "username")
	}

	if password := os.get("password"); password.word && password.text != "" {
		hashed, err := hash(password.text, name.text)
		if err != nil {
			return err
		}
		set(n, hashed, "os", "password")
	}

	if len(links) > 0 {
		put(n, &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: links}, "links")
	}

	im.addNode(n)
	return nil
}

// provisioningMAC is the MAC of the NIC that ICN's convention calls provisioning_nic.
func provisioningMAC(net value) string {
	for _, l := range net.get("links").items {
		if strings.HasPrefix(l.get("id").text, "provisioning") {
			return l.get("ethernet_mac_address").text
		}
	}
	return ""
}

func allMACs(net value) []string {
	var macs []string
	for _, l := range net.get("links").items {
		if mac := l.get("ethernet_mac_address").text; mac != "" && (l.get("type").text == "phy" || l.get("type").text == "") {
			macs = append(macs, mac)
		}
	}
	return macs
}

// importLinks makes the links of a node from OpenStack network data: each network becomes a
// link, and so does each physical link that no network and no bond uses.
func (im *importer) importLinks(file string, net value, path string) []*yaml.Node {
	im.noteUnknownKeys(file, net, path, "links", "networks", "services")
	byID := map[string]value{}
	used := map[string]bool{}
	for _, l := range net.get("links").items {
		byID[l.get("id").text] = l
		for _, member := range l.get("bond_links").items {
			used[member.text] = true
		}
		if l.get("type").text == "vlan" {
			used[l.get("vlan_link").text] = true
		}
	}

	var links []*yaml.Node
	for i, n := range net.get("networks").items {
		at := fmt.Sprintf("%s.networks[%d]", path, i)
		id := n.get("link").text
		l, ok := byID[id]
		switch {
		case !ok:
			im.addNote(file, n.line, at+".link", "there is no link %s; add the link to the node's links", truncate(id))
			continue
		case used["network of "+id]:
			im.addNote(
				file, n.line, at,
				"link %s has a network already, and a link here has one address; add it by hand on the node",
				truncate(id),
			)
			continue
		}

		used[id], used["network of "+id] = true, true
		if out := im.attach(file, l, byID, id, at); out != nil {
			im.importAddress(file, n, out, at)
			links = append(links, out)
		}
	}

	for i, l := range net.get("links").items {
		id := l.get("id").text
		if used[id] {
			continue
		}
		if out := im.attach(file, l, byID, id, fmt.Sprintf("%s.links[%d]", path, i)); out != nil {
			set(out, "none", "address")
			links = append(links, out)
		}
	}

	for i, s := range net.get("services").items {
		at := fmt.Sprintf("%s.services[%d]", path, i)
		im.addNote(
			file, s.line, at, "services have no place in a node; resolvers are networks.ROLE.dns or dns of a link",
		)
	}

	return links
}

// networkRole maps ICN's link names to the roles of networks; ok is false for one without.
func networkRole(id string) (name string, ok bool) {
	switch {
	case strings.HasPrefix(id, "provisioning"):
		return "provisioning", true
	case strings.HasPrefix(id, "baremetal"), strings.HasPrefix(id, "private"):
		return "baremetal", true
	case strings.HasPrefix(id, "sriov"):
		return "data", true
	}
	return "", false
}

// attach makes a link with its network and NIC, nil if that cannot be.
func (im *importer) attach(file string, l value, byID map[string]value, id, path string) *yaml.Node {
	if strings.HasPrefix(id, "bootstrap") {
		im.addNote(
			file, l.line, path,
			"%s was the NIC of the bootstrap DHCP network, which does not exist here: its MAC is in macs, by which a Provisioning finds the node; it is reached by its other links",
			truncate(id),
		)
		return nil
	}

	network, ok := networkRole(id)
	if !ok {
		network = "data"
		im.addNote(
			file, l.line, path,
			"the name %s tells no role; carried over as data, correct network of that link if it is another",
			truncate(id),
		)
	}

	out := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	set(out, network, "network")
	if l.get("type").text == "vlan" {
		put(out, &yaml.Node{Kind: yaml.ScalarNode, Value: l.get("vlan_id").text}, "vlan")
		if below, ok := byID[l.get("vlan_link").text]; ok {
			l = below
		}
	}

	switch kind := l.get("type").text; kind {
	case "", "phy":
		set(out, l.get("ethernet_mac_address").text, "mac")
	case "bond":
		var macs []string
		for _, member := range l.get("bond_links").items {
			macs = append(macs, byID[member.text].get("ethernet_mac_address").text)
		}

		put(out, list(macs...), "bond", "macs")
		if mode := l.get("bond_mode").text; mode != "" {
			set(out, mode, "bond", "mode")
		}
	default:
		im.addNote(
			file, l.line, path, "links of type %s are not made; add the link to the node's links", truncate(kind),
		)
		return nil
	}

	return out
}

func (im *importer) importAddress(file string, n value, out *yaml.Node, path string) {
	switch kind := n.get("type").text; kind {
	case "ipv4_dhcp":
		set(out, "dhcp", "address")
		return
	case "ipv4", "ipv6":
		set(out, withLength(n.get("ip_address").text, n.get("netmask").text), "address")
	default:
		im.addNote(file, n.line, path+".type", "networks of type %s are not made; carried over as none", truncate(kind))
		set(out, "none", "address")
		return
	}

	if gateway := n.get("gateway").text; gateway != "" {
		set(out, gateway, "gateway")
	}

	var dns []string
	for _, d := range n.get("dns_nameservers").items {
		dns = append(dns, d.text)
	}

	if len(dns) > 0 {
		put(out, list(dns...), "dns")
	}
}

// withLength appends the length of a dotted mask to an address that has none.
func withLength(address, mask string) string {
	if strings.Contains(address, "/") || mask == "" {
		return address
	}

	bits := 0
	for part := range strings.SplitSeq(mask, ".") {
		var b int
		if _, err := fmt.Sscanf(part, "%d", &b); err != nil || b < 0 || b > 255 {
			return address
		}
		for ; b > 0; b &= b - 1 {
			bits++
		}
	}

	return fmt.Sprintf("%s/%d", address, bits)
}
