// Package status is the document in which the appliance says how it is: the daemon
// writes it, the console, the command line, the lab and scripts read it. Fields are
// only ever added; a reader must pass over those it does not know.
package status

import (
	"cmp"
	"time"
)

// SocketPath is where the daemon serves the document: GET /v1/status.
const SocketPath = "/run/firstlight/status.sock"

// State is one word for the whole appliance, or for one stage of it.
type State string

const (
	StateWaiting  State = "waiting"  // not looked at yet, or an earlier stage is not done
	StateWorking  State = "working"  // being made true, or retried
	StateReady    State = "ready"    // true when last asked
	StateDegraded State = "degraded" // was true since this boot, is not now; being mended
	StateFailed   State = "failed"   // only a person can mend it; the text says how
)

// Document is the whole answer.
type Document struct {
	Name      string    `json:"name"`    // host name
	Version   string    `json:"version"` // of the product
	BootID    string    `json:"bootID"`  // /proc/sys/kernel/random/boot_id
	MachineID string    `json:"machineID,omitempty"`
	State     State     `json:"state"`
	Since     time.Time `json:"since"`          // State has been so since
	Started   time.Time `json:"started"`        // the daemon
	Summary   string    `json:"summary"`        // one sentence: what it does or waits for
	Next      string    `json:"next"`           // one sentence: what a person can do now
	Page      string    `json:"page,omitempty"` // address of the page for browsers; "" while there is none
	Stages    []Stage   `json:"stages"`
	Addresses []Address `json:"addresses"`
	Notes     []string  `json:"notes,omitempty"` // what a person should know though nothing waits for it
	Nodes     []Node    `json:"nodes"`
	Launch    Launch    `json:"launch"` // whether the site's nodes are proven
	Clusters  []Cluster `json:"clusters"`

	Components []Component `json:"components,omitempty"` // what runs on clusters

	Artifacts *Artifacts `json:"artifacts,omitempty"` // nil until there is a place for them
	Firewall  *Firewall  `json:"firewall,omitempty"`
	AwayCopy  *AwayCopy  `json:"awayCopy,omitempty"` // nil before there was one or the site wants some
	Source    *Source    `json:"source,omitempty"`   // nil if the site names none to follow
	Pushed    []Pushed   `json:"pushed,omitempty"`   // what runs in the place of the version's programs
}

// Pushed is a program that a developer has put in the place of the version's, until the appliance restarts.
type Pushed struct {
	Programs []string  `json:"programs"` // names of devpush.Program
	Revision string    `json:"revision"` // COMMIT, or COMMIT+dirty
	Time     time.Time `json:"time"`
	Text     string    `json:"text"` // all of it in a sentence; one of Notes, too
}

// AwayCopy is how copies of what cannot be made again stand.
type AwayCopy struct {
	Made  time.Time `json:"made,omitzero"` // the last whole one; zero: none yet
	To    string    `json:"to,omitempty"`  // where it went
	Tried time.Time `json:"tried,omitzero"`
	Error string    `json:"error,omitempty"` // of the try since then
}

// Firewall is the appliance's packet filter.
type Firewall struct {
	Table   string   `json:"table"`             // as nft calls it
	Loaded  bool     `json:"loaded"`            // it is in the kernel, as the site wants it
	Allowed []string `json:"allowed,omitempty"` // what the site lets through besides docs/security.md's list
}

// Stage is one step of the bring-up: a fact and how it stands.
type Stage struct {
	Name     string    `json:"name"`
	Title    string    `json:"title,omitempty"` // what happens, for people; "" from versions that had none
	Fact     string    `json:"fact"`
	State    State     `json:"state"`
	Since    time.Time `json:"since"`             // State has been so since
	Attempts int       `json:"attempts"`          // times it was acted on since the daemon started; 0: it was true when asked
	Seconds  float64   `json:"seconds,omitempty"` // from first asked to first true
	Waiting  string    `json:"waiting,omitempty"` // what it does or waits for
	Error    string    `json:"error,omitempty"`   // last error, kept through retries until it is true

	AfterReady bool `json:"afterReady,omitempty"` // it begins when the appliance is ready, which is so without it
}

// TitleOrName is what people are shown a stage as.
func (s Stage) TitleOrName() string { return cmp.Or(s.Title, s.Name) }

// Address is one network of the appliance.
type Address struct {
	Role       string   `json:"role"`      // provisioning, bmc or baremetal
	Interface  string   `json:"interface"` // the bridge
	NICs       []NIC    `json:"nics,omitempty"`
	Addresses  []string `json:"addresses,omitempty"` // CIDR notation
	Reason     string   `json:"reason,omitempty"`    // why this network has this role
	DHCPServer string   `json:"dhcpServer,omitempty"`
	DHCP       string   `json:"dhcp,omitempty"` // what our DHCP server does on bmc or baremetal, if the site asks for one: probing, serving, silent, broken
}

