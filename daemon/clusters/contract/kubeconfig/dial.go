package kubeconfig

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// dialTimeout is how long a machine may take to accept a connection.
const dialTimeout = 15 * time.Second

// DialOthers connects to other machines alone. The operator is on the appliance's own network, where much listens for
// the appliance alone, and the addresses of clusters are what owners of Secrets write.
func DialOthers(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout, ControlContext: checkPeer}
	return d.DialContext(ctx, network, address)
}

// checkPeer is asked with the address that a name stands for, right before it is connected to.
func checkPeer(_ context.Context, _, address string, _ syscall.RawConn) error {
	peer, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}

	all, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("read own addresses: %w", err)
	}
	var own []netip.Addr
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, prefix.Addr())
		}
	}

	if isOwn(peer.Addr(), own) {
		return fmt.Errorf("%s is an address of the appliance itself, where no cluster is", peer.Addr())
	}
	return nil
}

// isOwn reports whether a peer is this machine: Linux takes an unspecified address for it, too.
func isOwn(peer netip.Addr, own []netip.Addr) bool {
	peer = peer.Unmap().WithZone("")
	return !peer.IsGlobalUnicast() || slices.Contains(own, peer)
}
