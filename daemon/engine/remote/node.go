package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// How long things may take. A node under load answers late, a dead one never.
const (
	dialTimeout = 30 * time.Second
	aliveEvery  = 10 * time.Second
	aliveWithin = 45 * time.Second
)

// Target is who is logged in to, and as whom.
type Target struct {
	Name     string
	Addr     netip.AddrPort
	User     string // anybody but root needs sudo without a password
	Password string // tried after the key; usually empty
}

// Node is one machine, with one connection: it is opened when it is first needed, kept, and opened anew when it broke.
// A machine that falls silent in the middle of a command is noticed.
type Node struct {
	Target
	Key   ssh.Signer
	Hosts *Hosts
	Trace io.Writer // takes every command with what it printed; may be nil

	mu     sync.Mutex
	client *ssh.Client
	local  netip.Addr
	trace  sync.Mutex
}

// ExitError is a command that ran and failed.
type ExitError struct {
	Node, Command string
	Code          int    // 255 if a signal ended it
	Output        string // the end of what it printed on both outputs
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("run %s on %s: exit code %d: %s", e.Command, e.Node, e.Code, e.Output)
}

// ExitCode is the exit code of a command that failed; -1 if it did not come to that.
func ExitCode(err error) int {
	var exit *ExitError
	if errors.As(err, &exit) {
		return exit.Code
	}
	return -1
}

// Run runs a program and returns what it printed on standard output; stdin may be nil. An ExitError
// says that it failed; any other error that it may or may not have run.
func (n *Node) Run(ctx context.Context, stdin io.Reader, name string, args ...string) (string, error) {
	return n.run(ctx, stdin, false, append([]string{name}, args...))
}

// RunSecret runs a program whose output goes into no log.
func (n *Node) RunSecret(ctx context.Context, name string, args ...string) (string, error) {
	return n.run(ctx, nil, true, append([]string{name}, args...))
}

func (n *Node) run(ctx context.Context, stdin io.Reader, secret bool, words []string) (string, error) {
	if n.User != "root" {
		words = append([]string{"sudo", "-n", "--"}, words...)
	}

	command := Quote(words)
	session, err := n.session(ctx)
	if err != nil {
		return "", err
	}
	defer session.Close()

	defer context.AfterFunc(ctx, func() { _ = session.Close() })()
	var out, both bytes.Buffer
	var guard sync.Mutex
	session.Stdin = stdin
	session.Stdout = &tee{&guard, []*bytes.Buffer{&out, &both}, n.disconnect}
	session.Stderr = &tee{&guard, []*bytes.Buffer{&both}, n.disconnect}
	began := time.Now()
	err = session.Run(command)
	guard.Lock()
	defer guard.Unlock()
	if both.Len() > maxPrinted {
		return "", fmt.Errorf("run %s on %s: it printed more than %d MiB", shortCommand(words), n.Name, maxPrinted>>20)
	}
	said := both.String()
	if secret && err == nil {
		said = "(not shown)"
	}

	n.writeTrace(began, words, said, err)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}

	var exit *ssh.ExitError
	switch {
	case err == nil:
		return out.String(), nil
	case errors.As(err, &exit):
		code := exit.ExitStatus()
		if exit.Signal() != "" {
			code = 255
		}
		return out.String(), &ExitError{
			Node:    n.Name,
			Command: shortCommand(words),
			Code:    code,
			Output:  Tail(both.String()),
		}
	}

	n.disconnect()
	return "", fmt.Errorf("run %s on %s: the connection broke: %w", shortCommand(words), n.Name, err)
}

// RunScript runs shell text with -e and -u; its arguments are $1, $2 and so on.
func (n *Node) RunScript(ctx context.Context, text string, args ...string) (string, error) {
	return n.Run(ctx, nil, "sh", append([]string{"-euc", text, "sh"}, args...)...)
}

// maxPrinted is how much a command may print, in bytes: the node is its owner's, who may have it print without end.
const maxPrinted = 16 << 20

// tee copies what is written, up to maxPrinted; ssh writes from two goroutines.
type tee struct {
	guard   *sync.Mutex
	to      []*bytes.Buffer
	tooMuch func() // ends the connection: the node may not end the command
}