// NIC is one physical interface.
type NIC struct {
	Name string `json:"name"`
	MAC  string `json:"mac"`
	Link bool   `json:"link"`
}

// Node is one compute server.
type Node struct {
	Name      string    `json:"name"`
	State     string    `json:"state"`               // of its BareMetalHost; "absent" without one
	Rule      string    `json:"situation,omitempty"` // one word of docs/why.md's table
	Why       string    `json:"why,omitempty"`       // one sentence: what it does or waits for
	Since     time.Time `json:"since,omitzero"`      // Situation has been so since
	Next      string    `json:"next,omitempty"`      // what a person can do; "" while nothing is needed
	Percent   int       `json:"percent,omitempty"`   // of the way to proven, 0 to 100
	Verified  bool      `json:"proven,omitempty"`    // every check of the launch held
	Address   string    `json:"address,omitempty"`   // by which the appliance logs in to it
	Error     string    `json:"error,omitempty"`     // what went wrong last
	Erased    string    `json:"erased,omitempty"`    // when and how which of its disks were erased last, as its owner asked
	Preflight []Check   `json:"preflight,omitempty"` // before it was first switched on
	Checks    []Check   `json:"checks,omitempty"`    // of the installed system
}

// Check is one question asked of a node and its answer.
type Check struct {
	Name  string     `json:"name"` // docs/verify.md lists them
	State CheckState `json:"state"`
	Text  string     `json:"text,omitempty"` // what was found
	Fix   string     `json:"fix,omitempty"`  // what a person can do, if it failed
}

// CheckState is how a check came out.
type CheckState string

const (
	CheckOK      CheckState = "ok"
	CheckFailed  CheckState = "failed"
	CheckWaiting CheckState = "waiting" // not asked yet, or no answer yet
	CheckSkipped CheckState = "skipped" // there is nothing to ask, or it cannot be asked from here
)

// Launch is the promise that every node of the site works, and how it stands.
type Launch struct {
	State    LaunchState `json:"state"`
	Text     string      `json:"text"` // one sentence; every node that is not proven is named with its reason
	Verified int         `json:"proven"`
	Nodes    int         `json:"nodes"`   // of the site
	Elapsed  float64     `json:"elapsed"` // seconds since the nodes were handed over, counted while the appliance ran
	Limit    float64     `json:"limit"`   // seconds that all nodes together may take
}

// LaunchState is one word for the launch.
type LaunchState string

const (
	LaunchNothing   LaunchState = "nothing"  // the site names no node: nothing to launch
	LaunchRunning   LaunchState = "running"  // nodes are on their way
	LaunchFailed    LaunchState = "failed"   // a node needs a person, or the time is up
	LaunchSucceeded LaunchState = "launched" // every node is proven
)

// States of a cluster, whichever way it is made. A Provisioning has more of them.
const (
	ClusterNew        = "new"        // nobody has looked at it yet
	ClusterWaiting    = "waiting"    // for what comes by itself
	ClusterInstalling = "installing" // its hosts are claimed
	ClusterReady      = "ready"
	ClusterFailed     = "failed"
	ClusterDeleting   = "deleting"
)

// Kinds of the objects that ask for clusters.
const (
	KindProvisioning = "Provisioning" // of bpa.akraino.org
	KindCluster      = "Cluster"      // of Cluster API
)

// Cluster is one workload Kubernetes.
type Cluster struct {
	Name    string `json:"name"`
	State   string `json:"state"`             // one of the above, or another phase of its Provisioning in lower case
	Percent int    `json:"percent,omitempty"` // of its installation
	Nodes   string `json:"nodes,omitempty"`   // installed of all, 2/3
	Text    string `json:"text,omitempty"`    // one sentence: what it does or waits for
	Error   string `json:"error,omitempty"`   // what went wrong, or why it is refused

	Members   []ClusterNode `json:"members,omitempty"`
	Warnings  []string      `json:"warnings,omitempty"`  // of what works and may surprise, and of servers that it let go of uncleared
	Leftovers []Leftover    `json:"leftovers,omitempty"` // the latter, each by its server
	Updates   []NodeUpdate  `json:"updates,omitempty"`   // that keep its nodes up to date

	Namespace string    `json:"namespace,omitempty"` // of the object that asks for it
	Kind      string    `json:"kind,omitempty"`      // of that object, one of the above
	Checks    []Check   `json:"checks,omitempty"`    // of its last verification
	Checked   time.Time `json:"checked,omitzero"`    // when that was
	Log       string    `json:"log,omitempty"`       // of the installer's last run, a file on the appliance
}

// NodeUpdate is how one resource of that kind stands.
type NodeUpdate struct {
	Name  string `json:"name"`            // namespace/name
	State string `json:"state"`           // phase, in lower case
	Nodes string `json:"nodes,omitempty"` // up to date and in service, of all: 2/3
	Text  string `json:"text,omitempty"`  // one sentence: what it does or waits for

	Paused  bool          `json:"paused,omitempty"`  // by its spec
	Window  *UpdateWindow `json:"window,omitempty"`  // nil: any time
	Workers int           `json:"workers,omitempty"` // that may be out of service at once
	Reboot  string        `json:"reboot,omitempty"`  // when a node restarts: Never, IfRequired or Always
	Members []UpdatedNode `json:"members,omitempty"` // in the order in which they are updated
}

