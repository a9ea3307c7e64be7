package sitesource

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/daemon/engine/remote/sshtest"
)

// sshServer serves the repository of a gitServer by SSH, to one key of user git.
type sshServer struct {
	t        *testing.T
	url      string
	address  string        // host and port
	key      string        // that may read
	hostKeys atomic.Value  // []ssh.Signer
	known    []string      // lines of documents; none: that of the host's first key
	stall    chan struct{} // if there is one, a session is told there and gets no answer
	allowed  ssh.PublicKey
}

func newSSHServer(r *gitServer) *sshServer {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(r.t, err)
	r.t.Cleanup(func() { listener.Close() })
	s := &sshServer{t: r.t, address: listener.Addr().String()}
	s.key, s.allowed = newKeyPair(r.t)
	s.hostKeys.Store([]ssh.Signer{sshtest.NewKey(r.t)})
	s.url = "ssh://git@" + s.address + r.bare()
	s.known = []string{s.line()}
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	}()
	return s
}

// hostKey is the first of the host's keys.
func (s *sshServer) hostKey() ssh.Signer { return s.hostKeys.Load().([]ssh.Signer)[0] }

// newKeyPair is a private key as ssh-keygen writes it, and its public half.
func newKeyPair(t *testing.T) (string, ssh.PublicKey) {
	key, file := sshtest.NewKeyFile(t)
	return string(file), key.PublicKey()
}

// serve is one connection: a session runs Git's own server, and nothing else.
func (s *sshServer) serve(c net.Conn) {
	defer c.Close()
	config := &ssh.ServerConfig{PublicKeyCallback: func(m ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if m.User() != "git" || string(key.Marshal()) != string(s.allowed.Marshal()) {
			return nil, errors.New("refused")
		}
		return nil, nil
	}}
	for _, key := range s.hostKeys.Load().([]ssh.Signer) {
		config.AddHostKey(key)
	}
	_, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for open := range channels {
		channel, requests, err := open.Accept()
		if err != nil {
			return
		}
		go s.serveSession(channel, requests)
	}
}

func (s *sshServer) serveSession(channel ssh.Channel, requests <-chan *ssh.Request) {
	for q := range requests {
		command := ""
		if q.Type == "exec" {
			command = string(q.Payload[4:])
		}
		if !strings.HasPrefix(command, "git-upload-pack ") {
			_ = q.Reply(false, nil)
			continue
		}
		_ = q.Reply(true, nil)
		if s.stall != nil {
			s.stall <- struct{}{}
			continue
		}
		go s.run(channel, command)
	}
}

func (s *sshServer) run(channel ssh.Channel, command string) {
	cmd := exec.CommandContext(s.t.Context(), "sh", "-c", command)
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	in, err := cmd.StdinPipe()
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(in, channel)
		in.Close()
	}()
	code := uint32(0)
	if cmd.Run() != nil {
		code = 1
	}
	_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{code}))
	channel.Close()
}

// bare is the repository on the server.
func (r *gitServer) bare() string { return filepath.Join(filepath.Dir(r.dir), "sites.git") }

// document is a site document that follows the repository by SSH, with more below it; without a key it is one of the
// source, in which the key is hidden.
func (s *sshServer) document(name, key, more string) string {
	written := `"[redacted]"`
	if key != "" {
		written = "|\n        " + strings.ReplaceAll(strings.TrimSpace(key), "\n", "\n        ")
	}
	return fmt.Sprintf(`name: %s
appliance:
  follow:
    git:
      url: %s
      privateKey: %s
      knownHosts:
      - "%s"
    path: sites/%s
%s`, name, s.url, written, strings.Join(s.known, "\"\n      - \""), name, more)
}
