package login

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
)

func key(t testing.TB) ssh.Signer {
	_, k, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	s, err := ssh.NewSignerFromKey(k)
	require.NoError(t, err)
	return s
}

func public(s ssh.Signer) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.PublicKey())))
}

// node is a machine that can be logged in to: an SSH server of the library's, whose commands
// run in a directory with its own usermod, getent and sudo. "shadow" holds ubuntu's password.
type node struct {
	t      *testing.T
	dir    string
	signer ssh.Signer
	port   uint16
	logins atomic.Int32
}

func newNode(t *testing.T) *node {
	n := &node{t: t, dir: t.TempDir(), signer: key(t)}
	require.NoError(t, os.MkdirAll(filepath.Join(n.dir, "bin"), 0o755))
	n.put("shadow", "ubuntu")
	for name, text := range map[string]string{
		"getent":  `echo root:x:0:0:root:$DIR/root:/bin/sh`,
		"usermod": `[ "$1 $2 $3" = "-p * ubuntu" ] && echo '*' >$DIR/shadow`,
		"sudo":    `read -r p; [ -f $DIR/nosudo ] && { echo "sudo: not allowed" >&2; exit 1; }; [ "$1 $2 $3" = "-S -p " ] && shift 3; exec "$@"`,
	} {
		n.put("bin/"+name, "#!/bin/sh\n"+text+"\n")
		require.NoError(t, os.Chmod(filepath.Join(n.dir, "bin", name), 0o755))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	n.port = uint16(l.Addr().(*net.TCPAddr).Port)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go n.serve(c)
		}
	}()
	return n
}

func (n *node) put(name, text string) {
	require.NoError(n.t, os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o644))
}

func (n *node) get(name string) string {
	text, _ := os.ReadFile(filepath.Join(n.dir, name))
	return strings.TrimSpace(string(text))
}

func (n *node) serve(c net.Conn) {
	config := &ssh.ServerConfig{
		PasswordCallback: func(m ssh.ConnMetadata, p []byte) (*ssh.Permissions, error) {
			if m.User() == "ubuntu" && string(p) == n.get("shadow") {
				return nil, nil
			}
			return nil, errors.New("no")
		},
		PublicKeyCallback: func(m ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
			if m.User() == "root" && strings.Contains(n.get("root/.ssh/authorized_keys"), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k)))) {
				return nil, nil
			}
			return nil, errors.New("no")
		},
	}
	config.AddHostKey(n.signer)
	_, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}
	n.logins.Add(1)
	go ssh.DiscardRequests(requests)
	for open := range channels {
		ch, requests, err := open.Accept()
		if err != nil {
			return
		}
		for r := range requests {
			if r.Type != "exec" {
				r.Reply(false, nil)
				continue
			}
			r.Reply(true, nil)
			cmd := exec.CommandContext(n.t.Context(), "/bin/sh", "-c", string(r.Payload[4:]))
			cmd.Env = []string{"DIR=" + n.dir, "PATH=" + n.dir + "/bin:/usr/bin:/bin"}
			cmd.Stdout, cmd.Stderr = ch, ch.Stderr()
			in, _ := cmd.StdinPipe()
			go func() { io.Copy(in, ch); in.Close() }()
			code := byte(0)
			if cmd.Run() != nil {
				code = byte(cmd.ProcessState.ExitCode())
			}
			ch.SendRequest("exit-status", false, []byte{0, 0, 0, code})
			ch.Close()
			break
		}
	}
}

var local = netip.MustParseAddr("127.0.0.1")

func (n *node) shell() Shell { return Shell{Signer: key(n.t), Port: n.port} }

// trust lets a shell's key in.
func (n *node) trust(s Shell) {
	require.NoError(n.t, os.MkdirAll(filepath.Join(n.dir, "root/.ssh"), 0o755))
	n.put("root/.ssh/authorized_keys", public(s.Signer)+"\n")
}

