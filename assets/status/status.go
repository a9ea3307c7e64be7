// Package status is the document in which the appliance says how it is: the daemon
// writes it, the console, the command line, the lab and scripts read it. Fields are
// only ever added; a reader must pass over those it does not know.
package status

import "time"

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
	Since     time.Time `json:"since"`   // State has been so since
	Started   time.Time `json:"started"` // the daemon
	Summary   string    `json:"summary"` // one sentence: what it does or waits for
	Next      string    `json:"next"`    // one sentence: what a person can do now
	Stages    []Stage   `json:"stages"`
	Addresses []Address `json:"addresses"`
	Notes     []string  `json:"notes,omitempty"` // what a person should know though nothing waits for it
	Nodes     []Node    `json:"nodes"`
	Clusters  []Cluster `json:"clusters"`
}

// Stage is one step of the bring-up: a fact and how it stands.
type Stage struct {
	Name     string    `json:"name"`
	Fact     string    `json:"fact"`
	State    State     `json:"state"`
	Since    time.Time `json:"since"`             // State has been so since
	Attempts int       `json:"attempts"`          // times it was acted on since the daemon started; 0: it was true when asked
	Seconds  float64   `json:"seconds,omitempty"` // from first asked to first true
	Waiting  string    `json:"waiting,omitempty"` // what it does or waits for
	Error    string    `json:"error,omitempty"`   // last error, kept through retries until it is true
}

// Address is one network of the appliance.
type Address struct {
	Role       string   `json:"role"`      // provisioning, bmc or baremetal
	Interface  string   `json:"interface"` // the bridge
	NICs       []NIC    `json:"nics,omitempty"`
	Addresses  []string `json:"addresses,omitempty"` // CIDR notation
	Reason     string   `json:"reason,omitempty"`    // why this network has this role
	DHCPServer string   `json:"dhcpServer,omitempty"`
}

// NIC is one physical interface.
type NIC struct {
	Name string `json:"name"`
	MAC  string `json:"mac"`
	Link bool   `json:"link"`
}

// Node is one compute server.
type Node struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Error string `json:"error,omitempty"`
}

// Cluster is one workload Kubernetes.
type Cluster struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Error string `json:"error,omitempty"`
}
