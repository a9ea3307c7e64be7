package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"

	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/pxe/limit"
)

// Name is the listener's in the list of the packet filter, by which a site allows it on its networks.
const Name = "metrics"

// Port is where metrics are read.
const Port = 9100

// Address is where they are read in any case: on the appliance itself, since they need no log-in.
const Address = "127.0.0.1:9100"

// Connections at once from networks, of all readers and of one address. A Prometheus keeps one.
const (
	connections = 64
	perClient   = 8
)

// Serve answers on the appliance itself until ctx ends.
func Serve(ctx context.Context, h http.Handler, log *slog.Logger) error {
	return serve(ctx, &limit.Server{Handler: h, Log: log}, Address)
}

// ServeNetworks answers at the addresses where the site allows it, from the moment that ready says so, until ctx ends.
// It fails apart from Serve: an address that is unavailable does not end what is read on the appliance.
func ServeNetworks(
	ctx context.Context, ready func() bool, addresses func() []netip.Addr, h http.Handler, log *slog.Logger,
) error {
	wanted := func() ([]netip.Addr, bool) {
		addrs := addresses()
		return addrs, len(addrs) > 0
	}
	return rerun.OnChange(ctx, ready, wanted, func(ctx context.Context, addrs []netip.Addr) error {
		var all []string
		for _, addr := range addrs {
			all = append(all, netip.AddrPortFrom(addr, Port).String())
		}
		server := &limit.Server{Handler: h, Log: log, Connections: connections, PerClient: perClient}
		return serve(ctx, server, all...)
	})
}

func serve(ctx context.Context, server *limit.Server, addresses ...string) error {
	var listeners []net.Listener
	for _, address := range addresses {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			for _, open := range listeners {
				_ = open.Close()
			}
			return fmt.Errorf("listen for readers of metrics: %w", err)
		}
		listeners = append(listeners, l)
	}

	if err := server.Serve(ctx, listeners...); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