func (t *tee) Write(p []byte) (int, error) {
	t.guard.Lock()
	defer t.guard.Unlock()
	for _, b := range t.to {
		if b.Len() > maxPrinted {
			t.tooMuch()
			return 0, io.ErrShortWrite
		}
		b.Write(p)
	}

	return len(p), nil
}

func (n *Node) writeTrace(began time.Time, words []string, said string, err error) {
	if n.Trace == nil {
		return
	}

	n.trace.Lock()
	defer n.trace.Unlock()
	fmt.Fprintf(
		n.Trace, "%s %s (%.1f s)\n", began.UTC().Format(time.RFC3339), shortCommand(words),
		time.Since(began).Seconds(),
	)
	for line := range strings.Lines(said) {
		fmt.Fprintf(n.Trace, "  %s\n", strings.TrimRight(line, "\r\n"))
	}

	if err != nil {
		fmt.Fprintf(n.Trace, "  -> %v\n", err)
	}
}

// LocalAddr is this side's address as the node sees it; invalid before the first connection.
func (n *Node) LocalAddr() netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.local
}

// Close ends the connection.
func (n *Node) Close() { n.disconnect() }

func (n *Node) disconnect() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client != nil {
		_ = n.client.Close()
		n.client = nil
	}
}

// session opens a session on the connection that is there, or on a new one if that is dead.
func (n *Node) session(ctx context.Context) (*ssh.Session, error) {
	for try := range 2 {
		client, err := n.connect(ctx)
		if err != nil {
			return nil, err
		}

		session, err := client.NewSession()
		if err == nil {
			return session, nil
		}

		n.disconnect()
		if try == 1 {
			return nil, fmt.Errorf("open session on %s: %w", n.Name, err)
		}
	}
	panic("unreachable")
}

// connect returns the connection, made if there is none.
func (n *Node) connect(ctx context.Context) (*ssh.Client, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client != nil {
		return n.client, nil
	}

	client, err := Dial(ctx, n.Addr, n.config())
	if err != nil {
		return nil, n.loginError(err)
	}

	if a, ok := client.LocalAddr().(*net.TCPAddr); ok {
		n.local = a.AddrPort().Addr().Unmap()
	}

	n.client = client
	go keepAlive(n.client)
	return n.client, nil
}

func (n *Node) config() *ssh.ClientConfig {
	auth := []ssh.AuthMethod{ssh.PublicKeys(n.Key)}
	if n.Password != "" {
		auth = append(auth, ssh.Password(n.Password))
	}
	return &ssh.ClientConfig{
		User:              n.User,
		Auth:              auth,
		HostKeyCallback:   n.Hosts.Check,
		HostKeyAlgorithms: n.Hosts.Algorithms(n.Addr.String()),
		Timeout:           dialTimeout,
	}
}

// ReachError is a node that does not answer.
type ReachError struct {
	Node string
	Err  error
}

func (e *ReachError) Error() string { return fmt.Sprintf("reach %s: %v", e.Node, e.Err) }
func (e *ReachError) Unwrap() error { return e.Err }

// LoginError is a node that answers and does not let us in.
type LoginError struct {
	Node, User string
	Err        error
}

func (e *LoginError) Error() string {
	return fmt.Sprintf("log in to %s as %s: %v", e.Node, e.User, e.Err)
}
func (e *LoginError) Unwrap() error { return e.Err }

func (n *Node) loginError(err error) error {
	var changed *HostKeyChangedError
	if errors.As(err, &changed) {
		return fmt.Errorf("log in to %s: %w", n.Name, changed)
	}
	if IsRefused(err) {
		return &LoginError{
			Node: n.Name,
			User: n.User,
			Err:  errors.New("the appliance's key is not accepted; is it in authorized_keys?"),
		}
	}

	return &ReachError{n.Name, err}
}

// keepAlive closes a connection whose other end is gone: a power cut sends no farewell.
func keepAlive(client *ssh.Client) {
	for {
		time.Sleep(aliveEvery)
		answer := make(chan error, 1)
		go func() {
			_, _, err := client.SendRequest("keepalive@openssh.com", true, nil)
			answer <- err
		}()

		select {
		case err := <-answer:
			if err == nil {
				continue
			}
		case <-time.After(aliveWithin):
		}

		_ = client.Close()
		return
	}
}
