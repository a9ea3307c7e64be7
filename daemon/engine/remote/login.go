package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"golang.org/x/crypto/ssh"
)

// Login is how a person logs in to a machine from a workstation. Its host key must be one of Hosts; one that no file of
// theirs has is believed once if Pinned is not nil, which is then called with its fingerprint.
type Login struct {
	Host   string // HOST:PORT, as known_hosts has it
	User   string
	Keys   Keys
	Hosts  *Hosts
	Pinned func(fingerprint string)
}

// ErrForgottenHost says that no file has the host key of a machine whose key was known before.
var ErrForgottenHost = errors.New("its host key is known no more")

// Connect logs in. Its errors are those of Dial, an error of net.Resolver, ErrForgottenHost, and those of Hosts.Check.
func (l Login) Connect(ctx context.Context) (*Connection, error) {
	addr, err := resolve(ctx, l.Host)
	if err != nil {
		return nil, &ConnectError{err}
	}

	known := l.Hosts.Algorithms(l.Host)
	config := &ssh.ClientConfig{
		User:              l.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(l.Keys.signers...)},
		HostKeyAlgorithms: known,
		Timeout:           dialTimeout,
		HostKeyCallback: func(_ string, from net.Addr, key ssh.PublicKey) error {
			return l.checkHost(from, key, len(known) > 0)
		},
	}
	client, err := Dial(ctx, addr, config)
	if err != nil {
		return nil, err
	}

	go keepAlive(client)
	return &Connection{client}, nil
}

func (l Login) checkHost(from net.Addr, key ssh.PublicKey, known bool) error {
	if !known && l.Pinned == nil {
		return ErrForgottenHost
	}
	if err := l.Hosts.Check(l.Host, from, key); err != nil {
		return err
	}

	if !known {
		l.Pinned(ssh.FingerprintSHA256(key))
	}
	return nil
}

// resolve returns the first address of HOST:PORT.
func resolve(ctx context.Context, host string) (netip.AddrPort, error) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return netip.AddrPort{}, err
	}

	number, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return netip.AddrPort{}, err
	}

	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return netip.AddrPort{}, err
	}

	return netip.AddrPortFrom(all[0].Unmap(), uint16(number)), nil
}

// Connection is one log-in of a person.
type Connection struct{ client *ssh.Client }

// Streams are a command's. In may be nil.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Run runs a command with the streams of the caller, as it would run here, and returns its exit code. An error says that
// it may or may not have run.
func (c *Connection) Run(ctx context.Context, streams Streams, words ...string) (code int, err error) {
	session, err := c.client.NewSession()
	if err != nil {
		return 0, fmt.Errorf("open session: %w", err)
	}
	defer session.Close()

	defer context.AfterFunc(ctx, func() { _ = session.Close() })()
	session.Stdin, session.Stdout, session.Stderr = streams.In, streams.Out, streams.Err
	err = session.Run(Quote(words))
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return 0, nil
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.As(err, &exit) && exit.Signal() != "":
		return 255, nil
	case errors.As(err, &exit):
		return exit.ExitStatus(), nil
	}
	return 0, fmt.Errorf("the connection broke: %w", err)
}

// Forward passes what connects to l on to an address that the machine reaches, until ctx ends, which is no error, or the
// connection to the machine breaks. It closes l.
func (c *Connection) Forward(ctx context.Context, l net.Listener, to string) error {
	defer l.Close()
	broke := make(chan error, 1)
	go func() { broke <- c.client.Wait() }()
	go c.acceptAll(l, to)

	select {
	case <-ctx.Done():
		return nil
	case err := <-broke:
		return fmt.Errorf("the connection broke: %w", err)
	}
}

func (c *Connection) acceptAll(l net.Listener, to string) {
	for {
		near, err := l.Accept()
		if err != nil {
			return
		}
		go c.pass(near, to)
	}
}

// pass copies one connection both ways. If the machine does not reach the address, it is closed: its client says that
// the other end hung up.
func (c *Connection) pass(near net.Conn, to string) {
	defer near.Close()
	far, err := c.client.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()

	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{far, near}, {near, far}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			ended <- struct{}{}
		}()
	}
	<-ended
}

// Close ends the connection.
func (c *Connection) Close() { _ = c.client.Close() }
