// Package stick is what the two sides must agree on about the boot medium itself: the
// names of its partitions, the files its boot loader reads, the kernel parameters that
// lead the initramfs back to the very disk the firmware started, and the record of what
// the initramfs found. The builder writes by it, firstlight-init and the daemon read by it.
package stick

// Names of the GPT partitions. They are looked up by name only within the one disk that
// holds the ESP we were started from; across disks they mean nothing.
const (
	PartitionBIOS  = "BIOS"
	PartitionESP   = "ESP"
	PartitionSite  = "SITE"
	PartitionRootA = "ROOT-A"
	PartitionRootB = "ROOT-B"
	PartitionData  = "DATA"
	PartitionBootA = "BOOT-A"
	PartitionBootB = "BOOT-B"
)

// Numbers of the boot partitions in the table, by which grub.cfg finds them. They are behind that of DATA, which sticks
// of all versions have as number 6.
const (
	NumberBootA = 7
	NumberBootB = 8
)

// GrubConfigPath on the ESP is compiled into Debian's signed GRUB; our BIOS core uses the same.
const GrubConfigPath = "/EFI/debian/grub.cfg"

// Files on the ESP for Secure Boot with the owner's keys.
const (
	// OwnedGRUBPath is a GRUB that waits for an owner to sign it. Nothing starts it there.
	OwnedGRUBPath = "/EFI/firstlight/grubx64.efi"
	// LoaderPath is what firmware starts: Debian's shim, or the GRUB that the owner signed.
	LoaderPath = "/EFI/BOOT/BOOTX64.EFI"
	// KeysDir has what the owner's keys make the firmware's variables: PK.auth, KEK.auth and db.auth.
	KeysDir = "/EFI/firstlight/keys"
)

// IOMMUMark is a file of an installed node, in its root: the boot loader of the stick's node images starts a system that
// has it with IOMMUParameters.
const (
	IOMMUMark       = "/etc/firstlight-iommu"
	IOMMUParameters = "intel_iommu=on iommu=pt"
)

// Kernel parameters.
const (
	// ParamESP carries the unique GUID of the ESP that GRUB was loaded from. Disks get
	// their own GUIDs when written, so this names one stick among several.
	ParamESP = "firstlight.esp"
	// ParamSlot says which slot is started: a or b.
	ParamSlot = "firstlight.slot"
	// ParamTrial is there while a version is tried: what hangs or fails then ends in a restart.
	ParamTrial = "firstlight.trial"
	// ParamVerity carries the root hash of the slot's dm-verity tree, 64 hex digits.
	ParamVerity = "firstlight.verity"
	// ParamVersion carries the version of the image. It stands here and in no program, so that another commit
	// makes only the boot partition new.
	ParamVersion = "firstlight.version"
)

// BlockSize is the block size of the dm-verity tree and the alignment of what lies in
// a root partition: squashfs, padded to BlockSize; the verity superblock, one block; the hash tree.
// This is the layout that `veritysetup format --hash-offset` gives.
const BlockSize = 4096

// Paths on the running appliance.
const (
	RunDir          = "/run/firstlight"              // tmpfs, made by firstlight-init
	BootInfoFile    = "/run/firstlight/boot.json"    // Boot, by firstlight-init
	StorageInfoFile = "/run/firstlight/storage.json" // Storage, by `firstlightd storage`
	KeptFile        = "/run/firstlight/kept"         // there when the version on trial is kept
	DamageFile      = "/run/firstlight/damage"       // one line per corrupted block, by firstlight-init's watcher
	SiteDir         = "/run/firstlight/site"         // SITE, mounted read-only
	DataDir         = "/var/lib/firstlight"          // DATA, or a tmpfs when there is none
	// MachineIDName is the file in DATA's root that keeps the identity: 32 hex digits.
	MachineIDName = "machine-id"
	LowerDir      = "/run/firstlight/root" // the read-only root itself, below the overlay
)

// NumberData is DATA's number in the table.
const NumberData = 6

// The medium on which an owner keeps a key of DATA: a file system with this label, as it has room for in FAT, with this
// file at its top. It is only ever read.
const (
	KeyMediumLabel = "FL-KEY"
	KeyFileName    = "firstlight.key"

	EnrollTriesName = "secureboot-tries.txt" // on SITE: how often the owner's keys were written to the firmware
)
