package vswitch

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Capture is a file in pcap's format (draft-ietf-opsawg-pcap, version 2.4), as tcpdump and
// Wireshark read it. Of TCP only the headers are kept: a rack's traffic is images of gigabytes.
type Capture struct {
	mu   sync.Mutex
	file *os.File
	out  *bufio.Writer
	err  error // the first; reported by Close
	stop chan struct{}
}

const (
	pcapMagic    = 0xa1b2c3d4 // microseconds
	pcapEthernet = 1
	tcpBytes     = 96 // kept of a frame with TCP
	flushEvery   = time.Second
)

// CaptureTo begins a capture in a new file; one of that name is replaced.
func CaptureTo(path string) (*Capture, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}

	c := &Capture{file: f, out: bufio.NewWriterSize(f, 256<<10), stop: make(chan struct{})}
	le := binary.LittleEndian
	head := le.AppendUint32(nil, pcapMagic)
	head = le.AppendUint16(le.AppendUint16(head, 2), 4)
	head = append(head, make([]byte, 8)...) // time zone, accuracy: always zero
	head = le.AppendUint32(le.AppendUint32(head, 1<<18), pcapEthernet)
	_, c.err = c.out.Write(head)
	go c.flush()
	return c, nil
}

func (c *Capture) flush() {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-tick.C:
			c.mu.Lock()
			if c.err == nil {
				c.err = c.out.Flush()
			}
			c.mu.Unlock()
		}
	}
}

func (c *Capture) writeFrame(at time.Time, frame []byte) {
	kept := frame
	if kind, data := payload(frame); kind == typeIPv4 && len(data) >= 20 && data[9] == protoTCP && len(frame) > tcpBytes {
		kept = frame[:tcpBytes]
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}

	le := binary.LittleEndian
	var head [16]byte
	le.PutUint32(head[0:], uint32(at.Unix()))
	le.PutUint32(head[4:], uint32(at.Nanosecond()/1000))
	le.PutUint32(head[8:], uint32(len(kept)))
	le.PutUint32(head[12:], uint32(len(frame)))
	_, c.err = c.out.Write(head[:])
	if c.err == nil {
		_, c.err = c.out.Write(kept)
	}
}

// Close writes what is left. Nothing may be captured to it afterwards.
func (c *Capture) Close() error {
	close(c.stop)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = c.out.Flush()
	}

	err := errors.Join(c.err, c.file.Close())
	c.err = os.ErrClosed
	return err
}
