package tftp

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/bootfile"
	"firstlight.dev/firstlight/pxe/boottrace"
)

// What one transfer may hold: the packets of two windows (one on the wire, one read
// ahead) and a read buffer. 256 transfers stay below 64 MB also in the worst case.
const (
	windowBytes = 96 << 10
	readBuffer  = 32 << 10
)

// transfer is one file on its way to one client.
type transfer struct {
	server  *Server
	peer    netip.AddrPort
	machine pxe.Machine
	request request
	started time.Time
	known   bool // of a machine that is served whatever others do

	answered   atomic.Bool // the client has sent something
	superseded atomic.Bool // dropped from the table: end

	conn  *socket
	file  bootfile.File
	size  int64
	block int // bytes per DATA
	win   int // DATAs per ACK

	inbox  [defaultBlock + 4]byte
	input  *bufio.Reader
	slots  []byte // packets by number modulo their count: what may be sent again, and what is read ahead
	lens   []int
	filled int64 // number of the next DATA to be read from the file
	acked  int64 // bytes the client has confirmed
	last   int64 // number of the last DATA, from 1
	resent int

	wait  time.Duration // before the next retransmission
	trip  time.Duration // smoothed round trip; 0: not measured
	heard time.Time     // when the client was last heard
}

// How a transfer ends before its time.
var (
	errSuperseded = errors.New("the client began again or made no answer while others waited")
	errStopped    = errors.New("the server is being stopped")
	errSilent     = errors.New("the client fell silent")
)

// peerError is an ERROR packet of the client.
type peerError struct {
	code uint16
	text string
}

func (e *peerError) Error() string {
	return fmt.Sprintf("the client ended it: code %d %q", e.code, e.text)
}

// open opens the file and the socket. The error is a *refusal.
func (t *transfer) open() error {
	name := t.request.name
	if n := len(name); n > 0 && name[n-1] == 0xff {
		// Firmware that does not end the file name of DHCP option 67 with a NUL takes
		// the option list's end mark for a part of it.
		name = name[:n-1]
	}

	file, info, err := t.server.Files.Open(name)
	if err != nil {
		code := uint16(codeAccess)
		if errors.Is(err, bootfile.ErrNotFound) {
			code = codeNotFound
		}
		return &refusal{code, err.Error()}
	}

	t.file, t.size = file, info.Size()
	t.conn, err = openSocket(t.server.Addr.Addr(), t.server.Device, t.peer)
	if err != nil {
		t.server.Log.Error("tftp: open transfer socket", "error", err)
		return &refusal{codeOther, "the server has no socket left for this transfer"}
	}

	t.block, t.win, t.wait = defaultBlock, 1, firstWait
	if t.request.block > 0 {
		t.block = min(t.request.block, t.server.largest)
	}

	if t.request.window > 0 {
		t.win = max(1, min(t.request.window, windowBytes/(t.block+4)))
	}

	if t.request.timeout > 0 {
		t.wait = time.Duration(t.request.timeout) * time.Second
	}

	t.last = t.size/int64(t.block) + 1
	t.filled = 1
	t.input = bufio.NewReaderSize(io.NewSectionReader(file, 0, t.size), readBuffer)
	t.lens = make([]int, 2*t.win)
	t.slots = make([]byte, len(t.lens)*(t.block+4))
	return nil
}

func (t *transfer) close() {
	if t.file != nil {
		_ = t.file.Close()
	}
	if t.conn != nil {
		t.conn.close()
	}
}

// maxBlock is the largest block for the interface that the server is on.
func (s *Server) maxBlock() int {
	headers := 20 + 8 + 4 // of IPv4, UDP and TFTP
	if s.Addr.Addr().Is6() {
		headers += 20
	}

	ifaces, err := net.Interfaces()
	if err != nil {
		return largestBlock(ethernetMTU - headers)
	}

	for _, iface := range ifaces {
		addrs, _ := iface.Addrs()
		for _, addr := range addrs {
			ipnet, ok := addr.(*net.IPNet)
			if ok && ipnet.Contains(s.Addr.Addr().AsSlice()) && (s.Device == "" || s.Device == iface.Name) {
				return largestBlock(iface.MTU - headers)
			}
		}
	}

	return largestBlock(ethernetMTU - headers)
}

const ethernetMTU = 1500

// largestBlock is the largest block of a packet with room for that many bytes, so that it needs no IP fragments:
// firmware seldom puts them together again.
func largestBlock(room int) int { return max(defaultBlock, min(room, maxBlock)) }

// runTransfer runs t to its end and tells of it.
func (s *Server) runTransfer(ctx context.Context, t *transfer) {
	s.Metrics.TFTPActive.Inc()
	defer s.Metrics.TFTPActive.Dec()
	note := boottrace.Event{
		MAC:    t.machine.MAC,
		Addr:   t.peer.Addr(),
		Step:   boottrace.StepTFTP,
		Detail: t.request.name,
		Total:  t.size,
	}
	s.Record.Add(note)

	err := t.run(ctx)
	result := "done"
	var peer *peerError
	switch {
	case err == nil:
	case errors.As(err, &peer) && t.acked == 0 && t.request.size:
		result = "probed" // boot ROMs ask for the size, end the transfer and begin again
	default:
		result = "failed"
		note.Error = err.Error()
		_ = t.conn.send(appendError(nil, codeOther, err.Error()))
	}

	note.Bytes = t.acked
	s.Record.Add(note)
	s.Metrics.TFTPTransfers.WithLabelValues(result).Inc()
	s.Metrics.TFTPBytes.Add(float64(t.acked))
	s.Log.Info("tftp: transfer ended", "mac", t.machine.MAC.String(), "client", t.peer.String(), "file", t.request.name,
		"result", result, "bytes", t.acked, "size", t.size, "blksize", t.block, "windowsize", t.win,
		"resent", t.resent, "seconds", time.Since(t.started).Seconds(), "reason", note.Error)
}

