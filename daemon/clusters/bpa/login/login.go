// Package login runs scripts on nodes by SSH as root with the appliance's key, and gets that
// key onto nodes whose image came with a default user and password instead. A host key is
// either known before or pinned at that first contact; nothing is ever said to a host that
// shows another.
package login

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// Timeout is how long a host may take to accept a connection and log us in.
const Timeout = 20 * time.Second

// Shell logs in with one key.
type Shell struct {
	Signer ssh.Signer
	Port   uint16 // 22 if zero
}

// ErrUnknownHost says that nobody has told which host key an address has.
var ErrUnknownHost = errors.New("its host key is not known")

// Run runs a script for /bin/sh as root and returns what it printed on standard output and
// on standard error, the end of it. hostKey is as in authorized_keys. The error is nil if
// the script ran to an end, whatever its exit code.
func (s Shell) Run(ctx context.Context, addr netip.Addr, hostKey, script string) (out, said string, err error) {
	if hostKey == "" {
		return "", "", fmt.Errorf("log in to %s: %w", addr, ErrUnknownHost)
	}
	client, err := s.dial(ctx, addr, "root", ssh.PublicKeys(s.Signer), hostKey, nil)
	if err != nil {
		return "", "", err
	}
	defer client.Close()
	return runSession(ctx, client, "/bin/sh -s", script)
}

// LearnHostKey logs in as root at an address whose host key nobody knows, and returns the key it was shown, as in
// authorized_keys. It is for a system that the appliance has just installed.
func (s Shell) LearnHostKey(ctx context.Context, addr netip.Addr) (hostKey string, err error) {
	var seen ssh.PublicKey
	client, err := s.dial(ctx, addr, "root", ssh.PublicKeys(s.Signer), "", &seen)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(seen))), client.Close()
}

// HostKeyChangedError is a host that shows another key than the one that is known.
type HostKeyChangedError struct{ Shown, Known string } // fingerprints

func (e *HostKeyChangedError) Error() string {
	return fmt.Sprintf("it shows the host key %s, known is %s: another machine has this address, or it was installed anew", e.Shown, e.Known)
}

// Password is a user that an image came with.
type Password struct{ User, Password string }

// Adopt makes the appliance's key root's log-in at addr, and takes the default user's
// password away: by that user it adds the key, then logs in with it, and only then removes
// the password. hostKey is "" at the first contact; pin is then told what the host showed,
// and must have kept it when it returns. It may be cut off anywhere and be called again.
func (s Shell) Adopt(ctx context.Context, addr netip.Addr, hostKey string, p Password, pin func(hostKey string) error) error {
	if hostKey != "" && s.lockPassword(ctx, addr, hostKey, p.User) == nil {
		return nil
	}
	var seen ssh.PublicKey
	client, err := s.dial(ctx, addr, p.User, ssh.Password(p.Password), hostKey, &seen)
	if err != nil {
		return err
	}
	defer client.Close()
	pinned := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(seen)))
	key := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.Signer.PublicKey()))) + " appliance"
	script := fmt.Sprintf(addKey, key)
	command := "/bin/sh -c " + quote(script)
	if p.User != "root" {
		command = "sudo -S -p '' " + command
	}
	if _, said, err := runSession(ctx, client, command, p.Password+"\n"); err != nil {
		return fmt.Errorf("add key at %s: %w", addr, err)
	} else if strings.Contains(said, "sudo:") {
		return fmt.Errorf("add key at %s: user %s may not become root: %s", addr, p.User, said)
	}
	if err := pin(pinned); err != nil { // once the password is gone there is no second first contact
		return fmt.Errorf("keep host key of %s: %w", addr, err)
	}
	if err := s.lockPassword(ctx, addr, pinned, p.User); err != nil {
		return fmt.Errorf("log in with the added key, password of %s kept: %w", p.User, err)
	}
	return nil
}

