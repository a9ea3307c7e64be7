package vault

// Rotation is a secret, or several of a kind, that is replaced on demand while the rack is in service: by
// `firstlightd rotate NAME` and on the page.
type Rotation struct {
	Name  string
	Of    Rotated // what is named besides
	What  string  // is replaced, for people
	About string  // what becomes of it: sentences, in lines of 120 characters at most
}

// Rotated is what a rotation is of, as the usage of the command has it.
type Rotated string

// What rotations are of.
const (
	RotatedWhole   Rotated = ""          // nothing is named: there is one
	RotatedNodes   Rotated = "[NODE...]" // those of some nodes, of all if none is named
	RotatedCluster Rotated = "NAME"      // that of one workload cluster
)

// Rotations are all of them.
func Rotations() []Rotation {
	return []Rotation{
		{Name: "authority", What: "the authority", About: `
It signs what the appliance serves. The next one lies next to the current one. Ramdisks, nodes and the appliance's own
parts are brought to trust both; when every node in service does, and none is being installed, the next one signs; the
former one is taken away everywhere twenty minutes later. Workstations that upload and browsers must be told of the
next one. A machine of Cluster API that was told of the current one alone is waited for until it is replaced.`},

		{Name: "packages", What: "the key of packages", About: `
It signs the appliance's packages. The next one is brought to every node that has the current one, and to those that
are installed from now on; when every node in service has both, the next one signs, and the former one is taken from
every node. A machine of Cluster API that was told of the current one alone is waited for until it is replaced.`},

		{Name: "nodes", What: "the log-in to nodes", About: `
The appliance logs in by SSH with it. The next key is brought to every node by the current one; when every node has
answered, it is used, and the former one is taken from every node. Both let the appliance in until then.`},

		{Name: "host-key", What: "the host key of the appliance's SSH", About: `
There is always a next one, of which clients are told when they have logged in (UpdateHostKeys of OpenSSH, firstlight
login): it takes the place of the current one at once, and another next one is made. Who has not logged in since that
one was made sees another key, whose fingerprint is printed.`},

		{Name: "kubernetes", What: "what signs in the appliance's own Kubernetes", About: `
Its authority, those of etcd and of the front proxy, and the key of service accounts. All parts are brought to trust
both; 25 hours later the next ones sign, and 25 hours after that the former ones are trusted no more. In each stage the
API is away while its parts start again; other pods go on running.`},

		{Name: "ironic", What: "the password of Ironic", About: `
Ironic and its operator restart; servers notice nothing.`},

		{Name: "standin-bmc", What: "the password of the stand-in BMC", About: `
Ironic speaks by it to what stands in for the BMC of nodes that have none. The former one is taken until Ironic has the
next one for each of them.`},

		{Name: "bmc", Of: RotatedNodes, What: "passwords of BMCs", About: `
Of all BMCs or of those of the nodes that are named, by Redfish or IPMI as site.yaml has it. Each next password is on
DATA before its BMC is asked, and Ironic gets it when the BMC has taken a login with it. A BMC that refuses is named,
and its present password stays. site.yaml keeps the former password, which stands for the new one until somebody edits
it. The new ones are in the Secrets metal3/NODE-bmc-secret, on DATA and in away copies alone: make an away copy
afterwards (firstlightd backup).`},

		{Name: "cluster", Of: RotatedCluster, What: "the authorities of a cluster", About: `
They sign in a workload cluster that a Provisioning installed: the authorities of Kubernetes, of etcd and of the front
proxy, and the key of service accounts. One control plane after another, then the workers, are brought to trust both;
then the next ones sign, and there is another kubeconfig (firstlightd kubeconfig NAME); 25 hours later, when no pod
has a token of before, the former ones are trusted no more. Pods go on running. firstlightd why NAME says how far it
is.`},
	}
}
