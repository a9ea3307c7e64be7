package remote

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

func newKey(t *testing.T) ssh.Signer {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	s, err := ssh.NewSignerFromKey(key)
	require.NoError(t, err)
	return s
}

// server is an SSH server that runs what it is asked in a shell of this machine.
type server struct {
	t        *testing.T
	host     ssh.Signer
	user     ssh.PublicKey
	listener net.Listener
	mu       sync.Mutex
	conns    []net.Conn
}

func newServer(t *testing.T, host ssh.Signer, user ssh.PublicKey) *server {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &server{t: t, host: host, user: user, listener: l}
	go s.serve()
	t.Cleanup(func() { _ = l.Close(); s.cut() })
	return s
}

func (s *server) addr() netip.AddrPort { return netip.MustParseAddrPort(s.listener.Addr().String()) }

// cut breaks every connection, as a power cut would.
func (s *server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
}

func (s *server) serve() {
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if s.user == nil || !bytes.Equal(key.Marshal(), s.user.Marshal()) {
			return nil, errors.New("not this key")
		}
		return nil, nil
	}, PasswordCallback: func(_ ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
		if string(password) != "root" {
			return nil, errors.New("not this password")
		}
		return nil, nil
	}}
	config.AddHostKey(s.host)
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, conn)
		s.mu.Unlock()
		go func() {
			_, channels, requests, err := ssh.NewServerConn(conn, config)
			if err != nil {
				return
			}
			go ssh.DiscardRequests(requests)
			for c := range channels {
				go session(c)
			}
		}()
	}
}

func session(c ssh.NewChannel) {
	if c.ChannelType() == "direct-tcpip" {
		forward(c)
		return
	}
	channel, requests, err := c.Accept()
	if err != nil {
		return
	}
	defer channel.Close()
	for r := range requests {
		if r.Type != "exec" {
			_ = r.Reply(false, nil)
			continue
		}
		_ = r.Reply(true, nil)
		cmd := exec.Command("/bin/sh", "-c", string(r.Payload[4:]))
		cmd.Stdin, cmd.Stdout, cmd.Stderr = channel, channel, channel.Stderr()
		code := 0
		if err := cmd.Run(); err != nil {
			code = max(cmd.ProcessState.ExitCode(), 1)
		}
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ C uint32 }{uint32(code)}))
		return
	}
}

// node is a node of the server, whose host key is known if known says so.
func (s *server) node(key ssh.Signer, known string) *Node {
	n := &Node{Target: Target{Name: "node-1", Addr: s.addr(), User: "root"}, Key: key,
		Hosts: &Hosts{Known: known, Learned: filepath.Join(s.t.TempDir(), "kept", "learned")}}
	s.t.Cleanup(n.Close)
	return n
}

func knownFile(t *testing.T, addr netip.AddrPort, keys ...ssh.Signer) string {
	path := filepath.Join(t.TempDir(), "known_hosts")
	var text strings.Builder
	for _, k := range keys {
		fmt.Fprintln(&text, knownhosts.Line([]string{knownhosts.Normalize(addr.String())}, k.PublicKey()))
	}
	require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o644))
	return path
}