// UpdateWindow is when nodes may be taken out of service.
type UpdateWindow struct {
	Days  []string `json:"days,omitempty"` // on which it begins: Mon, Tue, …; every day without any
	Start string   `json:"start"`          // HH:MM in UTC
	Hours int      `json:"hours"`
}

// UpdatedNode is how one node of a NodeUpdate stands.
type UpdatedNode struct {
	Name    string    `json:"name"`
	State   string    `json:"state"`             // phase, as the resource has it: Draining, UpToDate, …
	Text    string    `json:"text,omitempty"`    // what is done on it, or why it is not further
	Version string    `json:"version,omitempty"` // of its kubelet
	Changes int       `json:"changes,omitempty"` // packages that change, or that the last update changed
	Updated time.Time `json:"updated,omitzero"`  // it was put back into service then
}

// NodeUpdateUpdating is the state of a NodeUpdate while a node is out of service for it.
const NodeUpdateUpdating = "updating"

// IsUnderway reports whether a node is out of service for it.
func (u NodeUpdate) IsUnderway() bool { return u.State == NodeUpdateUpdating }

// IsStuck reports whether a person is needed.
func (u NodeUpdate) IsStuck() bool { return u.State == "failed" || u.State == "refused" }

// Leftover is a server that was taken out of a cluster and still holds what that left on it.
type Leftover struct {
	Host string `json:"host"` // namespace/name
	Text string `json:"text"` // one sentence: what is wrong and what to do
}

// ClusterNode is one node of a cluster.
type ClusterNode struct {
	Name    string   `json:"name"` // in the cluster
	Roles   []string `json:"roles"`
	Host    string   `json:"host,omitempty"` // the server that it is, namespace/name
	Address string   `json:"address,omitempty"`
	State   string   `json:"state"`
	Reason  string   `json:"reason,omitempty"`  // why it is not further
	Version string   `json:"version,omitempty"` // of its kubelet, where Cluster API says it
}

// Phases of a component that say how it stands; any other one is on its way (docs/addons.md has all).
const (
	ComponentReady     = "ready"
	ComponentSkipped   = "skipped"   // the cluster lacks what it requires
	ComponentSuspended = "suspended" // nothing is done
	ComponentDegraded  = "degraded"
	ComponentFailed    = "failed"
	ComponentRefused   = "refused"
)

// ComponentNeedsPerson reports whether a phase of a component is one that a person must end.
func ComponentNeedsPerson(state string) bool {
	return state == ComponentFailed || state == ComponentRefused || state == ComponentDegraded
}

// ComponentUnderway reports whether a phase of a component is one that ends without a person.
func ComponentUnderway(state string) bool {
	return !ComponentNeedsPerson(state) && state != ComponentReady && state != ComponentSkipped && state != ComponentSuspended
}

// ComponentTarget is how a component names the appliance itself among the clusters that it is on.
const ComponentTarget = "(appliance)"

// Component is a bundle of objects that clusters get.
type Component struct {
	Name     string        `json:"name"`               // namespace/name
	State    string        `json:"state"`              // phase, in lower case: that of its worst cluster
	Clusters string        `json:"clusters,omitempty"` // that have it, of all: 2/3
	Text     string        `json:"text,omitempty"`     // one sentence: what it does or waits for
	On       []ComponentOn `json:"on,omitempty"`
	After    []string      `json:"after,omitempty"` // names of components of its namespace that are ready before
}

// ComponentOn is how a component stands on one cluster.
type ComponentOn struct {
	Cluster string `json:"cluster"` // "(appliance)" is the appliance itself
	State   string `json:"state"`
	Reason  string `json:"reason,omitempty"` // one word of docs/addons.md
	Text    string `json:"text,omitempty"`

	Revision string `json:"revision,omitempty"` // that the state is about
	Objects  string `json:"objects,omitempty"`  // ready, of all: 3/5
}

// Artifacts is what operators brought to the appliance, and whether more can be brought.
type Artifacts struct {
	URL         string       `json:"url"`         // of the REST API, on the provisioning network
	Conditions  []Check      `json:"conditions"`  // serving, store-read, room
	Artifacts   int          `json:"artifacts"`   // complete or not
	Stored      int64        `json:"stored"`      // octets received
	Free        int64        `json:"free"`        // octets of DATA
	Collections []Collection `json:"collections"` // binary_images, container_images, os_images
}

// Collection is the artifacts of one kind.
type Collection struct {
	Name      string `json:"name"`
	Artifacts int    `json:"artifacts"`
	Complete  int    `json:"complete"`
	Stored    int64  `json:"stored"`    // octets received
	Announced int64  `json:"announced"` // octets
}
