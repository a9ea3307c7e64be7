package scenario

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"

	"firstlight.dev/firstlight/image/lab/netns"
)

// Stranger is a machine on a network of the rack that nobody named. It believes every certificate.
type Stranger struct {
	MAC  string
	Addr netip.Addr

	machine *netns.Bridge // for its namespace

	ear *ear // on its NIC

	mu   sync.Mutex
	said chunks // heads and bodies of all answers, as they were before TLS
}

// NewStranger plugs a machine into the provisioning network, with a lease like any other. Close it.
func (d *Scenario) NewStranger(ctx context.Context) (*Stranger, error) {
	return newStranger(ctx, d.wire, (*Stranger).boot)
}

// NewStrangerOn plugs a machine into a network of the rack, at an address that it gives itself. All else it sends to
// the appliance, as to a router. Close it.
func (d *Scenario) NewStrangerOn(
	ctx context.Context, wire *netns.Bridge, own netip.Prefix, appliance netip.Addr,
) (*Stranger, error) {
	return newStranger(ctx, wire, func(s *Stranger, ctx context.Context) error {
		s.Addr = own.Addr()
		return s.machine.IP(ctx, "addr add "+own.String()+" dev eth0", "route add default via "+appliance.String())
	})
}

func newStranger(
	ctx context.Context, wire *netns.Bridge, configure func(*Stranger, context.Context) error,
) (*Stranger, error) {
	machine, err := netns.NewBridge(ctx)
	if err != nil {
		return nil, err
	}

	s := &Stranger{machine: machine}
	err = wire.Connect(ctx, machine.PID(), "stranger", "eth0")
	if err == nil {
		s.ear, err = listenIn(machine.Path(), "eth0")
	}
	if err == nil {
		err = configure(s, ctx)
	}

	if err != nil {
		s.Close()
		return nil, fmt.Errorf("plug in a stranger: %w", err)
	}

	return s, nil
}

// boot takes a lease. All that is elsewhere it sends to the appliance.
func (s *Stranger) boot(ctx context.Context) error {
	var client *nclient4.Client
	err := netns.Do(s.machine.Path(), func() error {
		nic, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}

		s.MAC = nic.HardwareAddr.String()
		client, err = nclient4.New("eth0", nclient4.WithTimeout(10*time.Second), nclient4.WithRetry(6))
		return err
	})
	if err != nil {
		return err
	}
	defer client.Close()

	lease, err := client.Request(ctx, dhcpv4.WithBroadcast(true))
	if err != nil {
		return fmt.Errorf("take a lease: %w", err)
	}

	s.Addr, _ = netip.AddrFromSlice(lease.ACK.YourIPAddr.To4())
	return s.machine.IP(ctx, "addr add "+s.Addr.String()+"/24 dev eth0", "route add default via "+Address)
}

// Question is one request of a stranger's.
type Question struct {
	Method string
	URL    string
	Body   string
	Header map[string]string // besides those that Ironic's agents send
	From   netip.Addr        // one of the stranger's; zero: its first
}

// Ask sends one request in the newest version of Ironic's API and returns what came back; status 0: no answer.
func (s *Stranger) Ask(ctx context.Context, method, url, body string) (status int, text string) {
	return s.Send(ctx, Question{Method: method, URL: url, Body: body})
}

// Send is Ask with all that a request can have. It follows nobody elsewhere.
func (s *Stranger) Send(ctx context.Context, q Question) (status int, text string) {
	request, err := http.NewRequestWithContext(ctx, q.Method, q.URL, strings.NewReader(q.Body))
	if err != nil {
		return 0, err.Error()
	}

	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-OpenStack-Ironic-API-Version", "1.96")
	for name, value := range q.Header {
		request.Header.Set(name, value)
	}

	client := &http.Client{
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:       s.dialer(q.From),
			DisableKeepAlives: true,
			TLSClientConfig:   clientTLS(),
		},
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()

	said, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	var head bytes.Buffer
	_ = answer.Header.Write(&head) // to memory
	s.addAnswer(append(head.Bytes(), said...))
	return answer.StatusCode, string(said)
}

// clientTLS is TLS of a client that believes every certificate.
func clientTLS() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// dialer connects from one of its addresses.
func (s *Stranger) dialer(from netip.Addr) func(context.Context, string, string) (net.Conn, error) {
	return dialerFrom(s.machine.PID(), from)
}

