// Package capture keeps the packets of each machine's last two network boots, as files that
// tcpdump and Wireshark read: what was really on the wire, whoever sent it. It listens beside
// the servers, never in their way: a boot does not wait for it, nor fail with it.
//
// Kept are DHCP, boot service (port 4011) and TFTP requests whole, of TFTP transfers the option
// negotiation, errors, the first two blocks, every 1,024th and any that is shorter than 512
// bytes, with the first bytes of the data. Nothing of TCP is kept: scripts and images carry
// passwords and tokens, DHCP and TFTP do not.
package capture

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/net/bpf"
)

// Recorder records one interface. All fields are required.
type Recorder struct {
	Interface string
	Dir       string // of the files: MAC.pcap the last boot, MAC.1.pcap the one before; made when needed
	Log       *slog.Logger
}

// Bounds: 25 MiB at the very most, when a hundred machines fill two files each; a boot is about
// forty packets and 12 KiB.
const (
	snapLen     = 1600      // of a packet: a DHCP message in an Ethernet frame
	dataLen     = 64        // of a TFTP block: its headers and 18 bytes
	maxFile     = 128 << 10 // bytes
	maxMachines = 100
	silence     = 10 * time.Minute // ends a boot
	reopen      = 5 * time.Second  // between two tries to listen
)

// Run records until ctx ends. It returns no error: who cannot listen or write says so in the
// log and goes on trying.
func (r *Recorder) Run(ctx context.Context) error {
	b := &bootSorter{files: captureDir{dir: r.Dir}, machines: map[mac]*boot{}}
	var told string
	for ctx.Err() == nil {
		err := r.listen(ctx, b)
		if ctx.Err() != nil {
			return nil
		}

		if err.Error() != told {
			told = err.Error()
			r.Log.Warn("boots are not captured", "interface", r.Interface, "error", err)
		}

		select {
		case <-ctx.Done():
		case <-time.After(reopen):
		}
	}

	return nil
}

// listen records until ctx ends or the interface goes away.
func (r *Recorder) listen(ctx context.Context, b *bootSorter) error {
	filter, err := bpf.Assemble(kernelFilter)
	if err != nil {
		return fmt.Errorf("assemble filter: %w", err)
	}

	ifi, err := net.InterfaceByName(r.Interface)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", r.Interface, err)
	}

	wire, err := pcapgo.NewEthernetHandle(r.Interface)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", r.Interface, err)
	}
	defer wire.Close()

	if err := wire.SetBPF(filter); err != nil {
		return fmt.Errorf("listen on %s: set filter: %w", r.Interface, err)
	}
	if err := wire.SetCaptureLength(snapLen); err != nil {
		return fmt.Errorf("listen on %s: %w", r.Interface, err)
	}

	var ended atomic.Bool
	defer context.AfterFunc(ctx, func() { ended.Store(true); _ = wire.Close() })()
	copy(b.ours[:], ifi.HardwareAddr)
	var told string
	for {
		frame, info, err := wire.ReadPacketData()
		if err != nil {
			if ended.Load() {
				return ctx.Err()
			}
			return fmt.Errorf("listen on %s: %w", r.Interface, err)
		}
		if err := b.handlePacket(info.Timestamp, info.Length, frame); err != nil && err.Error() != told {
			told = err.Error()
			r.Log.Warn("a boot is not captured", "error", err)
		}
	}
}
