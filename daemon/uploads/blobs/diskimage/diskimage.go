// Package diskimage looks at the first 33 KiB of an operating system's image and says whether
// Ironic can write it to a disk: qcow2 or raw, nothing that must be unpacked first, and
// nothing that reads other files. It reads no more than it is given and trusts none of it.
package diskimage

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// HeadLength is how many octets Check wants, or all if the image is shorter: an ISO has its mark behind 32 KiB
// (ECMA-119, "Volume Descriptors"), and may have a boot sector before it.
const HeadLength = 33 << 10

// Info is what an image is.
type Info struct {
	Format      string // qcow2 or raw
	VirtualSize int64  // octets of the disk that it makes
}

// Check says what an image of so many octets is by its first ones, or in a sentence why it
// cannot be used.
func Check(head []byte, length int64) (Info, error) {
	head = head[:min(len(head), HeadLength)]
	if bytes.HasPrefix(head, []byte("QFI\xfb")) {
		return checkQCOW2(head, length)
	}

	for _, k := range unusableKinds() {
		if len(head) >= k.at+len(k.magic) && string(head[k.at:k.at+len(k.magic)]) == k.magic {
			return Info{}, fmt.Errorf("it is %s; %s", k.what, k.instead)
		}
	}

	return checkRaw(head, length)
}

type signature struct {
	at                   int
	magic, what, instead string
}

// unusableKinds lists what people upload instead, by signature.
func unusableKinds() []signature {
	const (
		unpack  = "unpack it first"
		convert = "convert it first: qemu-img convert -O qcow2"
	)
	return []signature{
		{0, "\x1f\x8b", "compressed by gzip", unpack},
		{0, "\xfd7zXZ\x00", "compressed by xz", unpack},
		{0, "\x28\xb5\x2f\xfd", "compressed by zstd", unpack},
		{0, "BZh", "compressed by bzip2", unpack},
		{0, "PK\x03\x04", "a zip archive", unpack},
		{257, "ustar", "a tar archive", unpack},
		{0, "KDMV", "a VMDK image", convert},
		{0, "# Disk DescriptorFile", "a VMDK description", convert},
		{0, "vhdxfile", "a VHDX image", convert},
		{0, "conectix", "a VHD image", convert},
		{32<<10 + 1, "CD001", "an ISO, which is started from a drive", "use the disk image of that system, qcow2 or raw"},
		{0x40, "\x7f\x10\xda\xbe", "a VDI image", convert},
		{0, "QED\x00", "a QED image", convert},
		{0, "LUKS\xba\xbe", "an encrypted volume", "nothing can boot it"},
	}
}

// checkRaw is what a disk holds, whole sectors with a boot signature: a partition table, of
// either kind, or a boot sector.
func checkRaw(head []byte, length int64) (Info, error) {
	switch {
	case len(head) < 512:
		return Info{}, fmt.Errorf("it has %d bytes, less than a sector, and is not qcow2", length)
	case head[510] != 0x55 || head[511] != 0xaa:
		return Info{}, fmt.Errorf(
			"it is neither qcow2 nor a raw disk: bytes 510 and 511 are %02x %02x, not the boot signature 55 aa",
			head[510], head[511],
		)
	case length%512 != 0:
		return Info{}, fmt.Errorf(
			"it is a raw disk of %d bytes, which are not whole sectors of 512: it is truncated", length,
		)
	}
	return Info{Format: "raw", VirtualSize: length}, nil
}

// Bits of a version 3 header's incompatible features (QEMU, docs/interop/qcow2.rst).
const (
	featureDirty       = 1 << 0 // reference counts may be wrong; reading does not need them
	featureCorrupt     = 1 << 1
	featureData        = 1 << 2 // the content is in another file
	featureCompression = 1 << 3
	featureExtendedL2  = 1 << 4
)

// checkQCOW2 checks the header and that the tables it names lie within the file.
func checkQCOW2(head []byte, length int64) (Info, error) {
	be32 := func(at int) uint32 { return binary.BigEndian.Uint32(head[at:]) }
	be64 := func(at int) uint64 { return binary.BigEndian.Uint64(head[at:]) }
	if len(head) < 72 {
		return Info{}, fmt.Errorf("it is a qcow2 image of %d bytes, less than its header", length)
	}

	version, bits, size := be32(4), be32(20), be64(24)
	var features uint64
	switch {
	case version == 3 && len(head) < 104:
		return Info{}, fmt.Errorf("it is a qcow2 image of %d bytes, less than its header", length)
	case version == 3:
		features = be64(72)
	case version != 2:
		return Info{}, fmt.Errorf("it is qcow2 of version %d; use 2 or 3", version)
	}

	switch {
	case be64(8) != 0:
		return Info{}, fmt.Errorf("it has a backing file, which nodes do not have; convert it to one without: qemu-img convert -O qcow2")
	case features&featureData != 0:
		return Info{}, fmt.Errorf("its content is in another file; convert it to one without: qemu-img convert -O qcow2")
	case be32(32) != 0:
		return Info{}, fmt.Errorf("it is encrypted; nothing can boot it")
	case features&featureCorrupt != 0:
		return Info{}, fmt.Errorf("it is marked as corrupt; repair it: qemu-img check -r all")
	case features&^(featureDirty|featureCorrupt|featureData|featureCompression|featureExtendedL2) != 0:
		return Info{}, fmt.Errorf("it needs features %#x that are unknown here", features)
	case bits < 9 || bits > 21:
		return Info{}, fmt.Errorf("its clusters are of 2^%d bytes; 2^9 to 2^21 are allowed", bits)
	case size == 0 || size > 1<<60:
		return Info{}, fmt.Errorf("its disk has %d bytes", size)
	}

	cluster, entry := uint64(1)<<bits, uint64(8)
	if features&featureExtendedL2 != 0 {
		entry = 16
	}

	covers := cluster * (cluster / entry) // of the disk, by one L1 entry
	entries, table := uint64(be32(36)), be64(40)
	switch {
	case entries < (size+covers-1)/covers:
		return Info{}, fmt.Errorf("its first table has %d entries, too few for a disk of %d bytes", entries, size)
	case !isWithin(table, entries*8, cluster, length):
		return Info{}, fmt.Errorf(
			"its first table is at %d, beyond the %d bytes of the file: it is truncated", table, length,
		)
	case !isWithin(be64(48), uint64(be32(56))*cluster, cluster, length):
		return Info{}, fmt.Errorf(
			"its reference counts are at %d, beyond the %d bytes of the file: it is truncated", be64(48), length,
		)
	}

	return Info{Format: "qcow2", VirtualSize: int64(size)}, nil
}

// isWithin tells whether a table begins at a cluster and ends within the file. QEMU lets the
// last cluster of a file be short, but no table.
func isWithin(at, size, cluster uint64, length int64) bool {
	return at%cluster == 0 && at >= cluster && at <= uint64(length) && size <= uint64(length)-at
}
