package icn

import (
	"cmp"
	"net/netip"
	"strings"
)

// userConfig carries over the variables that ICN's user_config.sh had in any of its
// generations, and those of its environment that people put there.
func (im *importer) userConfig(f *File) error {
	var variables []variable
	if f == nil {
		f = &File{Name: environmentFile}
	} else {
		var err error
		if variables, err = im.readShell(f); err != nil {
			return err
		}
	}

	variables = im.addEnvironment(variables)
	c := &config{importer: im, file: f.Name, vars: map[string]variable{}}
	for _, v := range variables {
		if v.value != "" {
			c.vars[v.name] = v
		}
	}

	c.importProvisioning()
	c.importOuterNetworks()
	if err := c.computeNode(); err != nil {
		return err
	}

	if v, ok := c.pop("POD_NETWORK_CIDR"); ok {
		set(im.doc, v.value, "appliance", "podCIDR")
	}

	for _, v := range variables {
		if _, left := c.vars[v.name]; left && !(v.isUsed && droppedReason(v.name) == unknownVariable) {
			im.addNote(f.Name, v.line, truncate(v.name), "%s", droppedReason(v.name))
		}
	}

	sortNotes(im.notes)
	return nil
}

type config struct {
	*importer
	file string
	vars map[string]variable // not carried over yet
}

func (c *config) pop(name string) (variable, bool) {
	v, ok := c.vars[name]
	delete(c.vars, name)
	return v, ok
}

func (c *config) noteVariable(v variable, format string, args ...any) {
	file := c.file
	if v.line == 0 {
		file = environmentFile
	}
	c.addNote(file, v.line, v.name, format, args...)
}

func (c *config) importProvisioning() {
	p := []string{"networks", "provisioning"}
	if v, ok := c.pop("IRONIC_INTERFACE"); ok {
		set(c.doc, v.value, append(p, "interface")...)
	}

	if v, ok := c.pop("IRONIC_PROVISIONING_INTERFACE_IP"); ok {
		if a, cidr, ok := bareAddr(v.value); ok {
			set(c.doc, cidr.String(), append(p, "cidr")...)
			set(c.doc, a.String(), append(p, "address")...)
			if !strings.Contains(v.value, "/") {
				c.noteVariable(v, "taken as an address of %s because its length is not given; correct networks.provisioning.cidr if that is wrong", cidr)
			}
		} else {
			c.noteVariable(v, "not an address; write networks.provisioning.address")
		}
	}

	if v, ok := c.pop("DHCP_RANGE"); ok {
		parts := strings.Split(v.value, ",")
		if len(parts) >= 2 {
			set(c.doc, parts[0]+"-"+parts[1], append(p, "dhcp", "range")...)
		} else {
			c.noteVariable(v, "not FIRST,LAST; write networks.provisioning.dhcp.range")
		}
	}

	if v, ok := c.pop("IRONIC_ENABLE_DHCP"); ok {
		switch strings.ToLower(v.value) {
		case "yes", "true":
			set(c.doc, "server", append(p, "dhcp", "mode")...)
		case "no", "false":
			set(c.doc, "none", append(p, "dhcp", "mode")...)
			c.noteVariable(v, "carried over as mode none; virtual media is not used here, so another DHCP server must point the nodes at the appliance")
		default:
			c.noteVariable(v, "neither yes nor no; write networks.provisioning.dhcp.mode")
		}
	}
}

