// Package agentgate is the door between the provisioning network and Ironic. Ironic's API listens on loopback alone;
// what the agent in a ramdisk needs of it is served here, and only to a machine that this appliance has just booted: a
// token is minted with each script and with each disc (Gate.Mint), which hands it to the agent in the path of its URLs
// (/b/TOKEN/v1/…), and the gate lets through what that machine may say of itself. All else is dropped before Ironic
// sees a byte of it.
package agentgate

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/limit"
)

// What one request may send, in bytes. An inventory is some ten kilobytes; lists of disks and neighbours make it grow.
const (
	maxInventory = 8 << 20
	maxHeartbeat = 64 << 10
	maxAnswer    = 1 << 20
	maxHeader    = 16 << 10
)

// How many bytes of inventories are held at a time, of all nodes and of all unknown machines, how long one waits for
// room, and how long it may take to come.
const (
	nodeRoom    = 2 * maxInventory
	unknownRoom = maxInventory
	roomTimeout = 30 * time.Second
	bodyTimeout = time.Minute
)

// How many connections there may be: an agent opens two at most.
const (
	maxConnections = 2048
	maxPerAddress  = 16
)

// idleTimeout is how long a connection may lie still between two calls: agents call every 18 to 36 s.
const idleTimeout = 2 * time.Minute

// Gate lets agents through to Ironic. All fields are required.
type Gate struct {
	Log   *slog.Logger
	Boots *Boots
	// Ironic is where its API is, and what it is asked with.
	Ironic func() (url string, client *http.Client, err error)
	// Host is the host with a MAC, nil if there is none; current: the API was asked since the daemon started.
	Host func(mac string) (host *Host, current bool)
	// Owner is the host that boots from a MAC; "" if there is none.
	Owner func(mac string) string
	// NodeOwner is the host of one of Ironic's nodes; "" if there is none.
	NodeOwner func(uuid string) string
	// Refused gets what is told of a refusal, once an hour, with the host that it concerns. It does not wait.
	Refused func(host, sentence string)
	// WithoutMAC reports whether a host that has no MAC yet has its BMC at an address: Ironic finds such a host by it.
	WithoutMAC func(bmc string) bool
	// Inspected gets the inventory of a machine that no host stands for, by the MAC that it booted from.
	Inspected func(mac string, said map[string]any)
	// MayWrite says why a host's disk may not be written to; "" if it may. An error is no answer yet.
	MayWrite func(ctx context.Context, host string, asked WriteRequest) (refusal string, err error)
	// MayErase says the same of a disk that is to be erased.
	MayErase func(ctx context.Context, host string, asked WriteRequest) (refusal string, err error)
	// NoteErased is told of a disk that was erased, and says why that cannot be; "" if it can.
	NoteErased func(ctx context.Context, host string, done EraseReport) (refusal string, err error)
	// Machines knows who has which address.
	Machines pxe.Machines
	// IsInside reports whether an address is one of this machine or of its pods, which ask Ironic with its password.
	IsInside func(addr netip.Addr) bool

	refusals refusals
	silence  rate.Sometimes
	posting  sync.Map // digests of the boots whose inventory is on its way

	nodeBodies, unknownBodies *semaphore.Weighted
}

var _ pxe.Minter = (*Gate)(nil)

// Mint implements pxe.Minter.
func (g *Gate) Mint(m pxe.Machine, _ pxe.Boot) (pxe.Secret, error) {
	host, current := g.Host(m.MAC.String())
	switch {
	case !current:
		return "", errors.New("the appliance is still starting and does not know its hosts yet")
	case host == nil:
		return g.Boots.Mint(m, "", "")
	}
	return g.Boots.Mint(m, host.Name, host.UUID)
}

// LastRefusal is why an agent of a host was refused last, as a sentence, if none was let through since.
func (g *Gate) LastRefusal(host string) (sentence string, at time.Time) { return g.refusals.last(host) }

// LastClaim is what another machine last said in a host's name and was refused, as a sentence.
func (g *Gate) LastClaim(host string) (sentence string, at time.Time) { return g.refusals.claim(host) }

// Serve answers on listeners, with TLS and the certificate that is asked for at each handshake, until ctx ends. It
// closes the listeners.
func (g *Gate) Serve(
	ctx context.Context, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), listeners ...net.Listener,
) error {
	g.silence.Interval = time.Minute
	g.nodeBodies, g.unknownBodies = semaphore.NewWeighted(nodeRoom), semaphore.NewWeighted(unknownRoom)
	server := &limit.Server{
		Handler: g,
		Log:     g.Log,
		TLS: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: certificate,
		},
		Connections: maxConnections,
		PerClient:   maxPerAddress,
		Known:       g.isNode,
		Inside:      g.IsInside,
		Idle:        idleTimeout,
		MaxHeader:   maxHeader,
	}
	return server.Serve(ctx, listeners...)
}

// isNode reports whether an address is a host's.
func (g *Gate) isNode(addr netip.Addr) bool {
	machine, ok := g.Machines.MachineAt(addr)
	if !ok {
		return false
	}

	host, _ := g.Host(machine.MAC.String())
	return host != nil
}