func (s *Stranger) addAnswer(said []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said.add(said)
}

// Connect opens connections that say nothing.
func (s *Stranger) Connect(ctx context.Context, addr string, times int) (open []net.Conn, err error) {
	return s.ConnectFrom(ctx, netip.Addr{}, addr, times)
}

// ConnectFrom is Connect from one of its addresses.
func (s *Stranger) ConnectFrom(ctx context.Context, from netip.Addr, addr string, times int) (open []net.Conn, err error) {
	for range times {
		conn, err := s.dialer(from)(ctx, "tcp", addr)
		if err != nil {
			return open, err
		}
		open = append(open, conn)
	}
	return open, nil
}

// ConnectTLS opens connections by TLS that ask once and are idle then. It ends with the first that is not taken.
func (s *Stranger) ConnectTLS(ctx context.Context, from netip.Addr, addr string, times int) (open []net.Conn, err error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}

	for range times {
		plain, err := s.dialer(from)(ctx, "tcp", addr)
		if err != nil {
			return open, err
		}

		open = append(open, plain)
		_ = plain.SetDeadline(time.Now().Add(10 * time.Second))
		conn := tls.Client(plain, clientTLS())
		if err := conn.HandshakeContext(ctx); err != nil {
			return open, err
		}
		if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host); err != nil {
			return open, err
		}

		said := make([]byte, 4096)
		n, err := conn.Read(said)
		s.addAnswer(said[:n])
		if err != nil {
			return open, err
		}
	}

	return open, nil
}

// Storm sends as many requests as fast as they are taken, by one connection, each for a path of its own that begins
// with a word. It returns how many were answered.
func (s *Stranger) Storm(ctx context.Context, addr, word string, times int) (answered int, err error) {
	conn, err := s.dialer(netip.Addr{})(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()

	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	go func() {
		var all bytes.Buffer
		for i := range times {
			fmt.Fprintf(&all, "GET /%s-%d HTTP/1.1\r\nHost: %s\r\n\r\n", word, i, addr)
		}
		_, _ = conn.Write(all.Bytes()) // what is not taken is not answered
	}()

	for from := bufio.NewReader(conn); answered < times; answered++ {
		answer, err := http.ReadResponse(from, nil)
		if err != nil {
			return answered, err
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil { // the ear has it
			return answered, err
		}
	}

	return answered, nil
}

// AddAddresses gives it further addresses, one after the other.
func (s *Stranger) AddAddresses(ctx context.Context, first netip.Addr, times int) (all []netip.Addr, err error) {
	for addr := first; len(all) < times; addr = addr.Next() {
		if err := s.machine.IP(ctx, "addr add "+addr.String()+"/32 dev eth0"); err != nil {
			return all, err
		}
		all = append(all, addr)
	}
	return all, nil
}

// Listen answers connections at one of its addresses.
func (s *Stranger) Listen(at netip.AddrPort) (l net.Listener, err error) {
	err = netns.Do(s.machine.Path(), func() (err error) {
		l, err = net.Listen("tcp4", at.String())
		return err
	})
	return l, err
}

// HasHeard tells whether a text came to the stranger: in a frame on its wire, or in what it was answered by TLS.
func (s *Stranger) HasHeard(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.contain(text) || s.ear.heard(text)
}

// Heard is how many bytes and frames came to it, answers by TLS counted twice, and how many frames it missed.
func (s *Stranger) Heard() (bytes, frames, missed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bytes, frames, missed = s.ear.count()
	return bytes + s.said.size, frames, missed
}

// patience is how long nothing may come for it to count as no answer.
const patience = 2 * time.Second

// Reaches reports whether its packets get to an address: something accepts its connection, answers its datagram, or
// says that nothing is there. The datagram asks for the time; where something else listens, silence proves nothing.
func (s *Stranger) Reaches(ctx context.Context, protocol string, at netip.AddrPort) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := s.dialer(netip.Addr{})(ctx, protocol, at.String())
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	defer conn.Close()
	if protocol == "tcp" {
		return true
	}

	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write(append([]byte{0x23}, make([]byte, 47)...)); err != nil { // RFC 5905: client, version 4
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	_, err = conn.Read(make([]byte, 64))
	return err == nil || errors.Is(err, syscall.ECONNREFUSED)
}

// Close unplugs it.
func (s *Stranger) Close() {
	if s.ear != nil {
		s.ear.close()
	}
	s.machine.Close()
}
