package try

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"firstlight.dev/firstlight/image/lab/netns"
)

// forward passes connections to a port of loopback on to an address in the appliance's network, until ctx ends.
type forward struct {
	to       string        // HOST:PORT, as the appliance reaches it
	network  func() string // file that stands for the appliance's network; another one after a restart
	listener net.Listener
}

// listenForward takes port of loopback; 0 is any that is free.
func listenForward(port int, to string, network func() string) (*forward, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil && port != 0 { // somebody else took it since the last run
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("forward to %s: %w", to, err)
	}

	return &forward{to: to, network: network, listener: l}, nil
}

func (f *forward) port() int { return f.listener.Addr().(*net.TCPAddr).Port }

// serve returns when the listener is closed.
func (f *forward) serve(ctx context.Context) {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		go f.pass(ctx, conn)
	}
}

// pass connects one connection.
func (f *forward) pass(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	var inner net.Conn
	if err := netns.Do(f.network(), func() (err error) {
		dialer := net.Dialer{Timeout: 10 * time.Second, FallbackDelay: -1} // no other thread: it would be outside
		inner, err = dialer.DialContext(ctx, "tcp", f.to)
		return err
	}); err != nil {
		return // the client sees the connection end, as from a port that nobody listens on
	}
	defer inner.Close()

	go func() {
		_, _ = io.Copy(inner, conn)
		_ = inner.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(conn, inner)
}
