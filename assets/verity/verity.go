// Package verity makes and checks dm-verity hash trees. The tree lies directly behind the
// data it vouches for: superblock, then the levels from the top down to the leaves, which
// is what `veritysetup format --hash-offset` writes and the kernel's dm-verity target
// reads (kernel documentation, admin-guide/device-mapper/verity). It is written here, not
// by veritysetup, because verify must recompute it anyway to say which block differs.
package verity

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"
)

// BlockSize is the size of data and hash blocks in bytes.
const BlockSize = 4096

const (
	perBlock  = BlockSize / sha256.Size
	maxLevels = 8 // 128^8 blocks are beyond any disk
)

// Super is a verity superblock of format 1.
type Super struct {
	UUID   [16]byte // in text order
	Salt   []byte   // at most 256 bytes
	Blocks uint64   // of data
}

var magic = []byte("verity\x00\x00")

// ErrNoSuper says that a block holds no verity superblock.
var ErrNoSuper = errors.New("no verity superblock")

// ParseSuper reads a superblock; only sha256 and BlockSize are accepted.
func ParseSuper(b []byte) (Super, error) {
	var s Super
	if len(b) < 512 || !bytes.Equal(b[:8], magic) {
		return s, ErrNoSuper
	}

	le := binary.LittleEndian
	algorithm := strings.TrimRight(string(b[32:64]), "\x00")
	switch {
	case le.Uint32(b[8:]) != 1 || le.Uint32(b[12:]) != 1:
		return s, fmt.Errorf(
			"verity superblock: version %d, hash type %d; want 1 and 1", le.Uint32(b[8:]), le.Uint32(b[12:]),
		)
	case algorithm != "sha256":
		return s, fmt.Errorf("verity superblock: algorithm %q; want sha256", algorithm)
	case le.Uint32(b[64:]) != BlockSize || le.Uint32(b[68:]) != BlockSize:
		return s, fmt.Errorf(
			"verity superblock: blocks of %d and %d bytes; want %d", le.Uint32(b[64:]), le.Uint32(b[68:]), BlockSize,
		)
	case le.Uint16(b[80:]) > 256:
		return s, fmt.Errorf("verity superblock: a salt of %d bytes; want at most 256", le.Uint16(b[80:]))
	}

	copy(s.UUID[:], b[16:32])
	s.Blocks = le.Uint64(b[72:])
	if s.Blocks == 0 || s.Blocks > 1<<44 {
		return s, fmt.Errorf("verity superblock: %d data blocks", s.Blocks)
	}

	s.Salt = bytes.Clone(b[88 : 88+int(le.Uint16(b[80:]))])
	return s, nil
}

// Encode gives the superblock, padded to BlockSize.
func (s Super) Encode() []byte {
	b := make([]byte, BlockSize)
	le := binary.LittleEndian
	copy(b, magic)
	le.PutUint32(b[8:], 1)
	le.PutUint32(b[12:], 1)
	copy(b[16:32], s.UUID[:])
	copy(b[32:64], "sha256")
	le.PutUint32(b[64:], BlockSize)
	le.PutUint32(b[68:], BlockSize)
	le.PutUint64(b[72:], s.Blocks)
	le.PutUint16(b[80:], uint16(len(s.Salt)))
	copy(b[88:88+256], s.Salt)
	return b
}

// level is one level of the tree: where it starts in blocks after the superblock, and how
// many blocks it has.
type level struct{ start, blocks uint64 }

// levels lists the tree's levels from the leaves up; the top has one block. A single data
// block has no tree: its digest is the root hash.
func (s Super) levels() []level {
	var sizes []uint64
	for n := s.Blocks; n > 1 && len(sizes) < maxLevels; {
		n = (n + perBlock - 1) / perBlock
		sizes = append(sizes, n)
	}

	out := make([]level, len(sizes))
	at := uint64(0)
	for i := len(sizes) - 1; i >= 0; i-- {
		out[i] = level{at, sizes[i]}
		at += sizes[i]
	}

	return out
}

// TreeSize is what superblock and tree take, in bytes.
func (s Super) TreeSize() int64 {
	n := uint64(1)
	for _, l := range s.levels() {
		n += l.blocks
	}
	return int64(n) * BlockSize
}

// ReaderWriterAt is the file a tree is appended to.
type ReaderWriterAt interface {
	io.ReaderAt
	io.WriterAt
}

// Known are digests of blocks that need not be calculated again: of those from First on, before
// End, the digest stands in Leaves at its block's place. The zero value knows none.
type Known struct {
	Leaves     []byte
	First, End uint64
	Salt       []byte // with which they were calculated
}

// Read reads what the tree behind size bytes of r knows of them, and checks nothing: which blocks
// are still the same is for the caller to set.
func Read(r io.ReaderAt, size int64) (Known, error) {
	block := make([]byte, BlockSize)
	if _, err := r.ReadAt(block, size); err != nil {
		return Known{}, fmt.Errorf("read verity superblock at %d: %w", size, err)
	}

	s, err := ParseSuper(block)
	if err != nil {
		return Known{}, err
	}

	levels := s.levels()
	if len(levels) == 0 {
		return Known{}, nil
	}

	leaves := make([]byte, levels[0].blocks*BlockSize)
	if _, err := r.ReadAt(leaves, size+BlockSize+int64(levels[0].start)*BlockSize); err != nil {
		return Known{}, fmt.Errorf("read hash tree: %w", err)
	}

	return Known{Leaves: leaves, Salt: s.Salt}, nil
}

// knownBlocks are the blocks from first to end that are known.
func (k Known) knownBlocks(s Super, blocks uint64) (first, end uint64) {
	end = min(k.End, blocks, uint64(len(k.Leaves)/sha256.Size))
	if k.First >= end || !bytes.Equal(k.Salt, s.Salt) {
		return 0, 0
	}
	return k.First, end
}

// Append computes the tree of the first size bytes of f and writes it directly behind
// them. salt is in hexadecimal digits, uuid in text form. It returns the root hash in
// hexadecimal digits.
func Append(ctx context.Context, f ReaderWriterAt, size int64, salt, uuid string, known Known) (string, error) {
	if size <= 0 || size%BlockSize != 0 {
		return "", fmt.Errorf("make verity tree: %d bytes are not a positive multiple of %d", size, BlockSize)
	}

	s := Super{Blocks: uint64(size / BlockSize)}
	var err error
	if s.Salt, err = hex.DecodeString(salt); err != nil {
		return "", fmt.Errorf("make verity tree: salt: %w", err)
	}

	id, err := hex.DecodeString(strings.ReplaceAll(uuid, "-", ""))
	if err != nil || len(id) != 16 {
		return "", fmt.Errorf("make verity tree: %q is not a UUID", uuid)
	}

	copy(s.UUID[:], id)
	digests := make([]byte, s.Blocks*sha256.Size)
	first, end := known.knownBlocks(s, s.Blocks)
	copy(digests[first*sha256.Size:], known.Leaves[first*sha256.Size:end*sha256.Size])
	for _, piece := range [][2]uint64{{0, first}, {end, s.Blocks}} {
		if err := s.digest(ctx, f, digests, piece[0], piece[1]); err != nil {
			return "", err
		}
	}

	levels := s.levels()
	for _, l := range levels {
		padded := make([]byte, l.blocks*BlockSize)
		copy(padded, digests)
		if _, err := f.WriteAt(padded, size+BlockSize+int64(l.start)*BlockSize); err != nil {
			return "", fmt.Errorf("write verity tree: %w", err)
		}
		if digests, err = s.digests(ctx, bytes.NewReader(padded), l.blocks); err != nil {
			return "", err
		}
	}

	if _, err := f.WriteAt(s.Encode(), size); err != nil {
		return "", fmt.Errorf("write verity superblock: %w", err)
	}

	return hex.EncodeToString(digests), nil
}

