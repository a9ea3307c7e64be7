package initrd

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"firstlight.dev/firstlight/assets/stick"
)

// verity describes the hash tree behind the squashfs in a root partition.
type verity struct {
	blocks    uint64 // of data, stick.BlockSize each
	hashStart uint64 // block where the tree begins
	algorithm string
	salt      string // hex, "-" if none
}

// readVerity finds the tree: the squashfs says how long it is (superblock, bytes_used),
// behind it, on the next block, lies the superblock of dm-verity as veritysetup writes
// it, and behind that the tree. Nothing here has to be trusted: a wrong value gives
// another root hash, and the kernel refuses the first read.
func readVerity(r io.ReaderAt) (verity, error) {
	le := binary.LittleEndian
	head := make([]byte, 96)
	if _, err := r.ReadAt(head, 0); err != nil {
		return verity{}, fmt.Errorf("read root superblock: %w", err)
	}
	if !bytes.Equal(head[:4], []byte("hsqs")) {
		return verity{}, fmt.Errorf("read root superblock: no squashfs (starts with %x)", head[:4])
	}

	used := le.Uint64(head[40:])
	if used < 96 || used > 1<<46 {
		return verity{}, fmt.Errorf("read root superblock: length %d makes no sense", used)
	}

	blocks := (used + stick.BlockSize - 1) / stick.BlockSize
	sb := make([]byte, 512)
	if _, err := r.ReadAt(sb, int64(blocks*stick.BlockSize)); err != nil {
		return verity{}, fmt.Errorf("read hash tree superblock: %w", err)
	}
	if !bytes.Equal(sb[:8], []byte("verity\x00\x00")) {
		return verity{}, fmt.Errorf("read hash tree superblock at byte %d: no signature", blocks*stick.BlockSize)
	}

	algorithm, _, _ := strings.Cut(string(sb[32:64]), "\x00")
	salt := int(le.Uint16(sb[80:]))
	switch {
	case le.Uint32(sb[8:]) != 1 || le.Uint32(sb[12:]) != 1:
		return verity{}, fmt.Errorf("read hash tree superblock: version %d, type %d; only 1, 1 is known",
			le.Uint32(sb[8:]), le.Uint32(sb[12:]))
	case le.Uint32(sb[64:]) != stick.BlockSize || le.Uint32(sb[68:]) != stick.BlockSize:
		return verity{}, fmt.Errorf("read hash tree superblock: blocks of %d and %d bytes; only %d is known",
			le.Uint32(sb[64:]), le.Uint32(sb[68:]), stick.BlockSize)
	case le.Uint64(sb[72:]) != blocks:
		return verity{}, fmt.Errorf("read hash tree superblock: covers %d blocks, the root has %d",
			le.Uint64(sb[72:]), blocks)
	case algorithm != "sha256":
		return verity{}, fmt.Errorf("read hash tree superblock: algorithm %q; only sha256 is known", algorithm)
	case salt > 256:
		return verity{}, fmt.Errorf("read hash tree superblock: salt of %d bytes", salt)
	}

	v := verity{blocks: blocks, hashStart: blocks + 1, algorithm: algorithm, salt: "-"}
	if salt > 0 {
		v.salt = hex.EncodeToString(sb[88 : 88+salt])
	}

	return v, nil
}

// table is the line device-mapper takes (Documentation/admin-guide/device-mapper/verity.rst).
// Without options a corrupted block gives an I/O error and an event, which the watcher shows.
func (v verity) table(device, rootHash string) string {
	return fmt.Sprintf("1 %s %s %d %d %d %d %s %s %s", device, device, stick.BlockSize, stick.BlockSize,
		v.blocks, v.hashStart, v.algorithm, rootHash, v.salt)
}
