package rack

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// relay stands between the appliance and the simulator and answers the one question that the
// simulator leaves open: which cipher suites the BMC has (IPMI 2.0, 22.15). ipmitool asks it
// before every session and waits ten seconds for an answer; real BMCs give it at once.
type relay struct {
	front   net.PacketConn
	dial    func() (net.Conn, error) // to the simulator
	mu      sync.Mutex
	clients map[string]net.Conn // by the client's address
}

// newRelay listens and dials in the network of the process pid.
func newRelay(pid int, listen, simulator string) (*relay, error) {
	r := &relay{clients: map[string]net.Conn{}}
	r.dial = func() (conn net.Conn, err error) {
		within(pid, func() error { conn, err = net.Dial("udp", simulator); return err })
		return conn, err
	}
	err := within(pid, func() (err error) { r.front, err = net.ListenPacket("udp", listen); return err })
	if err != nil {
		return nil, fmt.Errorf("listen for BMC at %s: %w", listen, err)
	}
	return r, nil
}

// run serves until close.
func (r *relay) run() {
	buf := make([]byte, 2048)
	for {
		n, from, err := r.front.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer := suites(buf[:n]); answer != nil {
			r.front.WriteTo(answer, from)
			continue
		}
		conn, err := r.client(from)
		if err != nil {
			continue // like a BMC that is away: the client asks again
		}
		conn.Write(buf[:n])
	}
}

func (r *relay) client(from net.Addr) (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if conn, ok := r.clients[from.String()]; ok {
		return conn, nil
	}
	conn, err := r.dial()
	if err != nil {
		return nil, err
	}
	r.clients[from.String()] = conn
	go func() {
		buf := make([]byte, 2048)
		for {
			n, err := conn.Read(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				r.front.WriteTo(buf[:n], from)
			}
		}
	}()
	return conn, nil
}

func (r *relay) close() {
	r.front.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.clients {
		conn.Close()
	}
}

// suites answers Get Channel Cipher Suites outside a session with suite 3 (RAKP-HMAC-SHA1,
// HMAC-SHA1-96, AES-CBC-128), which the simulator speaks; nil for any other packet.
//
//	RMCP 06 00 ff 07 | 06 payload type, session 0 (4), sequence 0 (4), length (2) | message
//	message: 20 18 check, 81 sequence 54 channel payload-type index, check
func suites(p []byte) []byte {
	const head = 16
	if len(p) < head+10 || p[0] != 6 || p[3] != 7 || p[4] != 6 || p[5] != 0 {
		return nil
	}
	m := p[head:]
	if m[1] != 6<<2 || m[5] != 0x54 {
		return nil
	}
	record := []byte{0xc0, 3, 0x01, 0x41, 0x81}
	if m[8]&0x3f != 0 {
		record = nil // the list is a multiple of sixteen bytes no further
	}
	message := []byte{m[3], 7 << 2, 0, m[0], m[4], 0x54, 0, 1} // completed, channel 1
	message[2] = checksum(message[:2])
	message = append(message, record...)
	message = append(message, checksum(message[3:]))
	answer := append([]byte{}, p[:head]...)
	answer[14], answer[15] = byte(len(message)), 0
	return append(answer, message...)
}

// checksum is IPMI's: all bytes with it add up to zero.
func checksum(b []byte) byte {
	var sum byte
	for _, v := range b {
		sum += v
	}
	return -sum
}

// within runs do in the network of the process pid. A thread that cannot come back ends.
func within(pid int, do func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		result <- func() error {
			own, err := os.Open("/proc/thread-self/ns/net")
			if err != nil {
				return err
			}
			defer own.Close()
			other, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/net")
			if err != nil {
				return err
			}
			defer other.Close()
			if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			err = do()
			if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
			return err
		}()
	}()
	return <-result
}
