package noderuntime

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/pxe/arp"
)

// Float lets an address be on the one of several nodes whose API server answers, by VRRP's rules
// (docs/decisions/0038-endpoints-float-by-a-program-of-our-own.md). All nodes that could have it are alike: none has it
// back because it had it before.
type Float struct {
	Endpoint netip.AddrPort // of the API servers, IPv4; each of them serves at this port on its own node
	Log      *slog.Logger
}

// probeTimeout is how long one question to the node's API server may take.
const probeTimeout = 5 * time.Second

// Run holds the address whenever it is this node's turn, until ctx ends. Then somebody else has it at once.
func (f *Float) Run(ctx context.Context) error {
	link, self, err := homeOf(f.Endpoint.Addr())
	if err != nil {
		return err
	}

	// One that this node held when it was killed may be another's now.
	if err := f.drop(link); err != nil {
		return err
	}

	socket, err := openVRRP(link.Attrs(), self)
	if err != nil {
		return err
	}
	defer socket.close()

	heard := make(chan advert)
	go socket.receive(ctx, f.Endpoint.Addr(), heard)
	healthy := make(chan bool)
	go f.watchServer(ctx, healthy)

	e := &election{self: self, heardAt: time.Now()}
	defer func() { _ = errors.Join(f.resign(e, socket), f.drop(link)) }()
	tick := time.NewTicker(advertInterval / 4)
	defer tick.Stop()
	said := "" // the error that was logged last: it may be the same every second
	for {
		select {
		case <-ctx.Done():
			return nil
		case a := <-heard:
			e.hear(a, time.Now())
		case e.healthy = <-healthy:
		case <-tick.C:
		}

		err := f.act(ctx, e, link, socket)
		if err != nil && err.Error() != said {
			f.Log.Error("the endpoint's address is not as wanted", "error", err)
			said = err.Error()
		}
	}
}

// act does what the election decides.
func (f *Float) act(ctx context.Context, e *election, link netlink.Link, socket *vrrpSocket) error {
	switch e.next(time.Now()) {
	case stepTake:
		return f.acquire(ctx, e, link, socket)
	case stepAdvertise:
		if e.offered {
			f.Log.Info("the endpoint's address stays: the API server of this node answers again")
		}
		e.saidAt, e.offered = time.Now(), false
		return errors.Join(f.hold(link), socket.send(f.Endpoint.Addr(), priorityEqual))
	case stepOffer:
		if !e.offered {
			f.Log.Info("the endpoint's address may be another node's: the API server of this node does not answer")
		}
		e.saidAt, e.offered = time.Now(), true
		return errors.Join(f.hold(link), socket.send(f.Endpoint.Addr(), priorityResigned))
	case stepYield:
		f.Log.Info("the endpoint's address is another node's", "node", e.holder)
		e.holding, e.offered = false, false
		return f.drop(link)
	}

	return nil
}

// acquire makes the address this node's. An address that no node of the cluster ever had may be somebody else's: then it
// is left alone. Where one had it and is silent, its machine may still answer for it, and is overruled.
func (f *Float) acquire(ctx context.Context, e *election, link netlink.Link, socket *vrrpSocket) error {
	addr, name := f.Endpoint.Addr(), link.Attrs().Name
	if !e.holder.IsValid() {
		user, err := arp.InUse(ctx, name, addr, time.Second)
		if err != nil {
			return err
		}
		if user != nil {
			return fmt.Errorf("%s is in use by %s, which is no node of this cluster", addr, user)
		}
	}

	if err := f.hold(link); err != nil {
		return err
	}

	f.Log.Info("the endpoint's address is this node's", "address", addr, "interface", name)
	e.holding = true
	e.saidAt = time.Now()
	return errors.Join(socket.send(addr, priorityEqual), arp.Announce(name, addr))
}

// resign tells the others that they need not wait.
func (f *Float) resign(e *election, socket *vrrpSocket) error {
	if !e.holding {
		return nil
	}

	e.holding = false
	return socket.send(f.Endpoint.Addr(), priorityResigned)
}

// address is the endpoint's as a node has it: alone, as the network is that of the node's own address.
func (f *Float) address() *netlink.Addr {
	return &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(f.Endpoint.Addr(), 32))}
}

// hold gives the interface the address, unless it has it.
func (f *Float) hold(link netlink.Link) error {
	if err := netlink.AddrReplace(link, f.address()); err != nil {
		return fmt.Errorf("add %s to %s: %w", f.Endpoint.Addr(), link.Attrs().Name, err)
	}
	return nil
}

// drop takes the address off the interface, if it is there.
func (f *Float) drop(link netlink.Link) error {
	err := netlink.AddrDel(link, f.address())
	if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("remove %s from %s: %w", f.Endpoint.Addr(), link.Attrs().Name, err)
	}
	return nil
}

// homeOf is the interface on whose network an address is, and the node's own address there.
func homeOf(addr netip.Addr) (netlink.Link, netip.Addr, error) {
	all, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, netip.Addr{}, fmt.Errorf("read addresses: %w", err)
	}

	for _, a := range all {
		p := prefixOf(a.IPNet)
		if p.Addr() != addr && p.Bits() < 32 && p.Contains(addr) {
			link, err := netlink.LinkByIndex(a.LinkIndex)
			return link, p.Addr(), err
		}
	}

	return nil, netip.Addr{}, fmt.Errorf("%s is on no network of this node; name an endpoint that is", addr)
}

// watchServer sends whether the API server of this node answers, as often as it asks: more often until its first answer,
// for which all nodes of the cluster wait.
func (f *Float) watchServer(ctx context.Context, out chan<- bool) {
	client := &http.Client{
		Timeout: probeTimeout,
		Transport: &http.Transport{
			// Nothing is said and nothing is believed but that it answers.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
	}
	url := fmt.Sprintf("https://127.0.0.1:%d/livez", f.Endpoint.Port())
	server := &serverRecord{failed: failuresBefore}
	for {
		server.note(askServer(ctx, client, url), time.Now())

		select {
		case <-ctx.Done():
			return
		case out <- server.serves():
		}

		select {
		case <-ctx.Done():
			return
		case <-time.After(server.pause()):
		}
	}
}

// failuresBefore is how many refusals in a row there must be until a server counts as gone. At the start the first
// answer counts. silenceBefore is for how long it may say nothing: a machine under load is slow, and to take the address
// off it makes it slower.
const (
	failuresBefore = 3
	silenceBefore  = time.Minute
)

// serverRecord is what an API server answered.
type serverRecord struct {
	failed     int       // refusals since it answered last
	answeredAt time.Time // last
	silent     bool      // it has said nothing for too long
}

// note takes what became of a question: an answer, a refusal or nothing.
func (s *serverRecord) note(err error, now time.Time) {
	var silence net.Error
	switch {
	case err == nil:
		*s = serverRecord{answeredAt: now}
	case errors.As(err, &silence) && silence.Timeout():
		s.silent = now.Sub(s.answeredAt) > silenceBefore
	default:
		s.failed++
	}
}

// pause is after what time it is asked again. It is pure.
func (s *serverRecord) pause() time.Duration {
	if s.answeredAt.IsZero() {
		return advertInterval / 4
	}
	return advertInterval
}

// serves reports whether the server is there.
func (s *serverRecord) serves() bool { return s.failed < failuresBefore && !s.silent }

func askServer(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}

	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16)) // so that the connection is used again

	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}
