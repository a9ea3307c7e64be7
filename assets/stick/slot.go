package stick

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Slot is one of the two places for a version of the appliance. Each has a partition that the boot loader reads, with
// kernel and initramfs, and one for the root. The appliance runs from one of them and updates the other.
type Slot string

const (
	SlotA Slot = "a" // where the builder puts the version of the image
	SlotB Slot = "b" // empty in an image
)

// Other is the slot that is not s.
func (s Slot) Other() Slot {
	if s == SlotB {
		return SlotA
	}
	return SlotB
}

// Boot is the name of the partition with the slot's kernel and initramfs.
func (s Slot) Boot() string {
	if s == SlotB {
		return PartitionBootB
	}
	return PartitionBootA
}

// Root is the name of the partition with the slot's root.
func (s Slot) Root() string {
	if s == SlotB {
		return PartitionRootB
	}
	return PartitionRootA
}

// Files at the top of a slot's boot partition.
const (
	KernelName     = "vmlinuz"
	InitramfsName  = "initramfs.img"
	SlotConfigName = "slot.cfg"
	SignatureName  = "slot.minisig"
)

// SignatureSize is how long the file SignatureName is: the place for the signature of the image that the slot's version
// came in (package signature), one sector. It is empty in an image, and filled in its place when the image is written to a
// stick, so that the image has the same bytes whoever signs it, and no table of the file system changes.
const SignatureSize = 512

// PadSignature fills a text with line ends up to SignatureSize. A text that is longer is truncated.
func PadSignature(text []byte) []byte {
	padded := bytes.Repeat([]byte("\n"), SignatureSize)
	copy(padded, text)
	return padded
}

// SlotConfig says what a slot starts. Digests are 64 lower-case hexadecimal digits.
type SlotConfig struct {
	Version   string // of the image, without spaces
	RootHash  string // of the root's dm-verity tree
	Kernel    string // sha256 of the file
	Initramfs string // sha256 of the file
}

// Encode gives the text that grub.cfg reads (GRUB manual, "source" and "set"). GRUB hands version and root hash to the
// kernel; the other two are for whoever checks an image or writes a slot.
func (c SlotConfig) Encode() []byte {
	return fmt.Appendf(nil, `# What this slot starts; grub.cfg on the ESP reads it.
set version=%s
set verity=%s
set kernel=%s
set initramfs=%s
`, c.Version, c.RootHash, c.Kernel, c.Initramfs)
}

// ParseSlotConfig reads such a text; all of it must be there.
func ParseSlotConfig(text []byte) (SlotConfig, error) {
	var c SlotConfig
	values := map[string]*string{
		"version": &c.Version, "verity": &c.RootHash, "kernel": &c.Kernel, "initramfs": &c.Initramfs,
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) != 2 || words[0] != "set" {
			continue
		}

		name, value, _ := strings.Cut(words[1], "=")
		if to := values[name]; to != nil {
			*to = value
		}
	}

	for _, name := range slices.Sorted(maps.Keys(values)) {
		if *values[name] == "" {
			return c, fmt.Errorf("%s does not say what %s is", SlotConfigName, name)
		}
	}
	return c, nil
}
