package capture

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Suffixes of the files: the last boot, and the one before.
const (
	suffix = ".pcap"
	before = ".1.pcap"
)

// captureDir is the folder of captures. What is in it counts, not what was done: the daemon before left
// files there too.
type captureDir struct{ dir string }

// path has the MAC with hyphens, as the conductor names its files.
func (f captureDir) path(who mac, suffix string) string {
	return filepath.Join(f.dir, strings.ReplaceAll(net.HardwareAddr(who[:]).String(), ":", "-")+suffix)
}

// begin makes room for a machine's new boot: its last capture becomes the one before, and the
// machine that wrote nothing for longest loses its own if there are too many.
func (f captureDir) begin(who mac) error {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return err
	}
	if err := os.Rename(f.path(who, suffix), f.path(who, before)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}

	newest := map[string]time.Time{}
	for _, e := range entries {
		name, _, _ := strings.Cut(e.Name(), ".")
		if info, err := e.Info(); err == nil && info.ModTime().After(newest[name]) {
			newest[name] = info.ModTime()
		}
	}

	own := strings.TrimSuffix(filepath.Base(f.path(who, suffix)), suffix)
	delete(newest, own)
	names := slices.SortedFunc(maps.Keys(newest), func(a, b string) int {
		return cmp.Or(newest[a].Compare(newest[b]), cmp.Compare(a, b))
	})
	for len(names) >= maxMachines {
		for _, s := range []string{suffix, before} {
			if err := os.Remove(filepath.Join(f.dir, names[0]+s)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		names = names[1:]
	}

	return nil
}

// add appends a packet, of which length bytes were on the wire, and returns by how much the file
// grew. It is one write, so that whoever reads meanwhile sees whole packets.
func (f captureDir) add(who mac, at time.Time, length int, frame []byte) (int, error) {
	file, err := os.OpenFile(f.path(who, suffix), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer file.Close()

	info, err := file.Stat()
	if err != nil {
		return 0, err
	}

	var b bytes.Buffer
	w := pcapgo.NewWriter(&b)
	if info.Size() == 0 {
		if err := w.WriteFileHeader(snapLen, layers.LinkTypeEthernet); err != nil {
			return 0, err
		}
	}

	if err := w.WritePacket(
		gopacket.CaptureInfo{Timestamp: at, CaptureLength: len(frame), Length: max(length, len(frame))}, frame,
	); err != nil {
		return 0, err
	}

	return file.Write(b.Bytes())
}
