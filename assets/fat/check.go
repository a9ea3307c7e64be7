package fat

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path"
	"slices"
)

// Check looks at the whole file system and returns one line for each fault: boot sectors
// and FAT copies that differ, counters that are wrong, clusters in two files or in none,
// sizes that do not match, ".." that leads elsewhere.
func (v *Volume) Check() []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }

	v.checkCopies(fault)
	owner := map[uint32]string{}
	own := func(name string, first uint32) int {
		chain, err := v.chain(first)
		if err != nil {
			fault("/%s: %v", name, err)
		}

		for _, c := range chain {
			if other, taken := owner[c]; taken {
				fault("/%s: cluster %d is also in /%s", name, c, other)
			}
			owner[c] = name
		}

		return len(chain)
	}
	own("", v.root)
	err := v.walk(func(dir string, parent uint32, e dirEntry) error {
		name := path.Join(dir, e.name)
		if slices.ContainsFunc(e.sums, func(sum byte) bool { return sum != shortSum(e.b) }) {
			fault("/%s: its long name is not that of its entry", name) // other readers see it by its short one
		}
		size := int64(binary.LittleEndian.Uint32(e.b[28:]))
		switch {
		case e.b[11]&attrLabel != 0:
		case e.isDot():
			if want := parent; e.b[1] != '.' && e.cluster() != want {
				fault("/%s: \".\" says cluster %d, the directory is at %d", dir, e.cluster(), want)
			}
		case e.b[11]&attrDir != 0:
			own(name, e.cluster())
			v.checkDotDot(name, parent, e.cluster(), fault)
		default:
			n := int64(own(name, e.cluster()))
			if want := (size + v.clusterSize - 1) / v.clusterSize; n != want {
				fault("/%s: %d bytes need %d clusters, it has %d", name, size, want, n)
			}
		}

		return nil
	})
	if err != nil {
		fault("%v", err)
		return faults
	}

	for c := uint32(2); c < v.clusters+2; c++ {
		if _, ok := owner[c]; !ok && v.nextCluster(c) != 0 {
			fault("cluster %d is in use by no file", c)
		}
	}

	return faults
}

// shortSum is the checksum of an entry's short name that each part of its long one has (FAT specification, 7.2).
func shortSum(entry []byte) (sum byte) {
	for _, b := range entry[:11] {
		sum = sum>>1 | sum<<7
		sum += b
	}
	return sum
}

func (v *Volume) checkDotDot(name string, parent, cluster uint32, fault func(string, ...any)) {
	entries, _, err := v.entries(cluster)
	if err != nil {
		return // walk reports it
	}

	if parent == v.root {
		parent = 0
	}

	for _, e := range entries {
		if e.isDot() && e.b[1] == '.' {
			if e.cluster() != parent {
				fault("/%s: \"..\" says cluster %d, the parent is %d", name, e.cluster(), parent)
			}
			return
		}
	}

	fault("/%s: no \"..\" entry", name)
}

// checkCopies compares boot sectors, FATs and counters with their copies.
func (v *Volume) checkCopies(fault func(string, ...any)) {
	read := func(at, n int64) []byte {
		b := make([]byte, n)
		if _, err := v.r.ReadAt(b, at); err != nil {
			fault("read %d bytes at %d: %v", n, at, err)
		}
		return b
	}
	if v.unmapped > 0 {
		fault("the boot sector claims %d clusters more than the FAT has entries for", v.unmapped)
	}

	if v.backupSec > 0 && !bytes.Equal(read(0, sector), read(v.backupSec*sector, sector)) {
		fault("boot sector and its copy in sector %d differ", v.backupSec)
	}

	for i := int64(1); i < v.copies; i++ {
		at := (v.reserved + i*v.fatSectors) * sector
		second := read(at, int64(len(v.table)))
		for j := range v.table {
			if v.table[j] != second[j] {
				fault("the FATs differ for cluster %d, at offset %d", j/4, at+int64(j))
				break
			}
		}
	}

	info := read(v.infoSector*sector, sector)
	le := binary.LittleEndian
	if le.Uint32(info) != 0x41615252 || le.Uint32(info[484:]) != 0x61417272 || le.Uint32(info[508:]) != 0xaa550000 {
		fault("the counter sector %d has no signature", v.infoSector)
	} else if free, _ := v.countClusters(); le.Uint32(info[488:]) != free {
		fault("the counter sector says %d clusters are free, %d are", le.Uint32(info[488:]), free)
	}
}