// hangs is a script that does not end. Once it runs, something is done.
func hangs(t *testing.T, then func()) string {
	file := filepath.Join(t.TempDir(), "began")
	go func() {
		for t.Context().Err() == nil {
			if _, err := os.Stat(file); err == nil {
				then()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return "touch " + file + "; exec sleep 600"
}

func TestRun(t *testing.T) {
	user := newKey(t)
	s := newServer(t, newKey(t), user.PublicKey())
	n := s.node(user, knownFile(t, s.addr(), s.host))
	var trace bytes.Buffer
	n.Trace = &trace

	words := []string{"", "a b", "it's", `"$HOME"`, "back\\slash", "new\nline", "*", "-n", "ä;|&"}
	out, err := n.Run(t.Context(), nil, "printf", append([]string{"%s\\0"}, words...)...)
	require.NoError(t, err)
	assert.Equal(t, strings.Join(words, "\x00")+"\x00", out)

	out, err = n.Run(t.Context(), strings.NewReader("through standard input"), "cat")
	require.NoError(t, err)
	assert.Equal(t, "through standard input", out)

	out, err = n.RunScript(t.Context(), `echo to you; echo "not found: $1" >&2; exit 3`, "the file")
	assert.Equal(t, "to you\n", out)
	assert.Equal(t, 3, ExitCode(err))
	assert.ErrorContains(t, err, "on node-1: exit code 3")
	assert.ErrorContains(t, err, "not found: the file")
	assert.Contains(t, trace.String(), "  not found: the file\n", "what a command printed is not in the node's log")

	out, err = n.RunSecret(t.Context(), "printf", "%s", "pass"+"word")
	require.NoError(t, err)
	assert.Equal(t, "password", out)
	assert.Contains(t, trace.String(), "(not shown)")

	_, err = n.RunScript(t.Context(), `echo "$unset_variable"`)
	assert.Error(t, err, "a script went on after a mistake")
	assert.Equal(t, netip.MustParseAddr("127.0.0.1"), n.LocalAddr())

	ctx, cancel := context.WithCancel(t.Context())
	_, err = n.RunScript(ctx, hangs(t, cancel))
	assert.ErrorIs(t, err, context.Canceled)
}

// TestANodeThatPrintsWithoutEndIsLeft: whoever has the node has its shell, and the memory of the appliance is for all.
func TestANodeThatPrintsWithoutEndIsLeft(t *testing.T) {
	user := newKey(t)
	s := newServer(t, newKey(t), user.PublicKey())
	n := s.node(user, knownFile(t, s.addr(), s.host))
	for _, command := range []string{"yes", "yes >&2"} {
		out, err := n.RunScript(t.Context(), command)
		assert.ErrorContains(t, err, "printed more than 16 MiB", command)
		assert.Empty(t, out)
	}
	out, err := n.Run(t.Context(), nil, "head", "-c", "10000000", "/dev/zero")
	require.NoError(t, err)
	assert.Len(t, out, 10000000)
}

func TestAConnectionThatBrokeIsMadeAnew(t *testing.T) {
	user := newKey(t)
	s := newServer(t, newKey(t), user.PublicKey())
	n := s.node(user, "")
	_, err := n.Run(t.Context(), nil, "true")
	require.NoError(t, err)
	_, err = n.RunScript(t.Context(), hangs(t, s.cut))
	assert.ErrorContains(t, err, "the connection broke")
	assert.Equal(t, -1, ExitCode(err), "nobody knows how it ended")
	_, err = n.Run(t.Context(), nil, "true")
	require.NoError(t, err)
}

func TestHostKeys(t *testing.T) {
	user, first, second := newKey(t), newKey(t), newKey(t)
	s := newServer(t, first, user.PublicKey())
	run := func(n *Node) error {
		defer n.Close()
		_, err := n.Run(t.Context(), nil, "true")
		return err
	}
	assert.NoError(t, run(s.node(user, knownFile(t, s.addr(), first))))
	assert.NoError(t, run(s.node(user, knownFile(t, s.addr(), second, first))), "one of two keys")

	var changed *HostKeyChangedError
	err := run(s.node(user, knownFile(t, s.addr(), second)))
	require.ErrorAs(t, err, &changed)
	assert.ErrorContains(t, err, "known_hosts:1; if the machine was installed again, remove that line")

	unknown := s.node(user, filepath.Join(t.TempDir(), "absent"))
	require.NoError(t, run(unknown), "a node that is not known is believed once")
	assert.FileExists(t, unknown.Hosts.Learned)
	require.NoError(t, run(unknown))
	s.host = second
	_ = s.listener.Close()
	other := newServer(t, second, user.PublicKey())
	text, err := os.ReadFile(unknown.Hosts.Learned)
	require.NoError(t, err)
	moved := strings.ReplaceAll(string(text), fmt.Sprint(unknown.Addr.Port()), fmt.Sprint(other.addr().Port()))
	require.NoError(t, os.WriteFile(unknown.Hosts.Learned, []byte(moved), 0o644))
	unknown.Addr = other.addr()
	require.ErrorAs(t, run(unknown), &changed, "and never with another key")
}

func TestLogIn(t *testing.T) {
	user := newKey(t)
	s := newServer(t, newKey(t), user.PublicKey())
	var login *LoginError
	n := s.node(newKey(t), "")
	_, err := n.Run(t.Context(), nil, "true")
	require.ErrorAs(t, err, &login)
	assert.EqualError(t, err, "log in to node-1 as root: the appliance's key is not accepted; is it in authorized_keys?")
	n.Password = "root"
	_, err = n.Run(t.Context(), nil, "true")
	require.NoError(t, err)

	_ = s.listener.Close()
	gone := s.node(user, "")
	_, err = gone.Run(t.Context(), nil, "true")
	assert.ErrorContains(t, err, "reach node-1")
	assert.False(t, errors.As(err, &login))
}

func FuzzQuote(f *testing.F) {
	f.Add("it's", "a\nb", "$(reboot)")
	f.Add("", "-n", "\\'")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		words := []string{"printf", "%s\\0", a, b, c}
		for _, w := range words {
			if strings.Contains(w, "\x00") {
				t.Skip("no argument of a program holds a zero byte")
			}
		}
		out, err := exec.Command("/bin/sh", "-c", Quote(words)).Output()
		require.NoError(t, err)
		assert.Equal(t, a+"\x00"+b+"\x00"+c+"\x00", string(out))
	})
}

func TestTail(t *testing.T) {
	assert.Equal(t, "one two", Tail("one\n\n two \r\n"))
	long := Tail(strings.Repeat("ä ", 1000))
	assert.Less(t, len(long), 620)
	assert.Equal(t, strings.ToValidUTF8(long, "?"), long)
}
