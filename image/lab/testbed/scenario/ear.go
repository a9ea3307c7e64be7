package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/image/lab/netns"
)

// chunkSize is how much is kept in one piece. A text is looked for in each piece, and no frame or answer is parted.
const chunkSize = 1 << 20

// chunks are bytes in pieces: what strangers hear is more than is worth moving whenever it grows.
type chunks struct {
	all  [][]byte
	size int
}

func (c *chunks) add(b []byte) {
	last := len(c.all) - 1
	if last < 0 || len(c.all[last])+len(b) > cap(c.all[last]) {
		c.all = append(c.all, make([]byte, 0, max(chunkSize, len(b))))
		last++
	}
	c.all[last] = append(c.all[last], b...)
	c.size += len(b)
}

func (c *chunks) contain(text string) bool {
	for _, piece := range c.all {
		if bytes.Contains(piece, []byte(text)) {
			return true
		}
	}
	return false
}

// earBuffer is how many bytes may wait in the kernel while this machine is busy.
const earBuffer = 64 << 20

// ear keeps every frame that comes to an interface, to whomever it is sent.
type ear struct {
	fd    int
	stop  atomic.Bool
	ended chan struct{}

	mu     sync.Mutex
	frames int
	missed int
	kept   chunks
}

// listenIn begins to listen on an interface of the network namespace at path. Close it.
func listenIn(path, nic string) (*ear, error) {
	e := &ear{fd: -1, ended: make(chan struct{})}
	err := netns.Do(path, func() error {
		ifi, err := net.InterfaceByName(nic)
		if err != nil {
			return err
		}

		e.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}

		wait := unix.NsecToTimeval((100 * time.Millisecond).Nanoseconds())
		return errors.Join(
			unix.SetsockoptPacketMreq(e.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
				&unix.PacketMreq{Ifindex: int32(ifi.Index), Type: unix.PACKET_MR_PROMISC}),
			unix.SetsockoptInt(e.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, earBuffer),
			unix.SetsockoptTimeval(e.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
			unix.Bind(e.fd, &unix.SockaddrLinklayer{Protocol: inNetworkOrder(unix.ETH_P_ALL), Ifindex: ifi.Index}),
		)
	})
	if err != nil {
		if e.fd >= 0 {
			_ = unix.Close(e.fd)
		}
		return nil, fmt.Errorf("listen on %s: %w", nic, err)
	}

	go e.run()
	return e, nil
}

func inNetworkOrder(n uint16) uint16 { return n<<8 | n>>8 }

func (e *ear) run() {
	defer close(e.ended)
	for frame := make([]byte, 1<<16); !e.stop.Load(); {
		n, from, err := unix.Recvfrom(e.fd, frame, 0)
		if err != nil {
			continue // nothing came within the time
		}
		if link, ok := from.(*unix.SockaddrLinklayer); ok && link.Pkttype == unix.PACKET_OUTGOING {
			continue
		}

		e.mu.Lock()
		e.frames++
		e.kept.add(frame[:n])
		e.mu.Unlock()
	}
}

func (e *ear) heard(text string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.kept.contain(text)
}

// count is how many bytes and frames came, and how many frames the kernel dropped.
func (e *ear) count() (bytes, frames, missed int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if stats, err := unix.GetsockoptTpacketStats(e.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		e.missed += int(stats.Drops) // the kernel begins again with each question
	}
	return e.kept.size, e.frames, e.missed
}

func (e *ear) close() {
	e.stop.Store(true)
	<-e.ended
	_ = unix.Close(e.fd)
}
