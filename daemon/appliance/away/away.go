// Package away makes the away copy of an appliance, and makes an appliance of one: what is on DATA and cannot be made
// again, sealed to a recovery key that is not on the appliance.
//
// An away copy is a tar archive, compressed, encrypted by age (https://age-encryption.org/v1). Its first entry is the
// Header. An appliance takes it over in two steps: Unpack writes all of it next to the state, and Resume, when the appliance
// starts the next time, puts it into the state's place. Both may be cut by a power failure at any byte.
package away

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/stick"
)

// Format is the version of what is in an away copy. A copy of a later one is refused.
const Format = 1

// Header says what an away copy is of.
type Header struct {
	Format    int       `json:"format"`
	Version   string    `json:"version"` // of the appliance that made it
	Site      string    `json:"site"`    // its name
	Appliance string    `json:"appliance"`
	MachineID string    `json:"machineID"`
	Made      time.Time `json:"made"`
	Hosts     int       `json:"hosts"`    // records of hosts
	Clusters  int       `json:"clusters"` // records of clusters
}

// Names of entries; all others are files by their paths.
const (
	headerName = "firstlight.json"
	siteName   = "site.yaml"
)

// Place is the state of an appliance.
type Place struct {
	Root string // put before every path; "" on the appliance
}

// Folders that Unpack and Resume use, and what is left of them.
const (
	partialDir  = stick.DataDir + "/restore.partial" // being written, or no longer needed
	unpackedDir = stick.DataDir + "/restore"         // whole: it is put in place at the next start
	treeName    = "tree"                             // in it: the files by their paths
	waitFile    = stick.RunDir + "/restore"          // exists until the machine starts again
	// RestoredFile is the header of what was put in place last.
	RestoredFile = stick.DataDir + "/restored.json"
)

func (p Place) path(name string) string { return filepath.Join("/", p.Root, name) }

// Part is a file or folder that an away copy has.
type Part struct {
	Path string      // below the root
	Mode fs.FileMode // of folders
	Skip string      // a name in it that is left out
	Why  string
}

// Parts are all that cannot be made again. What refers to something comes before it: each file is written whole, and
// one that is read later is at least as new as what refers to it.
func Parts() []Part {
	const pki = "/etc/kubernetes/pki"
	const private, open = 0o700, 0o755
	return []Part{
		{Path: stick.DataDir + "/hosts", Mode: private, Why: "which servers are in service, and the certificates of their BMCs"},
		{Path: "/opt/kud/multi-cluster", Skip: "log", Mode: open, Why: "the clusters' records and kubeconfigs"},
		{Path: stick.DataDir + "/dhcp/leases.journal", Mode: open, Why: "the addresses that servers have"},
		{Path: stick.DataDir + "/secret", Mode: private, Why: "passwords and keys, those of BMCs among them"},
		{Path: stick.DataDir + "/ssh", Mode: private, Why: "the log-in to nodes, and the nodes' host keys"},
		{Path: stick.DataDir + "/ca", Mode: private, Why: "the authority that nodes trust"},
		{Path: stick.DataDir + "/" + stick.MachineIDName, Mode: open, Why: "the salt of password hashes that nodes have"},
		{Path: pki + "/ca.crt", Mode: open, Why: "the authority of kubeconfigs that people have"},
		{Path: pki + "/ca.key", Mode: open, Why: "likewise"},
		{Path: pki + "/sa.key", Mode: open, Why: "the key of tokens that people have"},
	}
}

// clearedFolders are folders that an appliance makes again from what is restored. What a blank one has there would
// contradict it.
func clearedFolders() []string {
	return []string{"/var/lib/etcd", "/var/lib/ironic", "/etc/kubernetes"}
}

// isPart reports whether a path may be in an away copy.
func isPart(path string) bool {
	for _, part := range Parts() {
		if path == part.Path || strings.HasPrefix(path, part.Path+"/") {
			return true
		}
	}
	return false
}

// isLeftover reports whether a file is what a power cut left of package atomicfile's work.
func isLeftover(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".new")
}

// exists reports whether there is anything at a path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
