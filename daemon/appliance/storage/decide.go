package storage

import (
	"fmt"

	"firstlight.dev/firstlight/assets/stick"
)

// Action is what is done about the DATA partition.
type Action string

const (
	Keep   Action = "keep"    // there is one, and it fills the disk
	Make   Action = "make"    // there is none, and there is room
	Grow   Action = "grow"    // there is one, and the disk has become larger (a stick copied to a larger one)
	NoRoom Action = "no-room" // there is none, and no room
)

// leastData is the smallest DATA worth making.
const leastData = 256 << 20

// growFrom is the free space that is worth a change of the partition table.
const growFrom = 64 << 20

// align is what partitions are rounded to, and more than the second copy of the table takes at the end of the disk.
const align = 1 << 20

// Decision is an action and the free bytes behind the last partition that led to it.
type Decision struct {
	Action Action
	Room   int64
}

// Room is a place on the disk, in bytes from its start.
type Room struct{ Start, Bytes int64 }

// dataRoom is the place that DATA has when it fills the disk.
func dataRoom(t stick.Table, diskBytes int64) Room {
	start := (t.End() + align - 1) / align * align
	if data, ok := t.Entry(stick.PartitionData); ok {
		start = data.Start
	}
	return Room{start, (diskBytes-align)/align*align - start}
}

// checkNumber says that someone's own partition has the number of a DATA that is not there: partitioning programs give
// the lowest one that is free.
func checkNumber(t stick.Table) error {
	for _, e := range t.Entries {
		if e.Index == stick.NumberData && e.Name != stick.PartitionData {
			return fmt.Errorf("make %s: its number %d is that of partition %q, which stays as it is; save what is on it, "+
				"delete it, then restart", stick.PartitionData, e.Index, e.Name)
		}
	}
	return nil
}

// Decide looks at the boot disk's table and size.
func Decide(t stick.Table, diskBytes int64) Decision {
	end := (t.End() + align - 1) / align * align
	room := max(0, (diskBytes-align)/align*align-end)
	data, ok := t.Entry(stick.PartitionData)
	switch {
	case !ok && room >= leastData:
		return Decision{Make, room}
	case !ok:
		return Decision{NoRoom, room}
	case room >= growFrom && data.Start+data.Bytes == t.End():
		return Decision{Grow, room}
	default:
		return Decision{Keep, room}
	}
}
