package sitesource

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	fluxgit "github.com/fluxcd/pkg/git"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/engine/remote/sshtest"
)

// TestASiteDocumentComesFromGitBySSH, and the key stays on the appliance.
func TestASiteDocumentComesFromGitBySSH(t *testing.T) {
	r := newGitServer(t)
	s := newSSHServer(r)
	m := newMachine(t, s.document("rack-a", s.key, ""))
	r.write("sites/rack-a/site.yaml", s.document("rack-a", "", "nodes:\n"+node(1)))
	hash := r.push("a node")
	require.Contains(t, m.look(), ": current\n              applied: main@sha1:"+hash)
	require.Len(t, m.site().Nodes, 1)
	assert.Equal(t, s.key, m.site().Appliance.Follow.Git.PrivateKey.Reveal(), "the appliance's own, not the source's")
	assert.Equal(t, []string{"nodes node-1: added"}, m.Status().Changes)
	record, err := os.ReadFile(m.Path)
	require.NoError(t, err)
	assert.NotContains(t, string(record), "PRIVATE KEY")

	r.write("sites/rack-a/site.yaml", s.document("rack-a", s.key, "nodes:\n"+node(1)))
	r.push("the key in the clear")
	said := m.look()
	assert.Contains(t, said, "has a secret in the clear at /appliance/follow/git/privatekey")
	assert.NotContains(t, said, "PRIVATE KEY")
}

// TestTheHostAndTheKeyMustBeRight: each mistake is one sentence, and what is in effect stays.
func TestTheHostAndTheKeyMustBeRight(t *testing.T) {
	r := newGitServer(t)
	s := newSSHServer(r)
	m := newMachine(t, s.document("rack-a", s.key, ""))
	r.write("sites/rack-a/site.yaml", s.document("rack-a", "", "nodes:\n"+node(1)))
	r.push("a node")
	require.Contains(t, m.look(), ": current")
	before := m.text()

	first := s.hostKey()
	ecdsaKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ofAnotherKind, err := ssh.NewSignerFromKey(ecdsaKey)
	require.NoError(t, err)
	var page strings.Builder
	for _, changed := range []ssh.Signer{ofAnotherKind, sshtest.NewKey(t)} {
		s.hostKeys.Store([]ssh.Signer{changed})
		assert.Equal(t, fmt.Sprintf("%s shows the %s key %s, but appliance.follow.git.knownHosts has %s for it; another machine may "+
			"answer in its place, so ask its owner, and replace the line only if the host has a new key", s.name(),
			changed.PublicKey().Type(), ssh.FingerprintSHA256(changed.PublicKey()), ssh.FingerprintSHA256(first.PublicKey())), s.ask(m))
		assert.Equal(t, status.SourceLost, m.Status().State)
		assert.Equal(t, before, m.text())
	}
	fmt.Fprintf(&page, "# The host has another key.\n%s\n\n", m.Status().Error)
	other := s.hostKey()

	// With both lines the host may have either, and so can change it.
	second := sshtest.NewKey(t)
	s.known = []string{knownhosts.Line([]string{s.address}, first.PublicKey()), s.hashedLine(second)}
	for _, key := range []ssh.Signer{second, first} {
		s.hostKeys.Store([]ssh.Signer{key})
		assert.Empty(t, s.askAs(s.key, s.known))
	}

	// A host that has keys of several kinds shows the one that is known.
	s.hostKeys.Store([]ssh.Signer{ofAnotherKind, first})
	for _, key := range []ssh.Signer{first, ofAnotherKind} {
		assert.Empty(t, s.askAs(s.key, []string{knownhosts.Line([]string{s.address}, key.PublicKey())}))
	}
	s.hostKeys.Store([]ssh.Signer{first})

	s.known = []string{knownhosts.Line([]string{"other.example", "*.example", "127.0.0.1"}, first.PublicKey())}
	said := s.askAs(s.key, s.known)
	assert.Equal(t, fmt.Sprintf("no line of appliance.follow.git.knownHosts names %s, which shows the ssh-ed25519 key %s; ask its owner "+
		"whether this is its fingerprint, then add the line that ssh-keyscan prints for it", s.name(), ssh.FingerprintSHA256(first.PublicKey())), said)

	fmt.Fprintf(&page, "# No line is of the host.\n%s\n\n", said)

	wrong, public := newKeyPair(t)
	said = s.askAs(wrong, []string{knownhosts.Line([]string{s.address}, first.PublicKey())})
	assert.Contains(t, said, "unable to authenticate")
	assert.Contains(t, said, fmt.Sprintf("user git of %s must be allowed to read it with the key %s, which is that of "+
		"appliance.follow.git.privateKey", s.name(), ssh.FingerprintSHA256(public)))
	assert.NotContains(t, said, "PRIVATE KEY")
	fmt.Fprintf(&page, "# The key may not read.\n%s\n", said)
	goldentest.CheckPart(t, "../../../docs/sites.md", "ssh", "```\n"+strings.NewReplacer(
		s.url, "ssh://git@git.example/racks.git", s.name(), "git.example",
		ssh.FingerprintSHA256(first.PublicKey()), "SHA256:host", ssh.FingerprintSHA256(other.PublicKey()), "SHA256:other",
		ssh.FingerprintSHA256(public), "SHA256:key").Replace(page.String())+"```\n")
}

