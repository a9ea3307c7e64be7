package firewall

// Place is the addresses that a listener is bound to.
type Place string

// Places. A listener may still be reached at fewer of them: its networks say from where.
const (
	Everywhere     Place = "all addresses"
	OnDevice       Place = "the interface of each network that it serves"
	OnProvisioning Place = "the address on provisioning"
	WhereSupplied  Place = "the addresses on provisioning and baremetal"
	OnReached      Place = "the addresses on the networks that it is reached from"
	OnAllowed      Place = "loopback, and the addresses on networks that the site allows"
	OnDiscs        Place = "the address on the BMCs' network, if a node boots from a disc"
	OnLoopback     Place = "loopback"
)

// Networks of the list. Those of the site have a bridge of the same name.
const (
	provisioning = "provisioning"
	bmc          = "bmc"
	baremetal    = "baremetal"

	// owner is the network that people and their programs come from: baremetal, or bmc if the site names no
	// baremetal network, because then it is the only way in besides provisioning.
	owner = "the owner's"

	// bmcs is the network from which BMCs ask for the discs of their nodes; none, if no node boots from one.
	bmcs = "the BMCs'"
)

// Listener is one port on which something on the appliance answers.
type Listener struct {
	Name     string // one word; those that a site may allow elsewhere have it in site.yaml
	Protocol string // tcp or udp
	Port     uint16
	At       Place
	Networks []string // from where it is reached; none: from the appliance and its pods alone
	Who      string   // who may ask what
	Known    string   // how it is known who asks, and what bounds those who are not
}

// Listeners are all ports of the appliance. The packet filter is made from this list, docs/security.md shows it, and
// tests find a listener that is not on it.
func Listeners() []Listener {
	return []Listener{
		{"ssh", "tcp", 22, Everywhere, []string{provisioning, owner},
			"root", "SSH keys of the site; without any it does not run"},
		{"dhcp", "udp", 67, OnDevice, []string{provisioning, bmc, baremetal},
			"every machine: an address, on bmc and baremetal if the site says so", "not known; bounded per MAC"},
		{"dhcpv6", "udp", 547, OnDevice, []string{provisioning},
			"every machine: an address, if the network is of IPv6", "not known; bounded per MAC"},
		{"pxe", "udp", 4011, OnDevice, []string{provisioning},
			"every machine: the name of its boot program", "not known"},
		{"tftp", "udp", 69, OnDevice, []string{provisioning},
			"every machine: boot programs", "not known; bounded per address"},
		{"boot", "tcp", 6180, WhereSupplied, []string{provisioning, baremetal},
			"every machine: scripts, images, packages; no scripts and no images on baremetal",
			"by the lease of its address; bounded per address, half of the room is kept for nodes of the site"},
		{"discs", "tcp", 6181, OnDiscs, []string{bmcs},
			"BMCs, each the disc of its node, with the token of its boot", "by the address of the BMC; bounded per address"},
		{"registry", "tcp", 5000, WhereSupplied, []string{provisioning, baremetal},
			"every machine reads the stick's images, nodes those of their owner; the appliance writes",
			"reading: by address, bounded for each; writing: client certificate"},
		{"ironic", "tcp", 6385, OnProvisioning, []string{provisioning},
			"agents of booted machines, three routes of Ironic's API",
			"token of the boot, with its lease, or its address in the site; bounded per address"},
		{"kubernetes", "tcp", 6443, OnProvisioning, nil,
			"programs and pods of the appliance; workstations, by SSH", "certificates and tokens, rights by RBAC"},
		{"kubelet", "tcp", 10250, OnProvisioning, nil,
			"the API server", "client certificate, rights by RBAC"},
		{"uploads", "tcp", 9015, Everywhere, []string{provisioning, owner},
			"users of the upload API", "token or client certificate, rights by RBAC; bounded per address"},
		{"s3", "tcp", 9000, Everywhere, []string{provisioning, owner},
			"users of uploads by S3, if the site says so", "signature with a minted key, rights by RBAC; bounded per address"},
		{"page", "tcp", 443, OnReached, []string{baremetal},
			"people with a browser: they see, and do what their role may",
			"code of `firstlightd login`, then a session's cookie, rights by RBAC; bounded per address"},
		{"time", "udp", 123, WhereSupplied, []string{provisioning, baremetal},
			"every machine: the time", "not known; an answer is as long as its question"},
		{"ironic-api", "tcp", 6385, OnLoopback, nil, "programs of the appliance", "password, drawn for each appliance"},
		{"ironic-conductor", "tcp", 8089, OnLoopback, nil, "Ironic's API", "password, drawn for each appliance"},
		{"standin-bmc", "tcp", 6187, OnLoopback, nil, "Ironic, about nodes without a BMC", "password, drawn for each appliance"},
		{"bmc-forwarder", "tcp", 6188, OnLoopback, nil, "Ironic, on its way to BMCs and agents", "not known; a BMC wants its own password"},
		{"bpa-health", "tcp", 8384, OnLoopback, nil, "the kubelet's probe", "not known"},
		{"kpa-health", "tcp", 8385, OnLoopback, nil, "the kubelet's probe", "not known"},
		{"metrics", "tcp", 9100, OnAllowed, nil, "readers of metrics on the appliance, and of networks that the site allows",
			"not known; bounded per address"},
		{"etcd", "tcp", 2379, OnLoopback, nil, "the API server", "client certificate"},
		{"etcd-peers", "tcp", 2380, OnLoopback, nil, "other members; there are none", "client certificate"},
		{"etcd-metrics", "tcp", 2381, OnLoopback, nil, "the kubelet's probe", "not known"},
		{"kubelet-health", "tcp", 10248, OnLoopback, nil, "the kubelet's own check", "not known"},
		{"kube-proxy", "tcp", 10249, OnLoopback, nil, "readers of metrics on the appliance", "not known"},
		{"kube-proxy-health", "tcp", 10256, OnLoopback, nil, "the kubelet's probe", "not known"},
		{"controller-manager", "tcp", 10257, OnLoopback, nil, "the kubelet's probe", "tokens"},
		{"scheduler", "tcp", 10259, OnLoopback, nil, "the kubelet's probe", "tokens"},
	}
}
