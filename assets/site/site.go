// Package site is the one input document of an appliance: what the owner wants of the
// rack. It reads site.yaml strictly, names every mistake at once with its line, fills in
// defaults, publishes a JSON Schema and writes the document back with its secrets hidden.
//
// The structs of this file are the single source: the parser, the schema and the
// reference table of docs/site.md are made from their tags.
//
// The package does no input or output of its own; it reads bytes and returns values.
package site

import (
	"net/netip"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// MaxSize is the largest document that is read, in bytes.
const MaxSize = yamldoc.MaxSize

// Site is the whole document. The zero value is a valid site: an appliance that detects
// its networks and inspects whatever boots from it.
type Site struct {
	Name         Name         `yaml:"name" default:"firstlight" doc:"Name of the site, shown on the console and in every report."`
	Appliance    Appliance    `yaml:"appliance" doc:"The appliance itself."`
	Networks     Networks     `yaml:"networks" doc:"The networks of the rack by role. A role that is left out is detected or not used."`
	Access       Access       `yaml:"access" doc:"Who may log in."`
	BMC          BMCs         `yaml:"bmc" doc:"What holds for the BMCs of all nodes."`
	NodeDefaults NodeDefaults `yaml:"nodeDefaults" doc:"What nodes have in common: the value of every node that does not give its own."`
	Nodes        []Node       `yaml:"nodes" doc:"The servers to provision. A server that is not listed, and that discover does not allow, is inspected at most, never written to."`
	Discover     *Discover    `yaml:"discover" default:"none becomes a node" doc:"Which machines that boot from the network become nodes although nodes does not name them."`
	Clusters     []Cluster    `yaml:"clusters" doc:"The workload clusters to install on the nodes."`
	Artifacts    Artifacts    `yaml:"artifacts" doc:"What may be uploaded to the appliance, and where it is kept."`
	AwayCopy     *AwayCopy    `yaml:"awayCopy" default:"none by schedule" doc:"Copies of what cannot be made again, away from the appliance: the records of its servers, its keys, its clusters."`
	Images       Images       `yaml:"images" doc:"Which images nodes may be given."`
	Updates      Updates      `yaml:"updates" doc:"Which versions of the appliance are taken."`
	Verification Verification `yaml:"verification" doc:"The verification that each node works."`
}

// Appliance is what the bootstrap box may be told about itself.
type Appliance struct {
	Hostname    Name         `yaml:"hostname" default:"the site's name" doc:"Host name of the appliance."`
	PodCIDR     netip.Prefix `yaml:"podCIDR" default:"10.244.0.0/16" doc:"Pod network of the bootstrap cluster."`
	ServiceCIDR netip.Prefix `yaml:"serviceCIDR" default:"10.96.0.0/16" doc:"Service network of the bootstrap cluster."`

	InstallerImages []string `yaml:"installerImages" pattern:"^[a-z0-9][a-zA-Z0-9._/:@-]{0,254}$" hint:"an image such as registry.example/kud:1" doc:"What spec.installerImage of a Provisioning may name. It runs as root on the appliance, next to the keys of all clusters."`

	Seal Seal `yaml:"seal" doc:"What opens DATA, the encrypted partition of the stick."`

	SecureBoot SecureBoot `yaml:"secureBoot" doc:"What the firmware of the appliance's machine starts."`

	OIDC *OIDC `yaml:"oidc" default:"nobody" doc:"Who may log in to the page and to the API of the bootstrap cluster besides those whom root on the appliance lets in: users of an issuer of OpenID Connect."`

	Follow *Follow `yaml:"follow" default:"none" doc:"A source of site documents, Provisionings and Components that the appliance follows."`
}

// SecureBoot is about the owner's keys, with which the image on the stick is signed.
type SecureBoot struct {
	Enroll bool `yaml:"enroll" doc:"true: firmware in setup mode, which has no keys, gets the owner's at the next start, and from then on starts only what the owner has signed. The machine restarts once. Firmware that has keys is left alone."`
}

// Seal is what the owner asks of the key of DATA.
type Seal struct {
	Require string `yaml:"require" enum:"tpm|key-file" doc:"tpm: DATA is made only if the machine's TPM 2.0 seals its key. key-file: only while a medium labelled FL-KEY with a file firstlight.key is attached. If it is left out, a machine with neither makes DATA with its key next to it, which protects nothing. DATA that is there already is used as it is."`
}

// Networks are the three roles a network of the rack can have. A nil role was not given.
type Networks struct {
	Provisioning *Network `yaml:"provisioning" doc:"Where the appliance answers DHCP and serves boot files; isolated."`
	BMC          *Network `yaml:"bmc" doc:"Where the BMCs are. Without it, they are reached through baremetal."`
	Baremetal    *Network `yaml:"baremetal" doc:"The network of the owner: log-in, the clusters' API, the way out."`
}

// Network is one network of the rack as the appliance is attached to it.
type Network struct {
	Interface Interface    `yaml:"interface" default:"detected" doc:"NIC of the appliance: name (eno2), MAC (52:54:00:12:34:56) or PCI address (0000:3b:00.0)."`
	Bond      *Bond        `yaml:"bond" doc:"Several NICs as one, in place of interface."`
	VLAN      int          `yaml:"vlan" min:"1" max:"4094" default:"untagged" doc:"VLAN tag of this network on that NIC or bond."`
	MTU       int          `yaml:"mtu" min:"576" max:"9216" default:"1500" doc:"Largest packet in bytes."`
	CIDR      netip.Prefix `yaml:"cidr" default:"provisioning: 172.22.0.0/24" doc:"The network's addresses."`
	Address   netip.Addr   `yaml:"address" default:"provisioning: first address of cidr; others: by DHCP" doc:"Address of the appliance on this network."`
	DHCP      DHCP         `yaml:"dhcp" doc:"Whether and what the appliance answers to DHCP here."`
	Gateway   netip.Addr   `yaml:"gateway" doc:"Router of this network. The appliance goes out by that of baremetal, else bmc, else provisioning."`
	DNS       []netip.Addr `yaml:"dns" doc:"Resolvers for nodes and appliance."`
	Allow     []string     `yaml:"allow" enum:"ssh|uploads|page|metrics|kubernetes" doc:"Services of the appliance that machines of this network may use besides those that they may anyway: log-in, the upload API, the page for browsers and the metrics (at the appliance's address there; metrics to whoever asks, in the clear), the API of the bootstrap cluster (at the appliance's address on provisioning)."`
	Forward   []string     `yaml:"forward" enum:"provisioning|bmc|baremetal" doc:"Networks to which the appliance forwards packets from this one. Without it, none; answers return."`
	NTP       []Host       `yaml:"ntp" doc:"Time servers that the appliance follows: the first that answers, of baremetal, then provisioning, then bmc. Nodes follow the appliance. Where it is the DHCP server of bmc or baremetal, it names the IPv4 addresses among them there."`
}

// Bond is several NICs used as one.
type Bond struct {
	Interfaces []Interface `yaml:"interfaces" required:"true" doc:"The NICs: names, MACs or PCI addresses; at least two."`
	Mode       string      `yaml:"mode" enum:"active-backup|802.3ad|balance-rr|balance-xor|balance-tlb|balance-alb" default:"active-backup" doc:"How the NICs share the traffic."`
}

// DHCP is what the appliance's DHCP server does on one network.
type DHCP struct {
	Mode  string   `yaml:"mode" enum:"server|proxy|none" default:"provisioning: server; others: server with a range, else none" doc:"server gives addresses, and on provisioning tells machines what to boot; proxy (provisioning only) does the latter alone, next to an existing server; none is silent."`
	Range Range    `yaml:"range" default:"provisioning: the 10th to the 100th address" doc:"Addresses to give, first-last (172.22.0.10-172.22.0.100). Its end is reserved for the nodes listed."`
	Lease Duration `yaml:"lease" default:"1h" doc:"How long a lease lasts: 2m to 720h."`

	Foreign string `yaml:"foreign" enum:"silent|ignore-unknown" default:"silent" doc:"While another DHCP server answers on the network. silent: ours gives nothing until it is gone. ignore-unknown: ours continues and names it, unless it is another appliance; for a network that is the appliance's alone."`
}

// Access is who may log in to the appliance and the nodes.
type Access struct {
	SSHKeys []SSHKey `yaml:"sshKeys" doc:"Public keys, as in authorized_keys, for the appliance and every node. Without one, no one can log in over the network."`
	Console string   `yaml:"console" enum:"status|shell|none" default:"status" doc:"What screen and serial line show: the status, the status and a root shell on the second screen, or nothing."`
}

// Node is one server to provision.
type Node struct {
	Name       Name              `yaml:"name" required:"true" doc:"Host name; also the name of its BareMetalHost."`
	MACs       []MAC             `yaml:"macs" doc:"MACs that identify the server, of any of its NICs."`
	BootMAC    MAC               `yaml:"bootMAC" default:"the first of macs; with virtual media that of the link to provisioning" doc:"MAC of the NIC that boots on the provisioning network."`
	BootMode   string            `yaml:"bootMode" enum:"UEFI|UEFISecureBoot|legacy" default:"UEFI" doc:"How the firmware starts what it loads: the ramdisk and the installed system. With UEFISecureBoot a node loads signed boot programs from the network, shim and GRUB instead of iPXE, whether or not its firmware enforces Secure Boot."`
	BMC        *BMC              `yaml:"bmc" doc:"The server's BMC. Without it, someone must power the server on."`
	OS         OS                `yaml:"os" doc:"What is installed and who may log in to it."`
	RootDevice *RootDevice       `yaml:"rootDevice" default:"the only disk" doc:"The disk to install on. All hints given must hold, and for exactly one disk; otherwise nothing is written."`
	Overwrite  Consent           `yaml:"overwrite" default:"false" doc:"Consent to lose what is on the disk: the fingerprint that firstlightd status names, for just that; true for any data an inspection sees before the first installation, never for a disk that an appliance installed."`
	Links      []Link            `yaml:"links" default:"DHCP on every NIC, gateway and dns of networks.baremetal" doc:"Network configuration of the installed system."`
	IOMMU      bool              `yaml:"iommu" default:"true if a cluster of this file names it with sriov" doc:"Start the installed system with its IOMMU on, so that SR-IOV's virtual functions can be given to virtual machines."`
	Labels     map[string]string `yaml:"labels" doc:"Labels of its BareMetalHost."`
}

// NodeDefaults is what is written once for all nodes. The first five of OS are one value, and so are the hints of
// RootDevice, and user and password of a BMC: a node that gives a part of one gives all of it.
type NodeDefaults struct {
	BootMode   string            `yaml:"bootMode" enum:"UEFI|UEFISecureBoot|legacy" doc:"bootMode of nodes that do not give one; with UEFISecureBoot unknown machines load signed boot programs, too."`
	BMC        Login             `yaml:"bmc" doc:"Who logs in to the BMCs of nodes that give neither username nor password. Their addresses are in networks.bmc.cidr or discover.bmcs, if one is given."`
	OS         OS                `yaml:"os" doc:"What nodes are installed with. Image, url, sha256, format and userData are one value: a node that gives one of them gets none of the others from here."`
	RootDevice *RootDevice       `yaml:"rootDevice" doc:"The disk of nodes without a rootDevice of their own; hints are not mixed."`
	Overwrite  Consent           `yaml:"overwrite" doc:"overwrite of nodes that do not say; false there refuses what is allowed here."`
	Labels     map[string]string `yaml:"labels" doc:"Labels of every node, next to its own."`
}

// Login is a user with a password.
type Login struct {
	Username string `yaml:"username" doc:"User of the BMC."`
	Password Secret `yaml:"password" doc:"Password of that user."`
}

// BMC is how a server's management controller is reached.
type BMC struct {
	Address  BMCAddress `yaml:"address" required:"true" doc:"ipmi://HOST[:PORT], or redfish://HOST[:PORT]/redfish/v1/Systems/ID; redfish+http:// and redfish+https:// name the transport (default https). redfish-virtualmedia:// (or +http, +https) in place of redfish://: the server boots from a disc that its BMC puts into its virtual drive, without DHCP and TFTP; it then needs a link to provisioning with a static address."`
	Username string     `yaml:"username" doc:"User of the BMC."`
	Password Secret     `yaml:"password" doc:"Password of that user."`

	VerifyCertificate CertificateCheck `yaml:"verifyCertificate" default:"bmc.verifyCertificate of the site" doc:"How a BMC with TLS proves who it is: pin, the certificate that it had at first contact; ca, one of a known authority for the name in address; none. true is ca, false is none."`
}

// BMCs is what holds for the BMCs of all nodes.
type BMCs struct {
	VerifyCertificate CertificateCheck `yaml:"verifyCertificate" default:"pin" doc:"verifyCertificate of nodes that do not say."`
	CA                Certificates     `yaml:"ca" doc:"Authorities of BMCs' certificates, PEM, in place of the public ones; for verifyCertificate: ca."`
}

// OS is what a node is installed with.
type OS struct {
	Image    string `yaml:"image" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$" hint:"a file name of letters, digits, '-', '_' and '.'" default:"debian-13" doc:"Name of an image on the stick, or OWNER.CLUSTER.NAME of an uploaded one; with sha256 NAME is enough."`
	URL      URL    `yaml:"url" doc:"http(s) address of an image, in place of image; needs sha256."`
	SHA256   SHA256 `yaml:"sha256" doc:"SHA-256 of the image, 64 hexadecimal digits."`
	Format   string `yaml:"format" enum:"qcow2|raw" default:"qcow2" doc:"Format of the image at url."`
	UserData string `yaml:"userData" enum:"cloud-init|ignition" default:"ignition for images that are named as Flatcar, Fedora CoreOS and RHCOS are; else cloud-init" doc:"What the image reads at its first boot."`
	Username string `yaml:"username" pattern:"^[a-z_][a-z0-9_-]{0,31}$" hint:"up to 32 of a-z, 0-9, '-' and '_', beginning with a letter" default:"firstlight" doc:"User created on the node; may use sudo."`
	Password Secret `yaml:"password" default:"none: SSH keys only" doc:"Password of that user, in clear or as a crypt hash ($6$… or $y$…). Only a hash ever leaves the appliance."`
}

// RootDevice names the disk to install on; the names are those of Metal3's root device hints.
type RootDevice struct {
	DeviceName         string `yaml:"deviceName" pattern:"^/dev/[!-~]{1,250}$" hint:"a path such as /dev/disk/by-path/pci-0000:00:1f.2-ata-1" doc:"Path such as /dev/disk/by-path/pci-0000:00:1f.2-ata-1."`
	HCTL               string `yaml:"hctl" pattern:"^[0-9]{1,5}(:[0-9]{1,5}){2}:[0-9]{1,20}$" hint:"four numbers such as 0:0:0:0" doc:"SCSI address host:channel:target:lun, such as \"0:0:0:0\"."`
	Model              string `yaml:"model" doc:"Model, or a part of it."`
	Vendor             string `yaml:"vendor" doc:"Vendor, or a part of it."`
	SerialNumber       string `yaml:"serialNumber" doc:"Complete serial number."`
	MinSizeGigabytes   int    `yaml:"minSizeGigabytes" min:"1" max:"1000000" doc:"Smallest size in GiB."`
	WWN                string `yaml:"wwn" doc:"World wide name."`
	WWNWithExtension   string `yaml:"wwnWithExtension" doc:"World wide name with the vendor's extension."`
	WWNVendorExtension string `yaml:"wwnVendorExtension" doc:"The vendor's extension alone."`
	Rotational         *bool  `yaml:"rotational" doc:"true: a turning disk; false: flash."`
}

// Link is one network attachment of an installed node.
type Link struct {
	Network string       `yaml:"network" enum:"provisioning|baremetal|data" required:"true" doc:"Role of the network on this link; data is a plane the appliance does not use, such as SR-IOV."`
	MAC     MAC          `yaml:"mac" doc:"The NIC."`
	Bond    *NodeBond    `yaml:"bond" doc:"Several NICs as one, in place of mac."`
	VLAN    int          `yaml:"vlan" min:"1" max:"4094" default:"untagged" doc:"VLAN tag."`
	MTU     int          `yaml:"mtu" min:"576" max:"9216" default:"that of the network" doc:"Largest packet in bytes."`
	Address LinkAddress  `yaml:"address" default:"dhcp; on data: none" doc:"dhcp, none, or a static address with its length (10.10.110.21/24)."`
	Gateway netip.Addr   `yaml:"gateway" default:"static on baremetal: that of the network" doc:"Default router through this link."`
	DNS     []netip.Addr `yaml:"dns" default:"static: those of the network" doc:"Resolvers on this link."`
}

// NodeBond is several NICs of a node used as one.
type NodeBond struct {
	MACs []MAC  `yaml:"macs" required:"true" doc:"MACs of the NICs; at least two."`
	Mode string `yaml:"mode" enum:"active-backup|802.3ad|balance-rr|balance-xor|balance-tlb|balance-alb" default:"active-backup" doc:"How the NICs share the traffic."`
}

// Cluster is one workload cluster.
type Cluster struct {
	Name         Name           `yaml:"name" required:"true" doc:"Name of the cluster."`
	By           string         `yaml:"by" enum:"bpa|cluster-api" default:"bpa" doc:"Who makes it: the operator of clusters, by SSH on nodes that are installed and verified; or Cluster API, which installs them itself. For the latter each entry of controlPlane and workers is a node alone."`
	Endpoint     netip.Addr     `yaml:"endpoint" doc:"Address of its API server, which no machine has; needed with by: cluster-api, and only there. It floats between the nodes of the control plane."`
	ControlPlane []NodeSelector `yaml:"controlPlane" default:"one node" doc:"The nodes that run the control plane. Without workers they run the workload as well."`
	Workers      []NodeSelector `yaml:"workers" doc:"The nodes that run the workload. A node may be in both lists; the name of a control-plane entry alone means that node."`
	PodCIDR      netip.Prefix   `yaml:"podCIDR" default:"10.244.64.0/18" doc:"Addresses of the pods."`
	ServiceCIDR  netip.Prefix   `yaml:"serviceCIDR" default:"10.244.0.0/18" doc:"Addresses of the services."`
	Owner        Name           `yaml:"owner" default:"default" doc:"Whose uploaded packages and container images its nodes get, besides those of the stick."`
	AddOns       []string       `yaml:"addOns" enum:"cdi|cmk|emco|istio|kata|kubevirt|local-path-provisioner|metrics-server|multus|network-policy|nfd|onap4k8s|optane|ovn|ovn4nfv|qat|service-chain|service-chain-ovn4nfv|sriov|tenants|virtlet|virtual-machines" doc:"What to install besides Kubernetes (KUDPlugins of a Provisioning): Components, of the stick or of what was brought."`
}

// NodeSelector chooses one node, or count of them, for a role in a cluster: by name, by MAC, by
// resources, or by MAC and resources, which must then both hold.
type NodeSelector struct {
	Name   Name   `yaml:"name" default:"master-N, worker-N" doc:"Name of the node in the cluster's inventory; with a count the nodes are NAME-1, NAME-2 and so on."`
	Node   Name   `yaml:"node" doc:"A node by its name: one of this file, or one that discover will give that name."`
	MAC    MAC    `yaml:"mac" doc:"A node by the MAC of any of its NICs."`
	Count  int    `yaml:"count" min:"1" max:"1000" default:"1" doc:"How many nodes with these properties."`
	CPU    int    `yaml:"cpu" min:"1" max:"100000" doc:"Fewest CPUs."`
	Memory Memory `yaml:"memory" doc:"Least memory, such as 16Gi."`
	SRIOV  bool   `yaml:"sriov" default:"false" doc:"Needs a NIC with SR-IOV."`
	QAT    bool   `yaml:"qat" default:"false" doc:"Needs a QuickAssist device."`
}

// Artifacts is what the API for uploads allows, and where it keeps what is brought.
type Artifacts struct {
	Quota  Amount          `yaml:"quota" default:"what DATA has room for" doc:"What each owner may announce in all, such as 50Gi."`
	Owners []ArtifactOwner `yaml:"owners" doc:"Owners with their own quota, in place of quota."`
	Expiry Duration        `yaml:"expiry" default:"72h" doc:"An upload that is not continued for this long is removed; at least 1h."`
	S3     bool            `yaml:"s3" default:"false" doc:"Serve uploads by the protocol of S3, too: port 9000, TLS, keys that each owner mints (docs/artifacts.md, By S3). Not with store."`
	Store  *ArtifactStore  `yaml:"store" default:"on DATA" doc:"Another S3 store. What is kept there is not offered to nodes: no OS images, no packages, no container images."`
}

// ArtifactOwner is what one owner of artifacts may have.
type ArtifactOwner struct {
	Name  Name   `yaml:"name" required:"true" doc:"The owner, as in the path of its artifacts."`
	Quota Amount `yaml:"quota" required:"true" doc:"What it may announce in all, such as 500Gi."`
}

// ArtifactStore is an S3 store that is not the appliance's own.
type ArtifactStore struct {
	Endpoint  URL          `yaml:"endpoint" required:"true" doc:"http(s)://HOST[:PORT]."`
	Region    string       `yaml:"region" pattern:"^[A-Za-z0-9-]{1,64}$" hint:"letters, digits and '-'" default:"us-east-1" doc:"Region of the store."`
	AccessKey string       `yaml:"accessKey" required:"true" doc:"The appliance's user there."`
	SecretKey Secret       `yaml:"secretKey" required:"true" doc:"The key that belongs to accessKey."`
	CA        Certificates `yaml:"ca" doc:"Authority of the store's certificate, PEM; https needs it."`
}

// Verification is the proof that each provisioned node works.
type Verification struct {
	Timeout Duration `yaml:"timeout" default:"60m" doc:"How long all nodes together may take from power-on to verified."`
}

// Problem is one mistake in a document, Problems are all of them.
type (
	Problem  = yamldoc.Problem
	Problems = yamldoc.Problems
)