// run is the protocol: options, then windows of DATA, each confirmed by an ACK.
func (t *transfer) run(ctx context.Context) error {
	t.heard = time.Now()
	if len(t.request.asked) > 0 {
		if err := t.negotiate(ctx); err != nil {
			return err
		}
	}

	base, next := int64(1), int64(1) // first DATA not confirmed, next to be sent
	retried, repeated := false, false
	for base <= t.last {
		sent := time.Now()
		for ; next < base+int64(t.win) && next <= t.last; next++ {
			if err := t.readBlocks(next); err != nil {
				return err
			}
			t.send(t.packet(next))
		}

		if err := t.readBlocks(min(next+int64(t.win)-1, t.last)); err != nil { // read ahead while the client works
			return err
		}

		ack, err := t.receive(ctx, base == t.last)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.resent += int(next - base)
			next, retried = base, true
			continue
		}
		if err != nil {
			return err
		}

		step := int64(ack - uint16(base-1)) // block numbers are modulo 65536: files over 32 MB wrap
		switch {
		case step == 0 && t.win > 1 && !repeated:
			// The client of a window has lost its first packet (RFC 7440, 4). Once per
			// window only, else each duplicate would double the traffic.
			repeated = true
			t.resent += int(next - base)
			next = base
		case step == 0 || step > next-base:
			// An ACK again, or of something never sent. With single blocks it is never
			// answered with DATA: that is the Sorcerer's Apprentice.
			retried = true // and the round trip can no longer be told
		default:
			if !retried && step == next-base {
				t.updateRoundTrip(time.Since(sent))
			}

			t.resetBackoff()
			base += step
			t.acked = min((base-1)*int64(t.block), t.size)
			t.resent += int(next - base)
			next, retried, repeated = base, false, false
		}
	}

	return nil
}

// negotiate sends the OACK until the client confirms it as block 0.
func (t *transfer) negotiate(ctx context.Context) error {
	oack := appendOACK(nil, t.request.asked, map[string]int64{
		"blksize": int64(t.block), "windowsize": int64(t.win), "timeout": int64(t.request.timeout), "tsize": t.size,
	})
	for sent, tries := time.Now(), 1; ; tries++ {
		t.send(oack)
		ack, err := t.receive(ctx, false)
		for err == nil && ack != 0 {
			ack, err = t.receive(ctx, false)
		}

		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.resent++
			continue
		}

		if err == nil && tries == 1 { // else nobody can tell which OACK was confirmed
			t.updateRoundTrip(time.Since(sent))
			t.resetBackoff()
		}

		return err
	}
}

// readBlocks reads the DATAs up to number from the file into their slots.
func (t *transfer) readBlocks(number int64) error {
	for ; t.filled <= number; t.filled++ {
		slot := int(t.filled) % len(t.lens)
		packet := t.slots[slot*(t.block+4) : (slot+1)*(t.block+4)]
		binary.BigEndian.PutUint16(packet, opDATA)
		binary.BigEndian.PutUint16(packet[2:], uint16(t.filled))
		want := int(min(int64(t.block), t.size-(t.filled-1)*int64(t.block)))
		if _, err := io.ReadFull(t.input, packet[4:4+want]); err != nil {
			t.server.Log.Error("tftp: read file", "file", t.request.name, "error", err)
			return errors.New("the file could not be read to its end")
		}

		t.lens[slot] = 4 + want
	}
	return nil
}

func (t *transfer) packet(number int64) []byte {
	slot := int(number) % len(t.lens)
	return t.slots[slot*(t.block+4):][:t.lens[slot]]
}

// send sends a packet. No route, no buffer, a link that is down: as good as lost, and
// sent again in time.
func (t *transfer) send(packet []byte) {
	if err := t.conn.send(packet); err != nil {
		t.server.Log.Debug("tftp: send", "client", t.peer.String(), "error", err)
	}
}

// receive waits for an ACK of the client. A packet from elsewhere gets error 5 and does
// not disturb (RFC 1350, 4). os.ErrDeadlineExceeded means: send again.
func (t *transfer) receive(ctx context.Context, final bool) (uint16, error) {
	buffer := t.inbox[:]
	until := time.Now().Add(t.wait)
	for {
		n, from, err := t.conn.receive(buffer)
		switch {
		case ctx.Err() != nil:
			return 0, errStopped
		case t.superseded.Load():
			return 0, errSuperseded
		case errors.Is(err, os.ErrDeadlineExceeded):
			now := time.Now()
			if now.Sub(t.heard) >= t.silenceLimit(final) {
				return 0, errSilent
			}
			if now.Before(until) {
				continue
			}

			if t.request.timeout == 0 {
				t.wait = min(2*t.wait, maxWait)
			}

			return 0, err
		case err != nil:
			return 0, fmt.Errorf("receive: %w", err)
		}

		packet := buffer[:n]
		if from != t.peer {
			if n >= 2 && packet[1] != opERROR {
				_ = t.conn.sendTo(
					appendError(nil, codeUnknownTID, "this port belongs to another client's transfer"), from,
				)
			}
			continue
		}
		if n < 4 {
			continue
		}

		switch binary.BigEndian.Uint16(packet) {
		case opACK:
			t.answered.Store(true)
			t.heard = time.Now()
			return binary.BigEndian.Uint16(packet[2:]), nil
		case opERROR:
			code, text := errorText(packet)
			return 0, &peerError{code, text}
		}
	}
}
