package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

// probe6 is probe for DHCPv6: SOLICITs, and the servers that answer one with an ADVERTISE. An interface whose
// link-local address is not ready yet is asked again within the time to wait.
func probe6(ctx context.Context, ifname string, wait time.Duration) ([]Foreign, error) {
	w, err := openPacketConn6(ctx, ifname, PortClient6)
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", ifname, err)
	}
	defer w.Close()

	solicit := newProbe6(newProbe().ClientHWAddr)
	heard := make(chan Foreign)
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	go func() {
		for {
			f, data, err := w.receive()
			if err != nil {
				return
			}
			if foreign, ok := readAdvertise(f, data, solicit); ok {
				select {
				case heard <- foreign:
				case <-ctx.Done():
					return
				}
			}
		}
	}()

	again := time.NewTicker(probeEvery)
	defer again.Stop()
	var found []Foreign
	var sent error
	for {
		if len(found) == 0 {
			sent = w.sendTo(solicit.ToBytes(), netip.AddrPortFrom(allServers(), PortServer6))
			if sent != nil && !errors.Is(sent, syscall.EADDRNOTAVAIL) {
				return nil, fmt.Errorf("probe %s: send: %w", ifname, sent)
			}
		}

		select {
		case <-ctx.Done():
			if sent != nil {
				return nil, fmt.Errorf("probe %s: send: %w", ifname, sent)
			}
			return found, nil
		case f := <-heard:
			if !slices.ContainsFunc(found, func(g Foreign) bool { return g.MACText == f.MACText }) {
				found = append(found, f)
			}
		case <-again.C:
		}
	}
}

// newProbe6 is a SOLICIT of a machine that does not exist.
func newProbe6(mac net.HardwareAddr) *dhcpv6.Message {
	p := &dhcpv6.Message{MessageType: dhcpv6.MessageTypeSolicit, TransactionID: dhcpv6.TransactionID(mac[3:6])}
	p.AddOption(dhcpv6.OptClientID(&dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: mac}))
	p.AddOption(&dhcpv6.OptUserClass{UserClasses: [][]byte{[]byte(classProbe)}})
	p.AddOption(dhcpv6.OptElapsedTime(0))
	p.AddOption(&dhcpv6.OptIANA{IaId: [4]byte(mac[2:6])})
	return p
}

func isProbe6(p *dhcpv6.Message) bool {
	return slices.ContainsFunc(p.Options.UserClasses(), func(c []byte) bool { return strings.HasPrefix(string(c), classProbe) })
}

// readAdvertise reads an answer to probe; false for everything else.
func readAdvertise(f frame6, data []byte, probe *dhcpv6.Message) (Foreign, bool) {
	answer, err := dhcpv6.MessageFromBytes(data)
	if err != nil || answer.MessageType != dhcpv6.MessageTypeAdvertise || answer.TransactionID != probe.TransactionID {
		return Foreign{}, false
	}
	if id := answer.Options.ClientID(); id == nil || !id.Equal(probe.Options.ClientID()) {
		return Foreign{}, false
	}

	return Foreign{
		Server:  f.from.Addr(),
		Source:  f.from.Addr(),
		MAC:     f.mac,
		MACText: f.mac.String(),
		Offered: wantedAddr(answer),
	}, true
}
