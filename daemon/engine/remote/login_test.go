package remote

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// forward connects a channel of RFC 4254, 7.2, to where it asks to go.
func forward(c ssh.NewChannel) {
	var to struct {
		Host     string
		Port     uint32
		From     string
		FromPort uint32
	}
	if err := ssh.Unmarshal(c.ExtraData(), &to); err != nil {
		_ = c.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	far, err := net.Dial("tcp", net.JoinHostPort(to.Host, fmt.Sprint(to.Port)))
	if err != nil {
		_ = c.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	defer far.Close()
	channel, requests, err := c.Accept()
	if err != nil {
		return
	}
	defer channel.Close()
	go ssh.DiscardRequests(requests)
	go func() { _, _ = io.Copy(far, channel); _ = far.Close() }()
	_, _ = io.Copy(channel, far)
}

// login is that of a person to a server that no file knows.
func (s *server) login(key ssh.Signer) Login {
	return Login{
		Host: s.addr().String(), User: "root", Keys: Keys{signers: []ssh.Signer{key}},
		Hosts: &Hosts{Learned: filepath.Join(s.t.TempDir(), "known_hosts")},
	}
}

func TestAPersonRunsCommands(t *testing.T) {
	user := newKey(t)
	s := newServer(t, newKey(t), user.PublicKey())
	l := s.login(user)
	l.Pinned = func(string) {}
	c, err := l.Connect(t.Context())
	require.NoError(t, err)
	defer c.Close()

	for _, row := range []struct {
		in, script, out, said string
		code                  int
	}{
		{"", `echo "$1"; echo no >&2; exit 3`, "a  b'\n", "no\n", 3},
		{"through", "cat", "through", "", 0},
		{"", "cat", "", "", 0},
	} {
		var out, said bytes.Buffer
		streams := Streams{Out: &out, Err: &said}
		if row.in != "" {
			streams.In = strings.NewReader(row.in)
		}
		code, err := c.Run(t.Context(), streams, "sh", "-c", row.script, "sh", "a  b'")
		require.NoError(t, err)
		assert.Equal(t, row.code, code)
		assert.Equal(t, row.out, out.String())
		assert.Equal(t, row.said, said.String())
	}

	ctx, cancel := context.WithCancel(t.Context())
	started := &signalWriter{do: cancel}
	_, err = c.Run(ctx, Streams{Out: started}, "sh", "-c", "echo; sleep 600")
	assert.ErrorIs(t, err, context.Canceled)

	started = &signalWriter{do: s.cut}
	_, err = c.Run(t.Context(), Streams{Out: started}, "sh", "-c", "echo; sleep 600")
	assert.ErrorContains(t, err, "the connection broke")
}

// signalWriter does something when it is written to.
type signalWriter struct{ do func() }

func (w *signalWriter) Write(p []byte) (int, error) { w.do(); return len(p), nil }

func TestAHostKeyIsBelievedOnce(t *testing.T) {
	user := newKey(t)
	s := newServer(t, newKey(t), user.PublicKey())
	var pinned []string
	connect := func(l Login) error {
		c, err := l.Connect(t.Context())
		if err == nil {
			c.Close()
		}
		return err
	}

	l := s.login(user)
	require.ErrorIs(t, connect(l), ErrForgottenHost, "only the first log-in believes a key")
	l.Pinned = func(fingerprint string) { pinned = append(pinned, fingerprint) }
	require.NoError(t, connect(l))
	require.NoError(t, connect(l))
	assert.Equal(t, []string{ssh.FingerprintSHA256(s.host.PublicKey())}, pinned)
	l.Pinned = nil
	require.NoError(t, connect(l))

	var changed *HostKeyChangedError
	l.Hosts.Known = knownFile(t, s.addr(), newKey(t))
	l.Hosts.Learned = filepath.Join(t.TempDir(), "none")
	l.Pinned = func(string) { t.Error("another key than the user's known_hosts has is believed") }
	require.ErrorAs(t, connect(l), &changed)
	assert.Equal(t, l.Hosts.Known, changed.File)
	assert.NoFileExists(t, l.Hosts.Learned)

	l.Hosts.Known = knownFile(t, s.addr(), s.host)
	l.Pinned = nil
	require.NoError(t, connect(l), "a key of the user's known_hosts is known")

	l.Keys = Keys{signers: []ssh.Signer{newKey(t)}}
	assert.True(t, IsRefused(connect(l)))

	var noAnswer *ConnectError
	_ = s.listener.Close()
	require.ErrorAs(t, connect(l), &noAnswer)
	l.Host = "no-such-host.invalid:22"
	var name *net.DNSError
	require.ErrorAs(t, connect(l), &name)
}

func TestForward(t *testing.T) {
	behind, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer behind.Close()
	go func() {
		for {
			conn, err := behind.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()

	user := newKey(t)
	s := newServer(t, newKey(t), user.PublicKey())
	l := s.login(user)
	l.Pinned = func(string) {}
	c, err := l.Connect(t.Context())
	require.NoError(t, err)
	defer c.Close()

	begin := func(ctx context.Context, to string) (net.Conn, chan error) {
		near, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- c.Forward(ctx, near, to) }()
		conn, err := net.Dial("tcp", near.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn, ended
	}
	echo := func(conn net.Conn) {
		_, err := conn.Write([]byte("hello"))
		require.NoError(t, err)
		got := make([]byte, 5)
		_, err = io.ReadFull(conn, got)
		require.NoError(t, err)
		assert.Equal(t, "hello", string(got))
	}

	ctx, cancel := context.WithCancel(t.Context())
	conn, ended := begin(ctx, behind.Addr().String())
	echo(conn)
	cancel()
	assert.NoError(t, <-ended)

	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	conn, _ = begin(t.Context(), closed.Addr().String())
	_, err = conn.Read(make([]byte, 1))
	assert.Error(t, err, "what the machine does not reach is closed")

	conn, ended = begin(t.Context(), behind.Addr().String())
	echo(conn)
	s.cut()
	assert.ErrorContains(t, <-ended, "the connection broke")
}

func TestReadKeys(t *testing.T) {
	dir := t.TempDir()
	write := func(name, passphrase string) string {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		require.NoError(t, err)
		block, err := ssh.MarshalPrivateKey(key, "")
		if passphrase != "" {
			block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
		}
		require.NoError(t, err)
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
		return path
	}

	_, err := ReadUserKeys("", dir)
	assert.EqualError(t, err, "neither the agent nor "+dir+" has an SSH key; make one with ssh-keygen")
	path := write("id_rsa", "secret")
	_, err = ReadUserKeys(filepath.Join(dir, "no-socket"), dir)
	assert.EqualError(t, err, "read SSH key "+path+": it has a passphrase; give it to the agent with ssh-add "+path)
	write("id_ed25519", "")
	keys, err := ReadUserKeys("", dir)
	require.NoError(t, err)
	assert.Len(t, keys.signers, 1)

	_, err = ReadKey(filepath.Join(dir, "none"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("ssh-ed25519 AAAA"), 0o600))
	_, err = ReadKey(path)
	assert.ErrorContains(t, err, "name the file of the private half")
}

// TestAnAgentSignsUntilClose: the keys of an agent never leave it.
func TestAnAgentSignsUntilClose(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	ring := agent.NewKeyring()
	require.NoError(t, ring.Add(agent.AddedKey{PrivateKey: key}))
	socket := filepath.Join(t.TempDir(), "agent")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _ = agent.ServeAgent(ring, conn) }()
		}
	}()

	keys, err := ReadUserKeys(socket, t.TempDir())
	require.NoError(t, err)
	require.Len(t, keys.signers, 1)
	login := newServer(t, newKey(t), keys.signers[0].PublicKey()).login(keys.signers[0])
	login.Pinned = func(string) {}
	c, err := login.Connect(t.Context())
	require.NoError(t, err)
	c.Close()

	keys.Close()
	_, err = login.Connect(t.Context())
	assert.Error(t, err)
}
