package stick

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/atomicfile"
)

// BootInfo is the record firstlight-init leaves in BootInfoFile: which disk the appliance runs
// from, how to find each of its partitions again, and what vouches for the root.
type BootInfo struct {
	Version    string      `json:"version,omitempty"` // of the image; empty if the boot loader named none
	Slot       Slot        `json:"slot"`              // that is started
	Trial      bool        `json:"trial,omitempty"`   // for the first time, until it is kept
	Disk       Disk        `json:"disk"`
	Partitions []Partition `json:"partitions"` // in table order, empty entries left out
	Verity     Verity      `json:"verity"`
	MachineID  MachineID   `json:"machineID"`
}

// Disk is a whole block device. Path may change at the next boot; GUID does not.
type Disk struct {
	Path   string `json:"path"`   // /dev/sda
	Number string `json:"number"` // "8:0", major and minor
	GUID   string `json:"guid"`   // of the partition table, lower case
	Model  string `json:"model,omitempty"`
	Bytes  int64  `json:"bytes"`
}

// Partition is one entry of the boot disk's table. Offsets are from the disk's start.
type Partition struct {
	Index int    `json:"index"` // from 1
	Name  string `json:"name"`
	GUID  string `json:"partuuid"` // unique GUID, lower case
	Path  string `json:"path"`     // /dev/sda4
	Start int64  `json:"start"`    // bytes
	Bytes int64  `json:"bytes"`
}

// Verity says what checks the root while it is read.
type Verity struct {
	RootHash string `json:"rootHash"`
	Device   string `json:"device"` // /dev/dm-0
	Blocks   uint64 `json:"blocks"` // of BlockSize
}

// MachineID is the identity this boot runs with and where it is from.
type MachineID struct {
	ID     string `json:"id"`     // 32 lower-case hex digits
	Source string `json:"source"` // MachineIDFromData or MachineIDMinted
}

const (
	MachineIDFromData = "data"   // read from the DATA partition
	MachineIDMinted   = "minted" // no DATA partition had one: new, to be persisted
)

// Partition returns the partition with this name; ok is false if the disk has none.
func (b BootInfo) Partition(name string) (p Partition, ok bool) {
	for _, p := range b.Partitions {
		if p.Name == name {
			return p, true
		}
	}
	return Partition{}, false
}

// StorageInfo is the record that `firstlightd storage` leaves in StorageInfoFile.
type StorageInfo struct {
	State  StorageState `json:"state"`
	Reason string       `json:"reason,omitempty"` // one sentence for people, always there unless state is data
	Device string       `json:"device,omitempty"` // /dev/sda6
	GUID   string       `json:"partuuid,omitempty"`
	Bytes  int64        `json:"bytes,omitempty"` // of the partition
	Site   bool         `json:"site"`            // SITE is mounted at SiteDir
	Seal   Seal         `json:"seal,omitempty"`  // by which DATA is opened at the next boot; empty without DATA

	KeyFile  bool   `json:"keyFile,omitempty"`  // a key file of the owner opens it, too
	SealNote string `json:"sealNote,omitempty"` // one sentence for people about what did not succeed with the seal

	// BootNote is for people: what checks the boot before the root does, what nothing checks, and what hinders the owner's
	// keys from being enrolled.
	BootNote string `json:"bootNote,omitempty"`
}

// Seal says what opens DATA.
type Seal string

const (
	SealTPM     Seal = "tpm"      // a key that this machine's TPM alone unseals
	SealKeyFile Seal = "key-file" // a file of the owner, on another medium
	SealBeside  Seal = "beside"   // a key next to the data: it protects nothing
	SealNone    Seal = "none"     // DATA of an earlier version, not encrypted
)

// StorageState says where state is kept.
type StorageState string

const (
	StorageData     StorageState = "data"     // on the DATA partition; survives power cuts
	StorageVolatile StorageState = "volatile" // in memory, since the stick has no room; lost at power off
	// StorageBroken: there is a DATA partition, and it cannot be used. What this appliance
	// has done before is unknown, so nothing may be provisioned until a person has looked.
	StorageBroken StorageState = "broken"
	// StorageLocked: DATA is encrypted and nothing here opens it, or it was not made because the site requires a seal
	// that this machine does not have. Nothing was written.
	StorageLocked StorageState = "locked"
)

// Load reads a record (Boot or Storage) from path.
func Load[T BootInfo | StorageInfo](path string) (T, error) {
	var v T
	b, err := os.ReadFile(path)
	if err != nil {
		return v, fmt.Errorf("read record: %w", err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return v, fmt.Errorf("read record %s: %w", path, err)
	}

	return v, nil
}

// ImageVersion is the version of the image that this system was started from, by the record at path. A system that
// was started otherwise has the version that is worked towards.
func ImageVersion(path string) string {
	boot, err := Load[BootInfo](path)
	if err != nil {
		return assets.Version
	}
	return cmp.Or(boot.Version, assets.Version)
}

// Save writes a record to path, whole or not at all.
func Save[T BootInfo | StorageInfo](path string, v T) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write record %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write record: %w", err)
	}

	return atomicfile.Write(path, append(b, '\n'), 0o644)
}
