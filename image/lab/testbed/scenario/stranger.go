package scenario

import (
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
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"

	"firstlight.dev/firstlight/image/lab/testbed/netns"
)

// Stranger is a machine on a network of the rack that nobody named. It believes every certificate.
type Stranger struct {
	MAC  string
	Addr netip.Addr

	machine *netns.Bridge // for its namespace
	client  *http.Client

	mu    sync.Mutex
	heard bytes.Buffer // all that it was ever answered
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
	if err := errors.Join(wire.Connect(ctx, machine.PID(), "stranger", "eth0"), configure(s, ctx)); err != nil {
		machine.Close()
		return nil, fmt.Errorf("plug in a stranger: %w", err)
	}

	s.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext:       dialerIn(machine.PID()),
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}}
	return s, nil
}

// boot takes a lease.
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
	return s.machine.IP(ctx, "addr add "+s.Addr.String()+"/24 dev eth0")
}

// Ask sends one request in the newest version of Ironic's API and returns what came back; status 0: no answer.
func (s *Stranger) Ask(ctx context.Context, method, url, body string) (status int, text string) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}

	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-OpenStack-Ironic-API-Version", "1.96")
	answer, err := s.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()

	said, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard.Write(said)
	return answer.StatusCode, string(said)
}

// Connect opens connections that say nothing.
func (s *Stranger) Connect(ctx context.Context, addr string, times int) (open []net.Conn, err error) {
	for range times {
		conn, err := dialerIn(s.machine.PID())(ctx, "tcp", addr)
		if err != nil {
			return open, err
		}
		open = append(open, conn)
	}
	return open, nil
}

// Heard is all that the stranger was ever answered.
func (s *Stranger) Heard() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard.String()
}

// Reaches reports whether something accepts its connection at an address.
func (s *Stranger) Reaches(ctx context.Context, at string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := dialerIn(s.machine.PID())(ctx, "tcp", at)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// Decline asks for an address in the name of a MAC, and declines all of a network's, one after the other.
func (s *Stranger) Decline(of string, all netip.Prefix, server netip.Addr) error {
	mac, err := net.ParseMAC(of)
	if err != nil {
		return err
	}

	return netns.Do(s.machine.Path(), func() error {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4zero, Port: dhcpv4.ClientPort})
		if err != nil {
			return err
		}
		defer conn.Close()

		to := &net.UDPAddr{IP: server.AsSlice(), Port: dhcpv4.ServerPort}
		for addr := all.Masked().Addr().Next(); all.Contains(addr); addr = addr.Next() {
			p, err := dhcpv4.New(
				dhcpv4.WithHwAddr(mac),
				dhcpv4.WithMessageType(dhcpv4.MessageTypeDecline),
				dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(addr.AsSlice())),
				dhcpv4.WithOption(dhcpv4.OptServerIdentifier(server.AsSlice())),
			)
			if err != nil {
				return err
			}
			if _, err := conn.WriteToUDP(p.ToBytes(), to); err != nil {
				return fmt.Errorf("send a DECLINE: %w", err)
			}
		}

		return nil
	})
}

// Close unplugs it.
func (s *Stranger) Close() { s.machine.Close() }
