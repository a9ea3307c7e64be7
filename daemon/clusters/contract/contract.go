// Package contract is what the operator of clusters and an installer agree on, docs/kud.md as code: the files of a
// cluster, what a run finds in its environment, and how it ends. Both sides import it.
package contract

import (
	"maps"
	"slices"
	"strings"
)

// Dir holds a directory for each cluster, on the appliance and in the installer's container.
const Dir = "/opt/kud/multi-cluster"

// Files of a cluster, below its directory in Dir.
const (
	FileInventory    = "hosts.ini"
	FileKnownHosts   = "known_hosts"
	FileInstalled    = "installed.json"
	FileProgress     = "progress.json"
	FileIdentity     = "cluster.json" // of the stick's installer: which life of the cluster this is
	FileKeys         = "keys.json"    // the operator's: of which system each host key is
	FileKubeconfig   = "artifacts/admin.conf"
	FileVerification = "artifacts/verification.json"
	FileRemoved      = "artifacts/removed.json"
	FileRotation     = "artifacts/rotation.json"
	FileLearned      = "artifacts/known_hosts" // host keys that the stick's installer met
	LogDir           = "log"
)

// Files of the appliance's log-in to nodes: keys of a Secret, files in the container.
const (
	FilePrivateKey = "id_rsa"
	FilePublicKey  = "id_rsa.pub"
)

// What a run finds in its environment.
const (
	EnvAction        = "KUD_ACTION" // Install, Add, Remove or Rotate
	EnvNodes         = "KUD_NODES"  // labels that are added or removed, blanks between
	EnvServiceSubnet = "KUD_SERVICE_SUBNET"
	EnvClear         = "KUD_CLEAR"    // what FormatClear wrote
	EnvRotation      = "KUD_ROTATION" // of the action rotate: its token
	EnvOwner         = "KUD_OWNER"    // whose uploads the nodes get
)

// Actions of a run.
const (
	Install = "install" // make the inventory true
	Add     = "add"     // the same; the nodes named are new in it
	Rotate  = "rotate"  // replace the authorities of the cluster, as far as it may by now
	Remove  = "remove"  // take the nodes named out; they are still in the inventory
)

// ExitRefused is the exit code of an installer that will fail however often it is tried.
const ExitRefused = 2

// FormatClear names nodes that another cluster let go of without clearing them: LABEL=CLUSTER, sorted, with blanks
// between. What that cluster left on them may be cleared away, and nothing else.
func FormatClear(clusters map[string]string) string {
	var words []string
	for _, label := range slices.Sorted(maps.Keys(clusters)) {
		words = append(words, label+"="+clusters[label])
	}
	return strings.Join(words, " ")
}

// ParseClear reads what FormatClear wrote; other words are passed over.
func ParseClear(text string) map[string]string {
	clusters := map[string]string{}
	for _, word := range strings.Fields(text) {
		if label, cluster, ok := strings.Cut(word, "="); ok {
			clusters[label] = cluster
		}
	}
	return clusters
}
