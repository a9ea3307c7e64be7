// Package launcher is what runs in the pod of a virtual machine: it prepares the machine's disks, starts QEMU, passes its
// console on, and powers it down. It has no access to the cluster's API: what it does is in a file that the controller
// wrote into the pod, and what became of it is the pod's end, with one sentence.
package launcher

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
)

// Folders of the pod, as the controller mounts them.
const (
	InstanceDir = "/etc/machine"     // the file InstanceFile
	RunDir      = "/run/machine"     // sockets and seeds, in memory
	DiskDir     = "/var/lib/machine" // disks that go with the pod
	ClaimDir    = "/claims"          // a folder for each volume with a claim: its number
	SecretDir   = "/secrets"         // likewise for seeds; in it user and network, or one of them
)

// InstanceFile is a Machine as JSON.
const InstanceFile = "instance.json"

// Keys of the Secrets of a seed, and their folders.
const (
	UserKey, NetworkKey = "userdata", "networkdata"
	UserDir, NetworkDir = "user", "network"
)

// Machine is all that a launcher knows.
type Machine struct {
	Namespace string           `json:"namespace"`
	Name      string           `json:"name"`
	Spec      v1.InstanceSpec  `json:"spec"`
	Claims    map[string]int64 `json:"claims,omitempty"` // by volume: bytes of the claim
}

// ReadMachine reads the file of a folder.
func ReadMachine(dir string) (Machine, error) {
	var m Machine
	text, err := os.ReadFile(filepath.Join(dir, InstanceFile))
	if err != nil {
		return m, fmt.Errorf("read instance: %w", err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("read instance: %w", err)
	}
	return m, nil
}

// Hostname is the guest's.
func (m Machine) Hostname() string {
	if m.Spec.Hostname != "" {
		return m.Spec.Hostname
	}
	return m.Name
}
