package disk

import (
	"fmt"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
)

// GUIDs of an image. They are the same in every build so that equal inputs give equal
// bytes; flash gives every stick its own. Nothing finds a disk by them.
const (
	stickGUID     = "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c100"
	stickBIOSGUID = "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c101"
	stickESPGUID  = "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c102"
	stickSiteGUID = "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c103"
	stickAGUID    = "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c104"
	stickBGUID    = "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c105"
	bootAGUID     = "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c107"
	bootBGUID     = "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c108"

	nodeGUID     = "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c200"
	nodeBIOSGUID = "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c201"
	nodeESPGUID  = "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c202"
	nodeRootGUID = "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c203"

	stickESPVolume  = 0xF125_0E50
	stickSiteVolume = 0xF125_51E0
	bootAVolume     = 0xF125_B001
	nodeESPVolume   = 0xF125_0E51
)

// Numbers of the roots in the table: 6 is DATA's, which the appliance makes.
const (
	numberRootA = 4
	numberRootB = 5
)

// attributeReadOnly is bit 60 of the Discoverable Partitions Specification;
// attributeNoAuto, bit 63, keeps systemd from mounting a partition on its own.
const (
	attributeReadOnly = 1 << 60
	attributeNoAuto   = 1 << 63
)

// Stick is what the appliance's disk is made of.
type Stick struct {
	ESP   []File           // shim, GRUB, its configuration and its memory
	Slot  []File           // kernel, initramfs and what they start, for slot a
	Site  []File           // what people see who put the stick into a laptop
	Root  Content          // the squashfs with its verity tree
	Boot  []byte           // GRUB's boot.img as it is in the package
	Core  []byte           // from BootLoaders
	Sizes map[string]int64 // least bytes for a partition by name; the content may need more
}

// Layout is the appliance's disk. BOOT-B and ROOT-B are an empty slot as large as BOOT-A and ROOT-A. DATA is not
// there: the appliance makes it at first boot in what the medium has left. The boot partitions are before the roots, so
// that a stick without them gets room for them out of ROOT-B, beside its DATA.
func (s Stick) Layout() (Layout, error) {
	boot, core, err := PatchGrub(s.Boot, s.Core, Align/gpt.SectorSize)
	if err != nil {
		return Layout{}, err
	}

	l := Layout{GUID: stickGUID, BootCode: boot, Partitions: []Partition{
		{Name: stick.PartitionBIOS, Type: gpt.TypeBIOSBoot, GUID: stickBIOSGUID, Content: Bytes(core)},
		{Name: stick.PartitionESP, Type: gpt.TypeESP, GUID: stickESPGUID,
			Content: FAT{Label: "ESP", VolumeID: stickESPVolume, Files: s.ESP}},
		{Name: stick.PartitionSite, Type: gpt.TypeBasicData, GUID: stickSiteGUID,
			Content: FAT{Label: "SITE", VolumeID: stickSiteVolume, Files: s.Site}},
		{Name: stick.PartitionBootA, Number: stick.NumberBootA, Type: gpt.TypeLinuxBoot, GUID: bootAGUID,
			Attributes: attributeReadOnly | attributeNoAuto,
			Content:    FAT{Label: "BOOT-A", VolumeID: bootAVolume, Files: s.Slot}},
		{Name: stick.PartitionBootB, Number: stick.NumberBootB, Type: gpt.TypeLinuxBoot, GUID: bootBGUID,
			Attributes: attributeReadOnly | attributeNoAuto, Content: Empty{}},
		{Name: stick.PartitionRootA, Number: numberRootA, Type: gpt.TypeLinuxRoot, GUID: stickAGUID,
			Attributes: attributeReadOnly | attributeNoAuto, Content: s.Root},
		{Name: stick.PartitionRootB, Number: numberRootB, Type: gpt.TypeLinuxRoot, GUID: stickBGUID,
			Attributes: attributeReadOnly | attributeNoAuto, Content: Empty{}},
	}}
	if err := l.fitSizes(s.Sizes); err != nil {
		return Layout{}, err
	}

	const bootA, bootB, rootA, rootB = 3, 4, 5, 6 // in the list
	l.Partitions[bootB].Size = max(l.Partitions[bootA].Size, l.Partitions[bootB].Size)
	l.Partitions[rootB].Size = max(l.Partitions[rootA].Size, l.Partitions[rootB].Size)
	return l, nil
}

// RootOffset is where ROOT-A begins, in bytes, whatever the root is: it can be made in its
// place before the rest is known.
func (s Stick) RootOffset() (int64, error) {
	s.Root = Empty{}
	l, err := s.Layout()
	if err != nil {
		return 0, err
	}

	at := int64(Align)
	for _, p := range l.Partitions {
		if p.Name == stick.PartitionRootA {
			break
		}
		at += p.Size
	}

	return at, nil
}

// Node is what a compute server's disk image is made of.
type Node struct {
	ESP  []File // shim, GRUB and a configuration that finds the root by its UUID
	Root string // path of the ext4 file system, by Ext4
	Boot []byte // GRUB's boot.img as it is in the package
	Core []byte // from BootLoaders
	Size int64  // least bytes for the whole disk
}

// Layout is a node's disk: the root is last so that growpart can extend it.
func (n Node) Layout() (Layout, error) {
	boot, core, err := PatchGrub(n.Boot, n.Core, Align/gpt.SectorSize)
	if err != nil {
		return Layout{}, err
	}

	l := Layout{GUID: nodeGUID, BootCode: boot, Partitions: []Partition{
		{Name: "BIOS", Type: gpt.TypeBIOSBoot, GUID: nodeBIOSGUID, Content: Bytes(core)},
		{Name: "ESP", Type: gpt.TypeESP, GUID: nodeESPGUID,
			Content: FAT{Label: "ESP", VolumeID: nodeESPVolume, Files: n.ESP}},
		{Name: "ROOT", Type: gpt.TypeLinuxRoot, GUID: nodeRootGUID, Content: Image(n.Root)},
	}}
	if err := l.fitSizes(nil); err != nil {
		return Layout{}, err
	}

	if missing := n.Size - l.End(); missing > 0 {
		l.Partitions[2].Size += roundUp(missing, Align)
	}

	return l, nil
}

// fitSizes gives every partition the size its content needs, at least what is asked.
func (l *Layout) fitSizes(asked map[string]int64) error {
	known := map[string]bool{}
	for i := range l.Partitions {
		p := &l.Partitions[i]
		known[p.Name] = true
		least, err := p.Content.minSize()
		if err != nil {
			return fmt.Errorf("size partition %s: %w", p.Name, err)
		}

		p.Size = max(roundUp(least, Align), roundUp(asked[p.Name], Align), Align)
	}

	for name := range asked {
		if !known[name] {
			return fmt.Errorf("size partition %s: the layout has no partition of that name", name)
		}
	}

	return nil
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }
