// Package fat reads FAT32 file systems by their specification (Microsoft, "FAT: General
// Overview of On-Disk Format", 1.03), checks them, and mends what the library that writes
// ours leaves wrong. It takes any bytes: a broken file system is an error, never a hang.
package fat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf16"
)

const (
	sector     = 512
	entrySize  = 32
	endOfChain = 0x0ffffff8
	mask       = 0x0fffffff

	attrDir   = 0x10
	attrLabel = 0x08
	attrLong  = 0x0f
)

// What a file system may ask for, which comes from an image that nobody has signed yet: bytes of one file that is read, of
// all directories together, and parts of one long name (by the specification).
const (
	maxFile        = 512 << 20
	maxDirectories = 64 << 20
	maxLong        = 20
)

// Volume is a FAT32 file system.
type Volume struct {
	ID    uint32
	Label string // of the boot sector

	r                     io.ReaderAt
	table                 []byte // the first FAT
	clusterSize           int64
	reserved, fatSectors  int64
	copies                int64
	dataStart             int64 // bytes
	clusters              uint32
	unmapped              int64 // clusters that the boot sector claims and the FAT has no entry for
	root                  uint32
	infoSector, backupSec int64
}

// Entry is a file or directory.
type Entry struct {
	Path string // slash-separated, without a leading slash
	Dir  bool
	Size int64

	cluster uint32
}

// Open reads boot sector and FAT.
func Open(r io.ReaderAt) (*Volume, error) {
	b := make([]byte, sector)
	if _, err := r.ReadAt(b, 0); err != nil {
		return nil, fmt.Errorf("read boot sector: %w", err)
	}

	le := binary.LittleEndian
	if b[510] != 0x55 || b[511] != 0xaa || le.Uint16(b[11:]) != sector || string(b[82:90]) != "FAT32   " {
		return nil, errors.New("boot sector: not a FAT32 file system with sectors of 512 bytes")
	}

	perCluster := int64(b[13])
	v := &Volume{
		r:           r,
		ID:          le.Uint32(b[67:]),
		Label:       strings.TrimRight(string(b[71:82]), " "),
		clusterSize: perCluster * sector,
		reserved:    int64(le.Uint16(b[14:])),
		copies:      int64(b[16]),
		fatSectors:  int64(le.Uint32(b[36:])),
		root:        le.Uint32(b[44:]),
		infoSector:  int64(le.Uint16(b[48:])),
		backupSec:   int64(le.Uint16(b[50:])),
	}
	total := int64(le.Uint32(b[32:]))
	data := v.reserved + v.copies*v.fatSectors
	switch {
	case perCluster == 0 || perCluster&(perCluster-1) != 0:
		return nil, fmt.Errorf("boot sector: %d sectors in a cluster", perCluster)
	case v.reserved == 0 || v.copies == 0 || v.copies > 2 || v.fatSectors == 0 || v.fatSectors > 1<<16:
		return nil, fmt.Errorf(
			"boot sector: %d reserved sectors, %d FATs of %d sectors", v.reserved, v.copies, v.fatSectors,
		)
	case total <= data:
		return nil, fmt.Errorf("boot sector: %d sectors hold no data after %d of tables", total, data)
	}

	v.dataStart = data * sector
	claimed := (total - data) / perCluster
	mapped := v.fatSectors*sector/4 - 2
	v.clusters, v.unmapped = uint32(min(claimed, mapped)), max(claimed-mapped, 0)
	v.table = make([]byte, v.fatSectors*sector)
	if _, err := r.ReadAt(v.table, v.reserved*sector); err != nil {
		return nil, fmt.Errorf("read FAT: %w", err)
	}

	return v, nil
}

func (v *Volume) nextCluster(c uint32) uint32 {
	return binary.LittleEndian.Uint32(v.table[4*c:]) & mask
}
func (v *Volume) clusterOffset(c uint32) int64 { return v.dataStart + int64(c-2)*v.clusterSize }
func (v *Volume) isValid(c uint32) bool        { return c >= 2 && c < v.clusters+2 }

// chain lists the clusters from first on; first 0 is the empty chain.
func (v *Volume) chain(first uint32) ([]uint32, error) {
	var out []uint32
	for c := first; c != 0 && c < endOfChain; c = v.nextCluster(c) {
		if !v.isValid(c) {
			return nil, fmt.Errorf("cluster chain from %d: cluster %d does not exist", first, c)
		}
		if out = append(out, c); len(out) > int(v.clusters) {
			return nil, fmt.Errorf("cluster chain from %d: it has a loop", first)
		}
		if v.nextCluster(c) == 0 {
			return nil, fmt.Errorf("cluster chain from %d: it ends in the free cluster %d", first, c)
		}
	}
	return out, nil
}

// dirEntry is one short directory entry: its bytes, where they are, and its long name.
type dirEntry struct {
	b    []byte
	at   int64
	name string
	sums []byte // that the parts of its long name have of the short one; none without a long name
}

func (e dirEntry) cluster() uint32 {
	le := binary.LittleEndian
	return uint32(le.Uint16(e.b[20:]))<<16 | uint32(le.Uint16(e.b[26:]))
}

// isDot says whether the entry is "." or "..", which point back up.
func (e dirEntry) isDot() bool { return e.b[0] == '.' }

// maxDirectory is where FAT itself limits a directory: 65536 entries.
const maxDirectory = 65536 * entrySize

// entries reads the short entries of the directory that starts at cluster first, which has size bytes.
func (v *Volume) entries(first uint32) (out []dirEntry, size int64, err error) {
	chain, err := v.chain(first)
	if err != nil {
		return nil, 0, err
	}
	if size = int64(len(chain)) * v.clusterSize; size > maxDirectory {
		return nil, 0, fmt.Errorf("directory at cluster %d: larger than FAT allows", first)
	}

	var long []uint16
	var sums []byte
	for _, c := range chain {
		b := make([]byte, v.clusterSize)
		if _, err := v.r.ReadAt(b, v.clusterOffset(c)); err != nil {
			return nil, 0, fmt.Errorf("read directory cluster %d: %w", c, err)
		}
		for i := 0; i < len(b); i += entrySize {
			e := b[i : i+entrySize]
			switch {
			case e[0] == 0:
				return out, size, nil
			case e[0] == 0xe5:
				long, sums = nil, nil
			case e[11]&0x3f == attrLong && len(sums) == maxLong: // no name: it has more parts than one can have
			case e[11]&0x3f == attrLong:
				long, sums = append(longPart(e), long...), append(sums, e[13])
			default:
				out = append(out, dirEntry{e, v.clusterOffset(c) + int64(i), entryName(e, long), sums})
				long, sums = nil, nil
			}
		}
	}

	return out, size, nil
}

func longPart(e []byte) []uint16 {
	var out []uint16
	for _, span := range [][2]int{{1, 11}, {14, 26}, {28, 32}} {
		for i := span[0]; i < span[1]; i += 2 {
			u := binary.LittleEndian.Uint16(e[i:])
			if u == 0 || u == 0xffff {
				return out
			}
			out = append(out, u)
		}
	}
	return out
}

func entryName(e []byte, long []uint16) string {
	if len(long) > 0 {
		return string(utf16.Decode(long))
	}

	name, ext := strings.TrimRight(string(e[0:8]), " "), strings.TrimRight(string(e[8:11]), " ")
	if ext != "" {
		name += "." + ext
	}

	return name
}

// walk calls visit for every entry of every directory, the parent's cluster with it.
func (v *Volume) walk(visit func(dir string, parent uint32, e dirEntry) error) error {
	type todo struct {
		path    string
		cluster uint32
	}
	seen, room := map[uint32]bool{v.root: true}, int64(maxDirectories)
	for list := []todo{{"", v.root}}; len(list) > 0; list = list[1:] {
		entries, size, err := v.entries(list[0].cluster)
		if err != nil {
			return fmt.Errorf("directory /%s: %w", list[0].path, err)
		}
		if room -= size; room < 0 {
			return fmt.Errorf("directory /%s: with the others it is larger than all of any stick", list[0].path)
		}
		for _, e := range entries {
			if err := visit(list[0].path, list[0].cluster, e); err != nil {
				return err
			}
			if e.b[11]&attrDir == 0 || e.isDot() {
				continue
			}

			name := path.Join(list[0].path, e.name)
			if seen[e.cluster()] {
				return fmt.Errorf("directory /%s: its cluster %d belongs to another directory", name, e.cluster())
			}

			seen[e.cluster()] = true
			list = append(list, todo{name, e.cluster()})
		}
	}

	return nil
}

// List returns every file and directory, parents before what is in them.
func (v *Volume) List() ([]Entry, error) {
	var out []Entry
	err := v.walk(func(dir string, _ uint32, e dirEntry) error {
		if e.isDot() || e.b[11]&attrLabel != 0 {
			return nil
		}
		out = append(out, Entry{
			Path: path.Join(dir, e.name), Dir: e.b[11]&attrDir != 0,
			Size: int64(binary.LittleEndian.Uint32(e.b[28:])), cluster: e.cluster(),
		})
		return nil
	})
	return out, err
}

// ReadFile returns the content of the file at path, which is compared without case.
func (v *Volume) ReadFile(name string) ([]byte, error) {
	list, err := v.List()
	if err != nil {
		return nil, err
	}

	for _, e := range list {
		if !e.Dir && strings.EqualFold(e.Path, strings.TrimPrefix(name, "/")) {
			return v.readContent(e)
		}
	}

	return nil, fmt.Errorf("read /%s: there is no such file", strings.TrimPrefix(name, "/"))
}

func (v *Volume) readContent(e Entry) ([]byte, error) {
	chain, err := v.chain(e.cluster)
	if err != nil {
		return nil, fmt.Errorf("read /%s: %w", e.Path, err)
	}
	if int64(len(chain))*v.clusterSize < e.Size {
		return nil, fmt.Errorf("read /%s: %d bytes, but only %d clusters", e.Path, e.Size, len(chain))
	}

	if e.Size > maxFile {
		return nil, fmt.Errorf("read /%s: %d bytes, more than any file of a stick has", e.Path, e.Size)
	}

	b := make([]byte, e.Size)
	for i, c := range chain {
		at := int64(i) * v.clusterSize
		if at >= e.Size {
			break // what follows is not the file's
		}
		if _, err := v.r.ReadAt(b[at:min(at+v.clusterSize, e.Size)], v.clusterOffset(c)); err != nil {
			return nil, fmt.Errorf("read /%s: %w", e.Path, err)
		}
	}

	return b, nil
}

// End is where the last cluster in use ends, in bytes from the start of the file system.
func (v *Volume) End() int64 {
	_, last := v.countClusters()
	return v.clusterOffset(last + 1)
}

// Offset is where the content of the file at path begins, in bytes from the start of the file system.
func (v *Volume) Offset(name string) (int64, error) {
	list, err := v.List()
	if err != nil {
		return 0, err
	}

	for _, e := range list {
		if !e.Dir && strings.EqualFold(e.Path, strings.TrimPrefix(name, "/")) && v.isValid(e.cluster) {
			return v.clusterOffset(e.cluster), nil
		}
	}

	return 0, fmt.Errorf("find /%s: there is no such file with content", strings.TrimPrefix(name, "/"))
}
