package fat

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// Region is a file system that may be changed.
type Region struct {
	io.ReaderAt
	io.WriterAt
}

// stamp is the date and time of every entry, 2025-01-01 00:00: one that FAT can hold and
// no build can differ in.
const (
	stampDate = (2025-1980)<<9 | 1<<5 | 1
	stampTime = 0
)

// Repair puts right what go-diskfs 1.9.4 leaves: ".." of a directory below the root must
// say cluster 0, the free-cluster counters are unset, the volume has no id, the boot
// sector may claim up to two clusters that the FAT has no entries for, empty files hold a
// cluster, and entries carry the time of the build.
func Repair(f Region, id uint32) error {
	v, err := Open(f)
	if err != nil {
		return err
	}

	le := binary.LittleEndian
	err = v.walk(func(_ string, _ uint32, e dirEntry) error {
		b := bytes.Clone(e.b)
		le.PutUint16(b[22:], stampTime)
		le.PutUint16(b[24:], stampDate)
		if b[11]&attrLabel == 0 {
			b[13] = 0
			le.PutUint16(b[14:], stampTime)
			le.PutUint16(b[16:], stampDate)
			le.PutUint16(b[18:], stampDate)
		} else {
			clear(b[13:20])
		}

		if b[0] == '.' && b[1] == '.' && e.cluster() == v.root {
			le.PutUint16(b[20:], 0)
			le.PutUint16(b[26:], 0)
		}

		if b[11]&(attrLabel|attrDir) == 0 && le.Uint32(b[28:]) == 0 && e.cluster() != 0 {
			if err := v.freeChain(f, e.cluster()); err != nil {
				return err
			}
			le.PutUint16(b[20:], 0)
			le.PutUint16(b[26:], 0)
		}

		_, err := f.WriteAt(b, e.at)
		return err
	})
	if err != nil {
		return err
	}

	free, last := v.countClusters()
	var counts [8]byte
	le.PutUint32(counts[:], free)
	le.PutUint32(counts[4:], last)
	var serial, total [4]byte
	le.PutUint32(serial[:], id)
	le.PutUint32(total[:], uint32((v.dataStart+int64(v.clusters)*v.clusterSize)/sector))
	for _, boot := range []int64{0, v.backupSec} {
		if _, err := f.WriteAt(counts[:], (boot+v.infoSector)*sector+488); err != nil {
			return fmt.Errorf("write counters: %w", err)
		}
		if _, err := f.WriteAt(serial[:], boot*sector+67); err != nil {
			return fmt.Errorf("write volume id: %w", err)
		}
		if _, err := f.WriteAt(total[:], boot*sector+32); err != nil {
			return fmt.Errorf("write size: %w", err)
		}
	}

	return nil
}

// freeChain gives the clusters of a chain back, in every FAT.
func (v *Volume) freeChain(f io.WriterAt, first uint32) error {
	chain, err := v.chain(first)
	if err != nil {
		return err
	}

	for _, c := range chain {
		clear(v.table[4*c : 4*c+4])
		for i := range v.copies {
			if _, err := f.WriteAt(make([]byte, 4), (v.reserved+i*v.fatSectors)*sector+4*int64(c)); err != nil {
				return fmt.Errorf("free cluster %d: %w", c, err)
			}
		}
	}

	return nil
}

// countClusters counts free clusters and names the last one in use.
func (v *Volume) countClusters() (free, last uint32) {
	last = 2
	for c := uint32(2); c < v.clusters+2; c++ {
		if v.nextCluster(c) == 0 {
			free++
		} else {
			last = c
		}
	}
	return free, last
}
