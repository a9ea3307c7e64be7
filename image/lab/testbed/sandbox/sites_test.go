package sandbox_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// gitServer serves a bare repository as Git does, with TLS, in networks that it is told to join.
type gitServer struct {
	t       *testing.T
	root    string
	handler http.Handler
	tls     *tls.Config
	ca      string
}

func newGitServer(t *testing.T) *gitServer {
	core, err := exec.Command("git", "--exec-path").Output()
	require.NoError(t, err)
	s := &gitServer{t: t, root: t.TempDir()}
	made := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	made.Close()
	s.tls = &tls.Config{Certificates: made.TLS.Certificates}
	s.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Certificate().Raw}))
	s.handler = &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(core)), "git-http-backend"),
		Env: []string{
			"GIT_PROJECT_ROOT=" + s.root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory",
			"GIT_CONFIG_VALUE_0=*",
		},
	}
	s.git("init", "--quiet", "--bare", "--initial-branch=main", "sites.git")
	s.git("clone", "--quiet", "sites.git", "work")
	return s
}

func (s *gitServer) git(args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "git", args...)
	cmd.Dir = s.root
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=fleet",
		"GIT_AUTHOR_EMAIL=fleet@example", "GIT_COMMITTER_NAME=fleet", "GIT_COMMITTER_EMAIL=fleet@example")
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "git %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

// push commits the documents of both racks with more in them, and returns the revision.
func (s *gitServer) push(more string) string {
	for _, name := range []string{"rack-a", "rack-b"} {
		file := filepath.Join(s.root, "work", "sites", name, "site.yaml")
		require.NoError(s.t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(s.t, os.WriteFile(file, []byte(s.document(name)+more), 0o644))
	}
	s.git("-C", "work", "add", "--all")
	s.git("-C", "work", "commit", "--quiet", "--message", "change")
	s.git("-C", "work", "push", "--quiet", "origin", "HEAD:main")
	return "main@sha1:" + s.git("-C", "work", "rev-parse", "HEAD")
}

const gitPort = 8443

func (s *gitServer) document(name string) string {
	ca := "          " + strings.ReplaceAll(strings.TrimSpace(s.ca), "\n", "\n          ")
	return fmt.Sprintf("name: %s\nappliance:\n  follow:\n    git:\n      url: https://127.0.0.1:%d/sites.git\n      ca: |\n%s\n"+
		"    path: sites/%s\n    interval: 10s\n", name, gitPort, ca, name)
}

// join serves on the loopback of an appliance, until the link is cut.
func (s *gitServer) join(a *sandbox.Sandbox) (cut func()) {
	var l net.Listener
	require.NoError(s.t, netns.Do(netns.PathOf(a.PID()), func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", gitPort))
		return err
	}))
	server := &http.Server{Handler: s.handler, TLSConfig: s.tls, ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.ServeTLS(l, "", "") }()
	return func() { _ = server.Close(); <-ended }
}

// awaitSource asks an appliance until its source is as wanted.
func awaitSource(ctx context.Context, t *testing.T, a *sandbox.Sandbox, is func(s status.Source) bool) status.Source {
	t.Helper()
	for last := (status.Source{}); ; time.Sleep(time.Second) {
		require.NoError(t, ctx.Err(), "%s: %+v", a.Name(), last)
		if d, err := a.Status(ctx); err == nil && d.Source != nil {
			if last = *d.Source; is(last) {
				return last
			}
		}
	}
}

// TestTwoAppliancesFollowOneRepository: whole appliances, from the commit to the site document on SITE. Their API is not
// waited for, as the site document does not.
func TestTwoAppliancesFollowOneRepository(t *testing.T) {
	root := sandbox.RequireRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	programs, err := sandbox.BuildPrograms(ctx, t.TempDir())
	require.NoError(t, err)
	s := newGitServer(t)
	first := s.push("")

	var racks []*sandbox.Sandbox
	var cuts []func()
	for _, name := range []string{"rack-a", "rack-b"} {
		a := sandbox.StartAppliance(t, root, programs, "follows-"+name, t.TempDir())
		for _, words := range [][]string{
			{"mkdir", "-p", "/run/firstlight/site"}, {"mount", "-t", "tmpfs", "site", "/run/firstlight/site"}, // as SITE is
		} {
			_, err := a.Run(ctx, words[0], words[1:]...)
			require.NoError(t, err)
		}
		require.NoError(t, a.WriteSite(s.document(name)))
		cut := s.join(a)
		t.Cleanup(cut)
		_, err = a.Run(ctx, "systemctl", "start", "firstlightd")
		require.NoError(t, err)
		racks, cuts = append(racks, a), append(cuts, cut)
	}
	has := func(revision string) func(status.Source) bool {
		return func(s status.Source) bool { return s.Revision == revision }
	}
	for _, a := range racks {
		awaitSource(ctx, t, a, has(first))
	}

	cuts[1]()
	second := s.push("access: {console: none}\n")
	awaitSource(ctx, t, racks[0], has(second))
	lost := awaitSource(ctx, t, racks[1], func(s status.Source) bool { return s.State == status.SourceLost })
	assert.Equal(t, first, lost.Revision)
	assert.False(t, lost.Behind.IsZero())
	t.Cleanup(s.join(racks[1]))
	awaitSource(ctx, t, racks[1], has(second))

	s.push("access: {console: perhaps}\n")
	for _, a := range racks {
		refused := awaitSource(ctx, t, a, func(s status.Source) bool { return s.State == status.SourceRefused })
		assert.Equal(t, second, refused.Revision)
		assert.Contains(t, refused.Refused, "access.console")
		said, err := a.Run(ctx, "firstlightd", "why")
		require.NoError(t, err)
		assert.Contains(t, said, "access.console")
		text, err := a.Run(ctx, "firstlightd", "site", "show")
		require.NoError(t, err)
		assert.Contains(t, text, "console: none", "the document of before holds")
	}
}
