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
)

// Paths on the ESP that grub.cfg reads and the builder fills.
const (
	KernelPath     = "/firstlight/vmlinuz"
	InitramfsPath  = "/firstlight/initramfs.img"
	GrubConfigPath = "/EFI/debian/grub.cfg" // compiled into Debian's signed GRUB; our BIOS core uses the same
)

// IOMMUMark is a file of an installed node, in its root: the boot loader of the stick's node images starts a system that
// has it with IOMMUParameters.
const (
	IOMMUMark       = "/etc/firstlight-iommu"
	IOMMUParameters = "intel_iommu=on iommu=pt"
)

// Placeholders stand in overlays/esp's grub.cfg where the builder puts a value.
const (
	VerityPlaceholder  = "@VERITY@"  // root hash of ROOT-A: 64 lower-case hexadecimal digits
	VersionPlaceholder = "@VERSION@" // of the image, without spaces
)

// Kernel parameters.
const (
	// ParamESP carries the unique GUID of the ESP that GRUB was loaded from. Disks get
	// their own GUIDs when written, so this names one stick among several.
	ParamESP = "firstlight.esp"
	// ParamVerity carries the root hash of ROOT-A's dm-verity tree, 64 hex digits.
	ParamVerity = "firstlight.verity"
	// ParamVersion carries the version of the image. It stands here and in no program, so that another commit
	// makes only the ESP new.
	ParamVersion = "firstlight.version"
)

// BlockSize is the block size of the dm-verity tree and the alignment of what lies in
// ROOT-A: squashfs, padded to BlockSize; the verity superblock, one block; the hash tree.
// This is the layout that `veritysetup format --hash-offset` gives.
const BlockSize = 4096

// Paths on the running appliance.
const (
	RunDir          = "/run/firstlight"              // tmpfs, made by firstlight-init
	BootInfoFile    = "/run/firstlight/boot.json"    // Boot, by firstlight-init
	StorageInfoFile = "/run/firstlight/storage.json" // Storage, by `firstlightd storage`
	DamageFile      = "/run/firstlight/damage"       // one line per corrupted block, by firstlight-init's watcher
	SiteDir         = "/run/firstlight/site"         // SITE, mounted read-only
	DataDir         = "/var/lib/firstlight"          // DATA, or a tmpfs when there is none
	// MachineIDName is the file in DATA's root that keeps the identity: 32 hex digits.
	MachineIDName = "machine-id"
	LowerDir      = "/run/firstlight/root" // the read-only root itself, below the overlay
)
