package virtualrack

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"net"
	"net/http"
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

	"firstlight.dev/firstlight/assets/status"
)

func hostKey(t *testing.T) ssh.Signer {
	_, secret, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromSigner(secret)
	require.NoError(t, err)
	return signer
}

func TestTheKeyIsMintedOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ssh")
	first, err := mintKey(dir)
	require.NoError(t, err)
	assert.Regexp(t, `^ssh-ed25519 \S+ lab$`, first)
	again, err := mintKey(dir)
	require.NoError(t, err)
	assert.Equal(t, first, again)
	info, err := os.Stat(filepath.Join(dir, keyFile))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestAnotherHostKeyIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), knownFile)
	one, two := hostKey(t).PublicKey(), hostKey(t).PublicKey()
	require.NoError(t, os.WriteFile(path, []byte("node-1 "+string(ssh.MarshalAuthorizedKey(two))), 0o600))
	require.NoError(t, trustFirst(path, one))
	require.NoError(t, trustFirst(path, one))
	assert.ErrorContains(t, trustFirst(path, two), "another host key")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(string(text), "\n"))
}

// TestSSHUnderstandsItsConfiguration asks ssh itself what it makes of it.
func TestSSHUnderstandsItsConfiguration(t *testing.T) {
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("ssh is not installed; scripts/deps lab installs it")
	}
	dir := filepath.Join(t.TempDir(), "a 100% odd dir")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	path := filepath.Join(dir, "config")
	require.NoError(t, os.WriteFile(path, []byte(sshConfig(Plan(DefaultOrder()), dir, "/opt/it's here/firstlight")), 0o600))
	ask := func(host string) string {
		out, err := exec.Command("ssh", "-G", "-F", path, host).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	appliance, node := ask(Appliance), ask("node-2")
	assert.Contains(t, appliance, "user root\n")
	assert.Contains(t, appliance, `proxycommand '/opt/it'\''s here/firstlight' lab dial --dir '`+strings.ReplaceAll(dir, "%", "%%")+`' %n %p`)
	assert.Contains(t, node, "user firstlight\n")
	assert.Contains(t, node, "hostname 172.22.0.102\n")
	assert.Contains(t, node, "proxyjump appliance\n")
	assert.Contains(t, node, "hostkeyalias node-2\n")
}

// appliance is an SSH server that forwards to a status socket, as sshd does.
func appliance(t *testing.T, allowed string, documents func() status.Document) (dial func(context.Context) (net.Conn, error), logins *atomic.Int32) {
	logins = &atomic.Int32{}
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if authorizedKey(key) != allowed {
			return nil, os.ErrPermission
		}
		return nil, nil
	}}
	config.AddHostKey(hostKey(t))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	serve := func(conn net.Conn) {
		defer conn.Close()
		_, channels, requests, err := ssh.NewServerConn(conn, config)
		if err != nil {
			return
		}
		logins.Add(1)
		go ssh.DiscardRequests(requests)
		for c := range channels {
			var to struct{ Path string }
			if c.ChannelType() != "direct-streamlocal@openssh.com" || ssh.Unmarshal(c.ExtraData()[:4+len(status.SocketPath)], &to) != nil || to.Path != status.SocketPath {
				_ = c.Reject(ssh.Prohibited, "no")
				continue
			}
			channel, requests, err := c.Accept()
			if err != nil {
				return
			}
			go ssh.DiscardRequests(requests)
			go func() {
				defer channel.Close()
				for in := bufio.NewReader(channel); ; {
					request, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					body := []byte(`[{"name": "node-1"}, {"name": "52:54:00:00:00:01"}]`)
					if request.URL.Path == "/v1/status" {
						body, _ = json.Marshal(documents())
					}
					response := http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(body)),
						Body: readCloser{strings.NewReader(string(body))}}
					if response.Write(channel) != nil {
						return
					}
				}
			}()
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", l.Addr().String())
	}, logins
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

func TestAsk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), sshDir)
	public, err := mintKey(dir)
	require.NoError(t, err)
	var asked atomic.Int32
	dial, logins := appliance(t, public, func() status.Document {
		return status.Document{Name: "lab", Nodes: []status.Node{{Name: "node-1"}}, Started: time.Unix(int64(asked.Add(1)), 0)}
	})
	a := &applianceClient{dial: dial, dir: dir}
	for i := range 3 {
		doc, err := a.fetchStatus(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "lab", doc.Name)
		assert.Equal(t, int64(i+1), doc.Started.Unix())
		assert.Equal(t, []status.Node{{Name: "node-1"}, {Name: "52:54:00:00:00:01"}}, doc.Nodes, "also machines that the site does not name")
	}
	assert.Equal(t, int32(1), logins.Load(), "one connection stays open")
	a.client.Close() // the appliance's power is cut
	_, err = a.fetchStatus(t.Context())
	require.Error(t, err)
	_, err = a.fetchStatus(t.Context())
	require.NoError(t, err)
	assert.Equal(t, int32(2), logins.Load())
	a.close()

	require.NoError(t, os.Remove(filepath.Join(dir, keyFile)))
	_, err = mintKey(dir)
	require.NoError(t, err)
	_, err = a.fetchStatus(t.Context())
	assert.ErrorContains(t, err, "log in to the appliance")
}
