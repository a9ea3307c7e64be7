package netprobe

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Question is one DNS query. It asks for the address of localhost, which a resolver knows
// by itself (RFC 6761, 6.3): whether it can reach the rest of the world is not asked, a
// rack may have none.
type Question struct {
	id uint16
}

// NewQuestion makes a query with an id that nobody can guess. No octet of it is a newline: a shell that
// sends it would make two packets of it.
func NewQuestion() Question {
	var b [2]byte
	for {
		rand.Read(b[:])
		if !bytes.ContainsRune(b[:], '\n') {
			return Question{binary.BigEndian.Uint16(b[:])}
		}
	}
}

// Packet is the query as it goes over UDP.
func (q Question) Packet() []byte {
	m := dnsmessage.Message{
		Header: dnsmessage.Header{ID: q.id, RecursionDesired: true},
		Questions: []dnsmessage.Question{{
			Name:  dnsmessage.MustNewName("localhost."),
			Type:  dnsmessage.TypeA,
			Class: dnsmessage.ClassINET,
		}},
	}
	packet, err := m.Pack()
	if err != nil {
		panic(err) // a constant that cannot be packed
	}

	return packet
}

// CheckAnswer is nil if packet is a resolver's answer to q, whatever it knows: dnsmasq without
// anybody to ask says REFUSED to every name that it does not know, and is right for a rack
// without a way out. A packet that is no answer is an error.
func (q Question) CheckAnswer(packet []byte) error {
	var p dnsmessage.Parser
	h, err := p.Start(packet)
	switch {
	case err != nil:
		return fmt.Errorf("what answers is no resolver: %w", err)
	case h.ID != q.id || !h.Response:
		return errors.New("what answers is no resolver")
	case h.RCode == dnsmessage.RCodeNotImplemented || h.RCode == dnsmessage.RCodeFormatError:
		return fmt.Errorf("it cannot answer (%s)", h.RCode)
	}

	return nil
}

// CheckResolver asks a resolver by UDP, three times at most, and returns nil once it answers.
func CheckResolver(ctx context.Context, server netip.Addr) error {
	return checkResolver(ctx, netip.AddrPortFrom(server, 53), time.Second)
}

func checkResolver(ctx context.Context, server netip.AddrPort, wait time.Duration) error {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(server))
	if err != nil {
		return fmt.Errorf("there is no way to it: %w", err)
	}
	defer conn.Close()

	buf := make([]byte, 1500)
	for range 3 {
		q := NewQuestion()
		if _, err := conn.Write(q.Packet()); err != nil {
			return fmt.Errorf("it does not answer: %w", err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return err
		}

		n, err := conn.Read(buf)
		if err == nil {
			return q.CheckAnswer(buf[:n])
		}

		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			return fmt.Errorf("nothing answers DNS there: %w", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}

	return errors.New("it does not answer")
}