func TestRun(t *testing.T) {
	n := newNode(t)
	s := n.shell()
	n.trust(s)
	out, said, err := s.Run(t.Context(), local, public(n.signer), "echo out; echo said >&2; exit 3\n")
	require.NoError(t, err)
	assert.Equal(t, "out\n", out)
	assert.Equal(t, "said\nexit code 3\n", said)
}

func TestRunRefusesAnotherHost(t *testing.T) {
	n := newNode(t)
	s := n.shell()
	n.trust(s)
	_, _, err := s.Run(t.Context(), local, public(key(t)), "touch ran\n")
	assert.ErrorContains(t, err, "another machine has this address, or it was installed anew")
	_, _, err = s.Run(t.Context(), local, "", "touch ran\n")
	assert.ErrorIs(t, err, ErrUnknownHost)
	_, _, err = s.Run(t.Context(), local, "ssh-ed25519 x", "touch ran\n")
	assert.ErrorContains(t, err, "read its host key")
	assert.Zero(t, n.logins.Load())
}

func TestRunEndsWithItsContext(t *testing.T) {
	n := newNode(t)
	s := n.shell()
	n.trust(s)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, cancel)
	_, _, err := s.Run(ctx, local, public(n.signer), "exec sleep 600\n")
	assert.ErrorIs(t, err, context.Canceled)
}

func TestAdopt(t *testing.T) {
	n := newNode(t)
	s := n.shell()
	p := Password{"ubuntu", "ubuntu"}
	pinned := ""
	pin := func(k string) error {
		assert.Equal(t, "ubuntu", n.get("shadow"), "the password went before the host key was kept")
		pinned = k
		return nil
	}
	require.NoError(t, s.Adopt(t.Context(), local, "", p, pin))
	assert.Equal(t, public(n.signer), pinned)
	assert.Equal(t, "*", n.get("shadow"), "the default password still opens it")
	assert.Equal(t, public(s.Signer)+" appliance", n.get("root/.ssh/authorized_keys"))
	require.NoError(t, s.Adopt(t.Context(), local, pinned, p, pin), "again, when all is done")
	assert.Equal(t, public(s.Signer)+" appliance", n.get("root/.ssh/authorized_keys"))
	assert.Error(t, s.Adopt(t.Context(), local, "", p, pin), "the password was taken away and still works")
}

func TestAdoptCutOff(t *testing.T) {
	n := newNode(t)
	s, p := n.shell(), Password{"ubuntu", "ubuntu"}
	kept := ""
	lost := func(k string) error { kept = k; return errors.New("no space left on device") }
	assert.ErrorContains(t, s.Adopt(t.Context(), local, "", p, lost), "keep host key")
	assert.Equal(t, "ubuntu", n.get("shadow"), "the password is gone and the host key was not kept")
	// Cut off before the host key was kept, and after.
	require.NoError(t, s.Adopt(t.Context(), local, "", p, func(string) error { return nil }))
	n.put("shadow", "ubuntu")
	require.NoError(t, s.Adopt(t.Context(), local, kept, p, nil))
	assert.Equal(t, "*", n.get("shadow"))
}

func TestAdoptRefusals(t *testing.T) {
	n := newNode(t)
	s := n.shell()
	adopt := func(hostKey, password string) error {
		return s.Adopt(t.Context(), local, hostKey, Password{"ubuntu", password}, func(string) error { return nil })
	}
	assert.ErrorContains(t, adopt("", "wrong"), "log in to 127.0.0.1 as ubuntu")
	assert.ErrorContains(t, adopt(public(key(t)), "ubuntu"), "another machine has this address", "the password was told to another machine")
	n.put("nosudo", "")
	assert.ErrorContains(t, adopt("", "ubuntu"), "user ubuntu may not become root")
	assert.Equal(t, "ubuntu", n.get("shadow"))
}

func TestTailIsBounded(t *testing.T) {
	var b tail
	for range 3 {
		b.Write(bytes.Repeat([]byte("x"), maxOutput-1))
	}
	b.Write(append(bytes.Repeat([]byte("y"), 2*maxOutput), 'z'))
	assert.Len(t, b.Bytes(), maxOutput)
	assert.True(t, bytes.HasSuffix(b.Bytes(), []byte("yz")))
}
