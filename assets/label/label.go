// Package label lists the keys of the labels and annotations that the product writes on objects of Kubernetes and
// on container images. There is no key of firstlight.dev/ that is not here.
package label

// On BareMetalHosts and their Secrets, by what registers the site's nodes.
const (
	Site      = "firstlight.dev/site"       // label, also of Provisionings: name of the site that the object comes from
	Node      = "firstlight.dev/node"       // label of Secrets: the node they are for
	Image     = "firstlight.dev/image"      // annotation: URL of the image that the site names; the host may get it later
	Overwrite = "firstlight.dev/overwrite"  // annotation, from the site: fingerprint of what may be lost on its disk, "true" or "released"; from the owner: a fingerprint
	AllowWipe = "firstlight.dev/allow-wipe" // annotation, from the owner: URL of the image for which a live host's disk may be lost, or "none"
)

// Source is a label on Provisionings and Components that came from a source that the site has the appliance follow: which
// one. Without it, nothing is changed or removed for a source.
const Source = "firstlight.dev/source"

// UserData is an annotation "ignition" on a BareMetalHost: its image reads Ignition, and no cloud-init.
const UserData = "firstlight.dev/user-data"

// On BareMetalHosts that someone else changed, by the admission policy and what checks hosts.
const (
	Cleared = "firstlight.dev/cleared"      // annotation: "registration", or the image that it may be installed with
	Wanted  = "firstlight.dev/wanted-image" // annotation: the image as JSON that it gets after its inspection
	Hold    = "firstlight-checks"           // value of baremetalhost.metal3.io/paused: paused until its checks passed
	Erasing = "firstlight-erase"            // value of baremetalhost.metal3.io/paused: paused while its disks are erased
)

// SecureBoot is an annotation "true" on a BareMetalHost, from the site or the owner: its firmware enforces Secure Boot,
// and spec.bootMode cannot say so, because the operator refuses UEFISecureBoot by IPMI.
const SecureBoot = "firstlight.dev/secure-boot"

// VerifyCertificate is an annotation on a BareMetalHost that is not of the site, from its owner: how its BMC's certificate
// is checked, by the words of site.yaml.
const VerifyCertificate = "firstlight.dev/verify-certificate"

// Login is an annotation on a BareMetalHost, from the owner: the Secret in its namespace with the user and password
// that its image came with. HostKey is the appliance's: the SSH host key that it has, as in authorized_keys.
const (
	Login   = "firstlight.dev/login"
	HostKey = "firstlight.dev/ssh-host-key"
	// PasswordTaken is one "true": its image's default user was logged in to once, and has no password any more.
	PasswordTaken = "firstlight.dev/password-taken"
)

// On BareMetalHosts, by what verifies them and what makes clusters of them.
const (
	Verified  = "firstlight.dev/verified"          // label "true": the installed system was seen to work; goes when it is reinstalled; or VerifiedHardware
	SRIOV     = "firstlight.dev/sriov"             // label "true" or "false", from the owner: overrules what inspection saw
	QAT       = "firstlight.dev/qat"               // the same of QAT
	Installed = "firstlight.dev/installed-cluster" // annotation CLUSTER@TIME: whose installer worked on the system of that time
	Dirty     = "firstlight.dev/uncleared"         // annotation CLUSTER: LABEL: WHY: left a cluster without being cleared; holds as long as Installed
)

// On BareMetalHosts, by what reads their inspection (assets/inspection): labels "true" or "false", which those of the
// owner overrule, and an annotation.
const (
	FoundSRIOV    = "firstlight.dev/found-sriov"    // it has a network card that can have virtual functions
	FoundQAT      = "firstlight.dev/found-qat"      // Intel QuickAssist
	FoundGPU      = "firstlight.dev/found-gpu"      // a GPU
	FoundFPGA     = "firstlight.dev/found-fpga"     // an FPGA card
	BrokenDevices = "firstlight.dev/broken-devices" // annotation: NICs and disk controllers that nothing drives, as JSON
)

// VerifiedHardware is the value of Verified of a host without a system: pre-flight and inspection passed, and whoever
// installs hosts may take it.
const VerifiedHardware = "hardware"

// Why is an annotation on BareMetalHosts that a Metal3Machine has, from what diagnoses: what keeps the host from being
// installed, in one sentence. It is for people.
const Why = "firstlight.dev/why"

// Problem is an annotation on a Secret that asks for a key to uploads: why it has none.
const Problem = "firstlight.dev/problem"

// ProviderIDFormat is an annotation on a Metal3Cluster, from the owner: "name", or "uid" for providerIDs that hold the
// UID of the host.
const ProviderIDFormat = "firstlight.dev/provider-id-format"

// Verification is an annotation on Clusters of Cluster API: what was seen when the cluster was last tried, as JSON.
const Verification = "firstlight.dev/verification"

// Class is an annotation on the appliance's ClusterClass: digest of all that makes nodes what they are. A class that
// clusters use keeps it.
const Class = "firstlight.dev/class"

// On BareMetalHosts of nodes that the site gives to Cluster API: labels by which the machines of that cluster, and no
// others, take them.
const (
	Cluster = "firstlight.dev/cluster" // name of the cluster
	Role    = "firstlight.dev/role"    // RoleControlPlane or RoleWorker
)

// Values of Role.
const (
	RoleControlPlane = "control-plane"
	RoleWorker       = "worker"
)

// ExpectedHosts is an annotation on Provisionings of a site that discovers nodes: how many there are to be in all, as a
// number. Until there are so many hosts, a cluster that lacks one waits for it.
const ExpectedHosts = "firstlight.dev/expected-hosts"

// On the appliance's other objects.
const (
	SiteName = "firstlight.dev/site-name" // label of every Launch: name of its site
	Run      = "firstlight.dev/run"       // annotation of a Job: the installer's run as JSON
	// Appliance is a label of the one node on which an appliance runs as a guest; its value says nothing.
	Appliance = "firstlight.dev/appliance"

	Applied = "firstlight.dev/applied" // annotation: digest of what was applied last
	Binary  = "firstlight.dev/binary"  // annotation of pods: digest of the program they run; another one replaces them
	Config  = "firstlight.dev/config"  // the same of a configuration
	Keys    = "firstlight.dev/keys"    // the same of a store's keys
)

// Synced is a label of images in containerd, "true": the image's content and its unpacked files are known to be on
// the disk. containerd syncs its database and what it downloads, but not what it unpacks.
const Synced = "firstlight.dev/synced"

// Instance is an annotation on the pods of virtual machines: the instance that its launcher runs, as JSON.
const Instance = "firstlight.dev/instance"

// Routes is an annotation on pods of service chains: the routes that the add-on ovn4nfv gives them, as JSON.
const Routes = "firstlight.dev/routes"

// On ClusterRoleBindings that give a workstation rights on the appliance's API for some hours.
const (
	Workstation = "firstlight.dev/workstation" // label USER.HOST
	Expires     = "firstlight.dev/expires"     // annotation: when the certificate ends (RFC 3339), by the appliance's clock
)

// Certificates is an annotation on the static pods of control planes: what they were started with. Of a workload cluster it
// is the rotation of its authorities and the stage of it, of the appliance a digest of whom they trust.
const Certificates = "firstlight.dev/certificates"