// importOuterNetworks carries over the LAN of the BMCs and the provider network, which ICN allowed to
// be one: then it becomes baremetal, through which BMCs are reached as well.
func (c *config) importOuterNetworks() {
	nic, hasNIC := c.pop("IRONIC_IPMI_INTERFACE")
	ip, hasIP := c.pop("IRONIC_IPMI_INTERFACE_IP")
	gw, hasGW := c.pop("PROVIDER_NETWORK_GATEWAY")
	address, bmc, ok := bareAddr(ip.value)
	if hasIP && !ok {
		c.noteVariable(ip, "not an address; write networks.bmc.address and networks.bmc.cidr")
		hasIP = false
	}

	gateway, err := netip.ParseAddr(gw.value)
	if hasGW && err != nil {
		c.noteVariable(gw, "not an address; write networks.baremetal.gateway")
		hasGW = false
	}

	if network, found := c.rack.providerNetwork(address); hasIP && found && !strings.Contains(ip.value, "/") {
		bmc, ip.value = network, network.String() // the servers say how long it is
	}

	role := "bmc"
	switch {
	case hasIP && hasGW && bmc.Contains(gateway):
		role = "baremetal"
		c.noteVariable(ip, "the provider network's gateway %s is in its network: taken as one network, baremetal, through which the BMCs are reached", gateway)
	case (hasIP || hasNIC) && c.rack.isMerged(address):
		role = "baremetal"
		c.noteVariable(cmp.Or(nic, ip), "the servers have their own addresses in the network of the BMCs: taken as one network, baremetal, through which the BMCs are reached")
	}

	if hasNIC || hasIP {
		c.outerRole, c.outer = role, bmc
	}

	if hasNIC {
		set(c.doc, nic.value, "networks", role, "interface")
	}

	if hasIP {
		set(c.doc, bmc.String(), "networks", role, "cidr")
		set(c.doc, address.String(), "networks", role, "address")
		if !strings.Contains(ip.value, "/") {
			c.noteVariable(
				ip,
				"taken as an address of %s because its length is not given; correct networks.%s.cidr if that is wrong",
				bmc, role,
			)
		}
	}

	if hasGW {
		if role == "bmc" {
			cidr := networkOf(gateway)
			set(c.doc, cidr.String(), "networks", "baremetal", "cidr")
			c.noteVariable(
				gw,
				"taken as a router of %s because its length is not given; correct networks.baremetal.cidr if that is wrong",
				cidr,
			)
		}
		set(c.doc, gateway.String(), "networks", "baremetal", "gateway")
	}

	if v, ok := c.pop("PROVIDER_NETWORK_DNS"); ok {
		put(
			c.doc, list(strings.FieldsFunc(v.value, func(r rune) bool { return r == ' ' || r == ',' })...), "networks",
			"baremetal", "dns",
		)
	}
}

// computeNode carries over the one node that the oldest generation had in its environment.
func (c *config) computeNode() error {
	name, ok := c.pop("COMPUTE_NODE_NAME")
	if !ok {
		return nil
	}

	n := newNode(c.nodeName(c.file, name.line, "COMPUTE_NODE_NAME", name.value))
	if v, ok := c.pop("COMPUTE_IPMI_ADDRESS"); ok {
		set(n, "ipmi://"+v.value, "bmc", "address")
		for _, credential := range [][2]string{{"COMPUTE_IPMI_USER", "username"}, {"COMPUTE_IPMI_PASSWORD", "password"}} {
			if v, ok := c.pop(credential[0]); ok {
				set(n, v.value, "bmc", credential[1])
			}
		}
	}

	if v, ok := c.pop("COMPUTE_NODE_PASSWORD"); ok {
		hashed, err := hash(v.value, name.value)
		if err != nil {
			return err
		}
		set(n, hashed, "os", "password")
	}

	c.addNode(n)
	return nil
}

const unknownVariable = "not a variable of ICN; look for its place in docs/site.md"

// droppedReason says why a variable has no place in a site and what to do about it.
func droppedReason(name string) string {
	switch name {
	case "BS_DHCP_INTERFACE", "BS_DHCP_INTERFACE_IP":
		return "there is no bootstrap DHCP network of its own: nodes get their addresses on provisioning, or on baremetal when networks.baremetal.dhcp.range is given; a Provisioning that names a node by its NIC there finds it, if the NIC's MAC is in macs"
	case "DOCKER_REGISTRY_MIRRORS":
		return "no registry is used, every container image is on the stick; nothing to do"
	case "IRONIC_PROVISIONING_INTERFACE":
		return "the bridge is always called provisioning; nothing to do"
	case "BM_IMAGE", "BM_IMAGE_URL":
		return "an image needs its digest; write os.url and os.sha256 of the nodes, or leave the stick's own image"
	case "COMPUTE_NODE_FQDN":
		return "the host name is the node's name, the domain comes from the network; nothing to do"
	case "KUBE_VERSION", "KUBESPRAY_VERSION", "CONTAINER_RUNTIME":
		return "versions come with the stick; nothing to do"
	case "DOWNLOAD_PATH", "LOCAL_APT_REPO", "PIP_CACHE_DIR", "BUILD_DIR", "CONTAINER_IMAGES_DIR", "BS_DHCP_DIR", "IRONIC_DATA_DIR", "NODES_FILE":
		return "a directory of the jump host, which the appliance does not have; nothing to do"
	}
	if strings.HasPrefix(name, "COMPUTE_") {
		return "it belongs to a node, but COMPUTE_NODE_NAME or COMPUTE_IPMI_ADDRESS is missing; add the node to nodes"
	}
	return unknownVariable
}
