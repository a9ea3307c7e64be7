package initrd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/assets/stick"
)

// disk is a whole block device as seen in sysfs, and what its partition table says.
type disk struct {
	name   string // sda
	number string // 8:0
	seq    string // diskseq: another one is another disk, also under the same name
	model  string
	bytes  int64
	sector int64
	nodes  map[int]string // partition index: kernel name, for example 2: sda2

	table   stick.Table
	err     error // why there is no table
	reading bool  // the table is still being read
}

// sysfsBlock is the unit of size and start in sysfs, whatever the disk's sector is.
const sysfsBlock = 512

// notDisks are the names of block devices that cannot be the stick.
var notDisks = []string{"loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd"}

// listDisks reads sysfs (rooted at /sys). Devices that vanish meanwhile are left out.
func listDisks(sys fs.FS) ([]disk, error) {
	names, err := fs.ReadDir(sys, "block")
	if err != nil {
		return nil, fmt.Errorf("list disks: %w", err)
	}

	var disks []disk
next:
	for _, n := range names {
		for _, prefix := range notDisks {
			if strings.HasPrefix(n.Name(), prefix) {
				continue next
			}
		}

		d := disk{name: n.Name(), nodes: map[int]string{}}
		dir := path.Join("block", d.name)
		blocks, err := strconv.ParseInt(readAttribute(sys, dir, "size"), 10, 64)
		if err != nil || blocks <= 0 {
			continue // no medium in the reader
		}

		d.bytes = blocks * sysfsBlock
		if d.sector, err = strconv.ParseInt(readAttribute(sys, dir, "queue/logical_block_size"), 10, 64); err != nil {
			d.sector = 512
		}

		d.number, d.seq = readAttribute(sys, dir, "dev"), readAttribute(sys, dir, "diskseq")
		maker, model := readAttribute(sys, dir, "device/vendor"), readAttribute(sys, dir, "device/model")
		d.model = excerpt.Line(maker + " " + model)

		parts, err := fs.ReadDir(sys, dir)
		if err != nil {
			continue
		}

		for _, p := range parts {
			if index, err := strconv.Atoi(readAttribute(sys, dir, p.Name()+"/partition")); err == nil {
				d.nodes[index] = p.Name()
			}
		}

		disks = append(disks, d)
	}
	return disks, nil
}

// readAttribute returns a sysfs file's content, trimmed; "" if it is not there. PCI devices
// call themselves by number here (0x1af4): not fit for people.
func readAttribute(sys fs.FS, dir, name string) string {
	b, err := fs.ReadFile(sys, path.Join(dir, name))
	s := strings.TrimSpace(string(b))
	if err != nil || strings.HasSuffix(name, "vendor") && strings.HasPrefix(s, "0x") {
		return ""
	}

	return s
}

// tables reads partition tables in the background, once per disk: a dying disk may
// take minutes to answer, and must not keep the stick waiting.
type tables struct {
	open    func(name string) (io.ReaderAt, io.Closer, error)
	changed chan<- struct{} // told, without blocking, when a table has been read
	retry   time.Duration   // how long after a failed read the next one begins

	mu   sync.Mutex
	seen map[string]tableRead // by name and seq
}

type tableRead struct {
	done  time.Time // zero while it is being read
	table stick.Table
	err   error
}

// fill sets what is known of each disk's table and starts reading those not begun.
// Failed reads, other than there being no table, are tried again.
func (t *tables) fill(disks []disk) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range disks {
		d := &disks[i]
		key := d.name + " " + d.seq
		r, begun := t.seen[key]
		failed := r.err != nil && !errors.Is(r.err, stick.ErrNoTable)
		if !begun || failed && time.Since(r.done) >= t.retry {
			t.seen[key] = tableRead{}
			go t.read(key, *d)
		}

		d.reading = r.done.IsZero()
		d.table, d.err = r.table, r.err
	}
}

func (t *tables) read(key string, d disk) {
	table, err := func() (stick.Table, error) {
		r, c, err := t.open(d.name)
		if err != nil {
			return stick.Table{}, err
		}
		defer c.Close()

		return stick.ReadTable(r, d.bytes, d.sector)
	}()
	t.mu.Lock()
	t.seen[key] = tableRead{done: time.Now(), table: table, err: err}
	t.mu.Unlock()
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// Reasons for which there is no boot disk yet; each has its screen.
var (
	errNotSeen       = errors.New("no disk holds the ESP this machine was started from")
	errDuplicateGUID = errors.New("two disks hold an ESP with the same GUID")
	errNoRoot        = errors.New("the boot disk has no partition for the root")
	errNoDevices     = errors.New("the kernel has not made the boot disk's partitions yet")
)

// chooseDisk finds the one disk whose table holds the ESP: not by name, not by order.
func chooseDisk(disks []disk, p params) (stick.BootInfo, error) {
	var found []disk
	for _, d := range disks {
		for _, e := range d.table.Entries {
			if e.GUID == p.esp {
				found = append(found, d)
				break
			}
		}
	}

	switch len(found) {
	case 0:
		return stick.BootInfo{}, errNotSeen
	case 1:
	default:
		return stick.BootInfo{}, fmt.Errorf("%w: %s and %s", errDuplicateGUID, found[0].name, found[1].name)
	}

	d := found[0]
	if _, ok := d.table.Entry(p.slot.Root()); !ok {
		return stick.BootInfo{}, fmt.Errorf("%w: %s on %s", errNoRoot, p.slot.Root(), d.name)
	}

	b := stick.BootInfo{Version: p.version, Slot: p.slot, Trial: p.trial, Disk: stick.Disk{
		Path:   "/dev/" + d.name,
		Number: d.number,
		GUID:   d.table.GUID,
		Model:  d.model,
		Bytes:  d.bytes,
	}}
	for _, e := range d.table.Entries {
		node, ok := d.nodes[e.Index]
		if !ok {
			return stick.BootInfo{}, fmt.Errorf("%w: %s", errNoDevices, d.name)
		}
		b.Partitions = append(b.Partitions, stick.Partition{
			Index: e.Index,
			Name:  e.Name,
			GUID:  e.GUID,
			Path:  "/dev/" + node,
			Start: e.Start,
			Bytes: e.Bytes,
		})
	}

	return b, nil
}

// reset has every table read again.
func (t *tables) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.seen)
}
