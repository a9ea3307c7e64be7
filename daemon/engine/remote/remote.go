// Package remote runs commands on machines by SSH. A Node is logged in to with the keys of known_hosts files and keeps
// its connection; a Shell logs in once for each script, to a machine whose host key is given. Nothing is ever said to
// a machine that shows another key than the one known.
//
// Quoting is done here and nowhere else: a command is a list of words, never a line.
package remote

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// ConnectError says that nothing takes connections at an address.
type ConnectError struct{ Err error }

func (e *ConnectError) Error() string { return e.Err.Error() }
func (e *ConnectError) Unwrap() error { return e.Err }

// HostKeyChangedError is a machine that shows another key than the one known: another machine, or a system installed
// anew, or somebody between.
type HostKeyChangedError struct {
	Addr         string
	File         string // that holds the key, with its line; "" if the key was given
	Line         int
	Shown, Known string // fingerprints, of a key that was given
}

func (e *HostKeyChangedError) Error() string {
	if e.File != "" {
		return fmt.Sprintf(
			"host key of %s is not the one in %s:%d; if the machine was installed again, remove that line", e.Addr,
			e.File, e.Line,
		)
	}
	return fmt.Sprintf(
		"it shows the host key %s, known is %s: another machine has this address, or it was installed again", e.Shown,
		e.Known,
	)
}

// IsRefused reports whether a machine answered and did not accept the login. The library has no type for it.
func IsRefused(err error) bool { return strings.Contains(err.Error(), "unable to authenticate") }

// Dial connects and logs in within config.Timeout, until ctx ends. A ConnectError says that nothing answered at all, a
// HostKeyChangedError and IsRefused that something did.
func Dial(ctx context.Context, addr netip.AddrPort, config *ssh.ClientConfig) (*ssh.Client, error) {
	deadline := time.Now().Add(config.Timeout)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return nil, &ConnectError{err}
	}

	_ = conn.SetDeadline(deadline)
	interrupted := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	c, channels, requests, err := ssh.NewClientConn(conn, addr.String(), config)
	if stillGoing := interrupted(); err == nil && !stillGoing {
		err = context.Cause(ctx)
	}

	if err != nil {
		_ = conn.Close()
		return nil, err
	}

	_ = conn.SetDeadline(time.Time{})
	return ssh.NewClient(c, channels, requests), nil
}

// Pin makes a configuration ask for one host key and accept no other: a HostKeyChangedError.
func Pin(config *ssh.ClientConfig, known ssh.PublicKey) {
	config.HostKeyAlgorithms = algorithms(known)
	config.HostKeyCallback = func(address string, _ net.Addr, shown ssh.PublicKey) error {
		if bytes.Equal(shown.Marshal(), known.Marshal()) {
			return nil
		}
		return &HostKeyChangedError{
			Addr:  address,
			Shown: ssh.FingerprintSHA256(shown),
			Known: ssh.FingerprintSHA256(known),
		}
	}
}

// algorithms are the signatures that a host key makes: of RSA the key's kind is not the signature's.
func algorithms(key ssh.PublicKey) []string {
	if key.Type() == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSASHA512}
	}
	return []string{key.Type()}
}
