package bmc

import (
	"encoding/binary"
	"net"
	"sync"
	"time"
)

// relay stands before the simulator: it passes datagrams on, and answers one question that
// the simulator leaves open. ipmitool begins by asking which cipher suites there are (Get
// Channel Cipher Suites, mandatory in IPMI 2.0, 22.15); ipmi_sim says nothing at all, and
// ipmitool gives up only after ten seconds, at every call. A real BMC answers.
type relay struct {
	front net.PacketConn
	back  *net.UDPAddr

	mu    sync.Mutex
	calls map[string]*net.UDPConn // by the client's address
}

// idle is how long a client may be silent before its way back is forgotten.
const idle = 2 * time.Minute

// largest is more than any IPMI packet.
const largest = 4096

// run ends when front is closed.
func (r *relay) run() {
	r.calls = map[string]*net.UDPConn{}
	buf := make([]byte, largest)
	for {
		n, client, err := r.front.ReadFrom(buf)
		if err != nil {
			break
		}
		if answer := cipherSuites(buf[:n]); answer != nil {
			_, _ = r.front.WriteTo(answer, client) // a datagram may be lost
			continue
		}

		if call := r.clientSocket(client); call != nil {
			_, _ = call.Write(buf[:n])
		}
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	for _, call := range r.calls {
		call.Close()
	}

	r.calls = nil
}

// clientSocket is the client's own socket at the simulator, which tells clients apart by address.
func (r *relay) clientSocket(client net.Addr) *net.UDPConn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if call := r.calls[client.String()]; call != nil {
		return call
	}

	call, err := net.DialUDP("udp4", nil, r.back)
	if err != nil {
		return nil
	}

	r.calls[client.String()] = call
	go r.forwardReplies(client, call)
	return call
}

func (r *relay) forwardReplies(client net.Addr, call *net.UDPConn) {
	buf := make([]byte, largest)
	for {
		_ = call.SetReadDeadline(time.Now().Add(idle))
		n, err := call.Read(buf)
		if err != nil {
			break // idle, closed, or the simulator is gone
		}

		_, _ = r.front.WriteTo(buf[:n], client)
	}

	call.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls[client.String()] == call {
		delete(r.calls, client.String())
	}
}

// suites is what ipmi_sim can do, as records of IPMI 2.0, 22.15.2: suite 3, with RAKP-HMAC-SHA1,
// HMAC-SHA1-96 and AES-CBC-128.
var suites = []byte{0xc0, 3, 0x01, 0x40 | 0x01, 0x80 | 0x01}

// cipherSuites answers a Get Channel Cipher Suites request that comes outside a session, in the
// packet format of RMCP+ (13.6); nil if the packet is anything else.
func cipherSuites(p []byte) []byte {
	const (
		rmcpIPMI   = 7    // class
		formatPlus = 6    // authentication type of RMCP+
		netFnApp   = 0x06 // a response has one more
		getSuites  = 0x54
		headBytes  = 16 // RMCP 4, authentication type, payload type, session ID 4, sequence 4, length 2
	)
	if len(p) < headBytes || p[0] != 6 || p[3] != rmcpIPMI || p[4] != formatPlus || p[5] != 0 ||
		binary.LittleEndian.Uint32(p[6:]) != 0 {
		return nil
	}

	m := p[headBytes:]
	if len(m) != int(binary.LittleEndian.Uint16(p[14:])) || len(m) != 10 || m[1]>>2 != netFnApp || m[5] != getSuites {
		return nil
	}

	data := []byte{0, 1} // completion code, channel
	if index := int(m[8]&0x3f) * 16; m[8]&0x80 != 0 && index < len(suites) {
		data = append(data, suites[index:]...)
	}

	answer := append([]byte(nil), p[:headBytes]...)
	to := []byte{m[3], (netFnApp+1)<<2 | m[4]&3}
	from := append([]byte{m[0], m[4]&^3 | m[1]&3, getSuites}, data...)
	answer = append(append(answer, to...), checksum(to))
	answer = append(append(answer, from...), checksum(from))
	binary.LittleEndian.PutUint16(answer[14:], uint16(len(answer)-headBytes))
	return answer
}

// checksum is the two's complement of the sum (13.8).
func checksum(p []byte) byte {
	var sum byte
	for _, b := range p {
		sum += b
	}
	return -sum
}
