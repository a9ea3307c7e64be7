// Package timeserver gives the time of this machine to those who ask by SNTP or NTP: the
// server mode of RFC 5905, without any state of its clients. An answer is never larger
// than the question, and nothing but a client's request is answered.
package timeserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"
)

// Source says what our clock is worth.
type Source struct {
	Stratum int       // of the server we follow; 0: nobody, the clock is our own
	At      time.Time // when it was last compared
}

// Server answers on one address.
type Server struct {
	Addr   netip.AddrPort // port 123 on the appliance
	Source func() Source
	Log    *slog.Logger
}

const (
	packetSize = 48 // RFC 5905 7.3 without extension fields
	modeClient = 3
	modeServer = 4

	// orphan is the stratum of a clock that follows nobody: high enough that a client
	// which also sees a real server prefers that one.
	orphan = 10
	// ownRoot is the dispersion claimed for it, one second (RFC 5905 short format).
	ownRoot = 1 << 16
	// eraOffset is the seconds from 1900, where NTP's first era begins, to 1970.
	eraOffset = 2208988800
)

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(s.Addr))
	if err != nil {
		return fmt.Errorf("serve time on %s: %w", s.Addr, err)
	}
	return s.Serve(ctx, conn)
}

// Serve answers on conn until ctx ends, and closes it.
func (s *Server) Serve(ctx context.Context, conn *net.UDPConn) error {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	buf := make([]byte, 1024)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read time request: %w", err)
		}
		if answer, ok := ReplyTo(buf[:n], time.Now(), s.Source()); ok {
			binary.BigEndian.PutUint64(answer[40:], ntpTimestamp(time.Now()))
			if _, err := conn.WriteToUDPAddrPort(answer, from); err != nil {
				s.Log.Debug("time not sent", "to", from, "error", err)
			}
		}
	}
}

// ReplyTo is the reply to a request that arrived at now (RFC 5905 figure 31); ok is false
// for what is no client's request. The transmit time is now too, until the caller sets it.
func ReplyTo(request []byte, now time.Time, source Source) (answer []byte, ok bool) {
	if len(request) < packetSize {
		return nil, false
	}

	version, mode := request[0]>>3&7, request[0]&7
	if mode != modeClient || version < 1 || version > 4 {
		return nil, false
	}

	a := make([]byte, packetSize)
	a[0] = version<<3 | modeServer // leap indicator 0: we claim to know the time, of stratum 10 at worst
	a[2] = request[2]              // poll
	a[3] = 0xec                    // precision 2^-20 s: a microsecond
	if source.Stratum > 0 && source.Stratum < 15 {
		a[1] = byte(source.Stratum + 1)
		binary.BigEndian.PutUint32(a[8:], ownRoot/16)
		binary.BigEndian.PutUint64(a[16:], ntpTimestamp(source.At))
	} else {
		a[1] = orphan
		binary.BigEndian.PutUint32(a[8:], ownRoot)
		copy(a[12:], "LOCL")
		binary.BigEndian.PutUint64(a[16:], ntpTimestamp(now))
	}

	copy(a[24:32], request[40:48]) // originate: what the client sent as transmit time
	binary.BigEndian.PutUint64(a[32:], ntpTimestamp(now))
	binary.BigEndian.PutUint64(a[40:], ntpTimestamp(now))
	return a, true
}

// ntpTimestamp is a time in NTP's 64 bits: seconds modulo 2^32, so that later eras wrap, and
// fractions of 2^-32 s.
func ntpTimestamp(t time.Time) uint64 {
	seconds := uint64(t.Unix()+eraOffset) & 0xffffffff
	return seconds<<32 | uint64(t.Nanosecond())<<32/1e9
}