// addKey is for root's shell. A line that is there stays the only one.
const addKey = `set -e
umask 077
home=$(getent passwd root | cut -d: -f6)
mkdir -p "$home/.ssh"
touch "$home/.ssh/authorized_keys"
grep -qxF '%[1]s' "$home/.ssh/authorized_keys" || echo '%[1]s' >>"$home/.ssh/authorized_keys"`

// lockPassword takes a user's password away, as root. '*' is no password's hash, and unlike '!' does
// not keep the user's own keys from logging in (shadow(5)).
func (s Shell) lockPassword(ctx context.Context, addr netip.Addr, hostKey, user string) error {
	out, said, err := s.Run(ctx, addr, hostKey, "usermod -p '*' "+quote(user)+" && echo locked\n")
	if err != nil {
		return err
	}
	if strings.TrimSpace(out) != "locked" {
		return fmt.Errorf("take password of %s away at %s: %s", user, addr, said)
	}
	return nil
}

// dial connects and logs in. Without a host key the one that is shown is taken, if seen is
// not nil, and put there.
func (s Shell) dial(ctx context.Context, addr netip.Addr, user string, auth ssh.AuthMethod, hostKey string, seen *ssh.PublicKey) (*ssh.Client, error) {
	port := s.Port
	if port == 0 {
		port = 22
	}
	to := netip.AddrPortFrom(addr, port).String()
	config := &ssh.ClientConfig{User: user, Auth: []ssh.AuthMethod{auth}, Timeout: Timeout}
	config.HostKeyCallback = func(_ string, _ net.Addr, key ssh.PublicKey) error {
		if seen != nil {
			*seen = key
		}
		return nil
	}
	if hostKey != "" {
		known, _, _, _, err := ssh.ParseAuthorizedKey([]byte(hostKey))
		if err != nil {
			return nil, fmt.Errorf("log in to %s: read its host key: %w", addr, err)
		}
		config.HostKeyAlgorithms = []string{known.Type()}
		config.HostKeyCallback = func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if seen != nil {
				*seen = key
			}
			if !bytes.Equal(key.Marshal(), known.Marshal()) {
				return &HostKeyChangedError{Shown: ssh.FingerprintSHA256(key), Known: ssh.FingerprintSHA256(known)}
			}
			return nil
		}
	}
	dialing, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(dialing, "tcp", to)
	if err != nil {
		return nil, fmt.Errorf("log in to %s: %w", addr, err)
	}
	conn.SetDeadline(time.Now().Add(Timeout))
	c, channels, requests, err := ssh.NewClientConn(conn, to, config)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("log in to %s as %s: %w", addr, user, err)
	}
	conn.SetDeadline(time.Time{})
	return ssh.NewClient(c, channels, requests), nil
}

// maxOutput bounds what is kept of either stream: the end of it.
const maxOutput = 256 << 10

// runSession runs a command; ctx's end closes the connection.
func runSession(ctx context.Context, client *ssh.Client, command, stdin string) (string, string, error) {
	stop := context.AfterFunc(ctx, func() { client.Close() })
	defer stop()
	run, err := client.NewSession()
	if err != nil {
		return "", "", fmt.Errorf("open session: %w", err)
	}
	defer run.Close()
	var out, said tail
	run.Stdin, run.Stdout, run.Stderr = strings.NewReader(stdin), &out, &said
	err = run.Run(command)
	var exit *ssh.ExitError
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.As(err, &exit):
		err = nil
		fmt.Fprintf(&said, "exit code %d\n", exit.ExitStatus())
	case err != nil:
		err = fmt.Errorf("connection ended: %w: %s", err, said.String())
	}
	return out.String(), said.String(), err
}

// tail keeps the last maxOutput bytes.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) > maxOutput {
		p = p[len(p)-maxOutput:]
	}
	if over := t.Len() + len(p) - maxOutput; over > 0 {
		t.Next(over)
	}
	t.Buffer.Write(p)
	return n, nil
}

// quote makes one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
