package vswitch

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
)

// largestFrame is what QEMU's stream backend accepts at most (NET_BUFSIZE).
const largestFrame = 4096 + 65536

// Listen makes a port of a unix socket, for QEMU's `-netdev stream`: each frame behind its
// length, four bytes, the highest first. One machine at a time is plugged in, the one that came
// last.
func (s *Switch) Listen(name, path string) (*Port, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("make port %s: %w", name, err)
	}

	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("make port %s: %w", name, err)
	}

	p, err := s.add(name)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}

	j := &jack{port: p}
	p.stop = func() error { j.plug(nil); return l.Close() }
	go j.write()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}

			j.plug(conn)
			go j.read(conn)
		}
	}()

	return p, nil
}

// jack is the machine's side of a port.
type jack struct {
	port *Port
	mu   sync.Mutex
	conn net.Conn
}

// plug replaces what is plugged in; nil unplugs.
func (j *jack) plug(conn net.Conn) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.conn != nil {
		j.conn.Close()
	}

	j.conn = conn
}

// unplug drops conn unless another has come since.
func (j *jack) unplug(conn net.Conn) {
	j.mu.Lock()
	defer j.mu.Unlock()
	conn.Close()
	if j.conn == conn {
		j.conn = nil
	}
}

func (j *jack) current() net.Conn {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.conn
}

func (j *jack) read(conn net.Conn) {
	defer j.unplug(conn)
	in := bufio.NewReaderSize(conn, 256<<10)
	var size [4]byte
	for {
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return
		}

		n := binary.BigEndian.Uint32(size[:])
		if n > largestFrame {
			return // not QEMU
		}

		frame := make([]byte, n)
		if _, err := io.ReadFull(in, frame); err != nil {
			return
		}

		j.port.Send(frame)
	}
}

// write passes on what waits in as few calls as it can.
func (j *jack) write() {
	var buf []byte
	for {
		select {
		case <-j.port.done:
			return
		case frame := <-j.port.out:
			buf = append(binary.BigEndian.AppendUint32(buf[:0], uint32(len(frame))), frame...)
		}

		for more := true; more && len(buf) < 128<<10; {
			select {
			case frame := <-j.port.out:
				buf = append(binary.BigEndian.AppendUint32(buf, uint32(len(frame))), frame...)
			default:
				more = false
			}
		}

		conn := j.current()
		if conn == nil {
			continue // no machine: the frames are lost
		}

		if _, err := conn.Write(buf); err != nil {
			j.unplug(conn)
		}
	}
}