// digests hashes blocks of r from its start and returns the digests one after another.
func (s Super) digests(ctx context.Context, r io.ReaderAt, blocks uint64) ([]byte, error) {
	out := make([]byte, blocks*sha256.Size)
	return out, s.digest(ctx, r, out, 0, blocks)
}

// digest hashes the blocks of r from begin on, before end, and puts their digests in their places
// in out.
func (s Super) digest(ctx context.Context, r io.ReaderAt, out []byte, begin, end uint64) error {
	const batch = 512
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for first := begin; first < end; first += batch {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}

			n := min(batch, end-first)
			buf := make([]byte, n*BlockSize)
			if _, err := r.ReadAt(buf, int64(first)*BlockSize); err != nil {
				return fmt.Errorf("read block %d: %w", first, err)
			}

			h := sha256.New()
			for i := range n {
				h.Reset()
				h.Write(s.Salt)
				h.Write(buf[i*BlockSize : (i+1)*BlockSize])
				h.Sum(out[(first+i)*sha256.Size : (first+i)*sha256.Size])
			}

			return nil
		})
	}

	return g.Wait()
}

// Parts of what is checked.
const (
	PartData = "data"
	PartTree = "hash tree"
	PartTop  = "root hash"
)

// Damage is one block that does not hash to what the level above says. Offset is in bytes
// from the start of the data.
type Damage struct {
	Offset int64
	Part   string
}

// Check reads data and tree of size bytes of data from r and compares every block, from
// the root hash (hexadecimal digits) down. It reports each damaged block; a digest that
// is itself in a damaged hash block vouches for nothing, so that blocks below a damaged
// one are compared with what is stored but the damage above is reported first.
func Check(ctx context.Context, r io.ReaderAt, size int64, rootHash string) ([]Damage, error) {
	block := make([]byte, BlockSize)
	if _, err := r.ReadAt(block, size); err != nil {
		return nil, fmt.Errorf("read verity superblock at %d: %w", size, err)
	}

	s, err := ParseSuper(block)
	if err != nil {
		return nil, err
	}
	if int64(s.Blocks)*BlockSize != size {
		return nil, fmt.Errorf("verity superblock: it covers %d bytes, the data has %d", s.Blocks*BlockSize, size)
	}

	want, err := hex.DecodeString(rootHash)
	if err != nil || len(want) != sha256.Size {
		return nil, fmt.Errorf("root hash %q is not %d hexadecimal digits", rootHash, 2*sha256.Size)
	}

	var damage []Damage
	levels := s.levels()
	for i := len(levels) - 1; i >= 0; i-- {
		at := size + BlockSize + int64(levels[i].start)*BlockSize
		stored := make([]byte, levels[i].blocks*BlockSize)
		if _, err := r.ReadAt(stored, at); err != nil {
			return nil, fmt.Errorf("read hash tree at %d: %w", at, err)
		}

		got, err := s.digests(ctx, bytes.NewReader(stored), levels[i].blocks)
		if err != nil {
			return nil, err
		}

		part := PartTree
		if i == len(levels)-1 {
			part = PartTop
		}

		damage = append(damage, compareDigests(got, want, at, part)...)
		want = stored
	}

	got, err := s.digests(ctx, r, s.Blocks)
	if err != nil {
		return nil, err
	}

	return append(damage, compareDigests(got, want, 0, PartData)...), nil
}

func compareDigests(got, want []byte, at int64, part string) []Damage {
	var out []Damage
	for i := 0; i < len(got); i += sha256.Size {
		if !bytes.Equal(got[i:i+sha256.Size], want[i:i+sha256.Size]) {
			out = append(out, Damage{at + int64(i/sha256.Size)*BlockSize, part})
		}
	}
	return out
}