// TestNothingOfAHomeDirectoryIsAsked, though all that is missing is there: the key, and the host's.
func TestNothingOfAHomeDirectoryIsAsked(t *testing.T) {
	r := newGitServer(t)
	s := newSSHServer(r)
	r.write("site.yaml", "name: rack-a\n")
	r.push("a site")
	wrong, _ := newKeyPair(t)
	host := s.hostKey()

	home := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(home), 0o755), "nobody reads it")
	r.dir = home
	r.write(".ssh/known_hosts", knownhosts.Line([]string{s.address}, host.PublicKey())+"\n")
	r.write(".ssh/id_ed25519", s.key)
	agent, err := net.Listen("unix", filepath.Join(home, "agent"))
	require.NoError(t, err)
	defer agent.Close()
	require.NoError(t, os.Chmod(filepath.Join(home, "agent"), 0o777))
	asked := make(chan net.Conn, 1)
	go func() {
		c, err := agent.Accept()
		if err == nil {
			asked <- c
		}
	}()
	t.Setenv("HOME", home)
	t.Setenv("SSH_KNOWN_HOSTS", filepath.Join(home, ".ssh/known_hosts"))
	t.Setenv("SSH_AUTH_SOCK", filepath.Join(home, "agent"))

	assert.Empty(t, s.askAs(s.key, []string{s.line()}))
	assert.Contains(t, s.askAs(s.key, []string{knownhosts.Line([]string{"other.example"}, host.PublicKey())}), "no line of appliance.follow.git.knownHosts names")
	assert.Contains(t, s.askAs(s.key, nil), "no line of appliance.follow.git.knownHosts names")
	assert.Contains(t, s.askAs(wrong, []string{s.line()}), "unable to authenticate")
	assert.NotEmpty(t, s.askAs("", []string{s.line()}))
	assert.Empty(t, asked, "the agent was asked")

	u, err := url.Parse(s.url)
	require.NoError(t, err)
	_, err = useSSH(*s.request(s.key, nil).Git, u, &fluxgit.AuthOptions{})
	require.NoError(t, err)
	assert.Nil(t, gitssh.DefaultSSHConfig, "ssh_config may send a login elsewhere")
}

// TestAHostThatStallsIsLeft: one that says nothing, and one that says nothing after the login.
func TestAHostThatStallsIsLeft(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	waits := make(chan struct{})
	go func() {
		c, err := silent.Accept()
		if err != nil {
			return
		}
		_, _ = bufio.NewReader(c).ReadString('\n') // the client's version: it waits for the host's now
		waits <- struct{}{}
		<-t.Context().Done()
		c.Close()
	}()
	r := newGitServer(t)
	s := newSSHServer(r)
	s.stall = waits

	for _, address := range []string{silent.Addr().String(), s.address} {
		ctx, end := context.WithCancel(t.Context())
		go func() {
			<-waits
			end() // in place of the two minutes that a source has
		}()
		q := s.request(s.key, []string{s.line()})
		q.Git.URL = "ssh://git@" + address + r.bare()
		_, err := fetchInAProcess(ctx, q)
		assert.ErrorContains(t, err, "the source did not answer within 2m0s")
		assert.Error(t, ctx.Err(), "it did not wait")
		end()
	}
}

// line is that of the host's key as it is now.
func (s *sshServer) line() string {
	return knownhosts.Line([]string{s.address}, s.hostKey().PublicKey())
}

func (s *sshServer) hashedLine(key ssh.Signer) string {
	return knownhosts.HashHostname(knownhosts.Normalize(s.address)) + " " + sshtest.AuthorizedKey(key)
}

// name is the host as messages have it.
func (s *sshServer) name() string { return knownhosts.Normalize(s.address) }

// ask has a machine look, and returns what is in its way; "" if nothing is.
func (s *sshServer) ask(m *machine) string {
	m.look()
	return m.Status().Error
}

func (s *sshServer) request(key string, known []string) Request {
	return Request{Git: &Git{URL: s.url, Branch: "main", Username: "git", PrivateKey: key, KnownHosts: known}}
}

// askAs asks with a key and lines of known hosts, and returns what is in the way; "" if nothing is.
func (s *sshServer) askAs(key string, known []string) string {
	answer, err := fetchInAProcess(s.t.Context(), s.request(key, known))
	if err != nil {
		return err.Error()
	}
	require.NotEmpty(s.t, answer.Revision)
	return strings.TrimSpace(answer.Refusal)
}
