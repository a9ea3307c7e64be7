package sitesource

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/console"
	"firstlight.dev/firstlight/daemon/appliance/sitedocument"
)

const fetchArgument = "fetch-from-source"

// TestMain is the process that fetches, if a test starts it as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == fetchArgument {
		if err := Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func fetchInAProcess(ctx context.Context, r Request) (Answer, error) {
	return Process{Command: []string{"/proc/self/exe", fetchArgument}}.Fetch(ctx, r)
}

// gitServer is a Git repository on a server of Git's own, with TLS and a password.
type gitServer struct {
	t        *testing.T
	dir      string // work tree
	url      string
	ca       string
	password atomic.Value // "": anyone may read
	commits  []string     // their hashes, in the order in which they were made
}

func newGitServer(t *testing.T) *gitServer {
	out, err := exec.Command("git", "--exec-path").Output()
	require.NoError(t, err)
	root := t.TempDir()
	r := &gitServer{t: t, dir: filepath.Join(root, "work")}
	r.password.Store("first token")
	bare := r.bare()
	r.git("init", "--quiet", "--bare", "--initial-branch=main", bare)
	r.git("clone", "--quiet", bare, r.dir)

	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if _, password, _ := q.BasicAuth(); password != r.password.Load() {
			w.Header().Set("WWW-Authenticate", `Basic realm="sites"`)
			http.Error(w, "unknown user or token", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, q)
	}))
	t.Cleanup(server.Close)
	r.url = server.URL + "/sites.git"
	r.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return r
}

func (r *gitServer) git(args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "git", args...)
	if _, err := os.Stat(r.dir); err == nil {
		cmd.Dir = r.dir
	}
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=fleet", "GIT_AUTHOR_EMAIL=fleet@example", "GIT_COMMITTER_NAME=fleet", "GIT_COMMITTER_EMAIL=fleet@example")
	out, err := cmd.CombinedOutput()
	require.NoError(r.t, err, "git %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

func (r *gitServer) run(name string, args ...string) {
	r.t.Helper()
	out, err := exec.CommandContext(r.t.Context(), name, args...).CombinedOutput()
	require.NoError(r.t, err, "%s %v: %s", name, args, out)
}

func (r *gitServer) write(name, text string) {
	path := filepath.Join(r.dir, name)
	require.NoError(r.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(r.t, os.WriteFile(path, []byte(text), 0o644))
}

// push commits what was written, and returns the hash.
func (r *gitServer) push(message string, options ...string) string {
	r.git("add", "--all")
	r.git(append([]string{"commit", "--quiet", "--allow-empty", "--message", message}, options...)...)
	r.git("push", "--quiet", "--force", "origin", "HEAD:main")
	hash := r.git("rev-parse", "HEAD")
	r.commits = append(r.commits, hash)
	return hash
}

// document is a site document with more below it; password is how that of the repository is written.
func (r *gitServer) document(name, password, more string) string {
	ca := "          " + strings.ReplaceAll(strings.TrimSpace(r.ca), "\n", "\n          ")
	bmc := "bmc secret of " + name
	if password == "[redacted]" {
		bmc = password
	}
	return fmt.Sprintf(`name: %s
appliance:
  follow:
    git:
      url: %s
      password: %q
      ca: |
%s
    path: sites/%s
nodeDefaults:
  bmc: {username: admin, password: %q}
%s`, name, r.url, password, ca, name, bmc, more)
}

// machine is an appliance, as its follower sees it.
type machine struct {
	*Follower
	t       *testing.T
	store   sitedocument.Store
	now     time.Time
	linked  bool
	objects []string // that the API has
	applied int      // how often objects were applied
	refuses error    // of the API
}

func newMachine(t *testing.T, document string) *machine {
	m := &machine{t: t, now: time.Date(2026, 11, 29, 17, 0, 0, 0, time.UTC), linked: true}
	path := filepath.Join(t.TempDir(), "site.yaml")
	require.NoError(t, os.WriteFile(path, []byte(document), 0o600))
	m.store = sitedocument.Store{Paths: []string{path}, Write: func(text []byte, check func() error) error {
		if err := check(); err != nil {
			return err
		}
		return os.WriteFile(path, text, 0o600)
	}}
	m.Follower = &Follower{
		Log:      slog.New(slog.DiscardHandler),
		Site:     m.site,
		Document: func() ([]byte, error) { text, _, err := m.store.Read(); return text, err },
		Fetch: func(ctx context.Context, r Request) (Answer, error) {
			if !m.linked {
				return Answer{}, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no route to host")}
			}
			return fetchInAProcess(ctx, r)
		},
		Replace: func(text []byte, base, _ string) error {
			problems, err := m.store.Replace(text, base)
			return errors.Join(problems.Err(), err)
		},
		Digest: sitedocument.Digest,
		Objects: func(_ context.Context, _ string, all []*unstructured.Unstructured) error {
			if m.refuses != nil {
				return m.refuses
			}
			m.objects, m.applied = nil, m.applied+1
			for _, o := range all {
				m.objects = append(m.objects, describeObject(o))
			}
			return nil
		},
		Path:    filepath.Join(t.TempDir(), "source.json"),
		Now:     func() time.Time { return m.now },
		Changed: func() {},
	}
	return m
}

func (m *machine) text() string {
	text, _, err := m.store.Read()
	require.NoError(m.t, err)
	return string(text)
}

func (m *machine) site() *site.Site {
	s, _, problems := site.Accept("site.yaml", []byte(m.text()))
	require.Empty(m.t, problems)
	return s
}

// look has the machine ask its source once, a minute later, and returns how it stands.
func (m *machine) look() string {
	m.t.Helper()
	m.now = m.now.Add(time.Minute)
	require.NoError(m.t, m.step(m.t.Context(), m.site().WithDefaults().Appliance.Follow))
	return console.SourceText(m.Status())
}

func TestASiteDocumentComesFromGit(t *testing.T) {
	r := newGitServer(t)
	m := newMachine(t, r.document("rack-a", "first token", ""))
	node := "nodes:\n  - name: node-1\n    macs: [\"52:54:00:00:00:01\"]\n    bmc: {address: redfish://10.0.0.1/redfish/v1/Systems/1}\n"
	r.write("sites/rack-a/site.yaml", r.document("rack-a", "[redacted]", node))
	r.write("sites/rack-b/site.yaml", "name: rack-b\n")
	hash := r.push("rack a: a node")

	said := m.look()
	assert.Contains(t, said, ": current\n              applied: main@sha1:"+hash)
	s := m.site()
	require.Len(t, s.Nodes, 1)
	assert.Equal(t, "first token", s.Appliance.Follow.Git.Password.Reveal(), "the appliance's own, not the source's")
	assert.Equal(t, "bmc secret of rack-a", s.NodeDefaults.BMC.Password.Reveal())
	assert.Equal(t, []string{"nodes node-1: added"}, m.Status().Changes)
	assert.Equal(t, 1, m.applied)

	m.look()
	assert.Equal(t, 1, m.applied, "nothing is new")
	record, err := os.ReadFile(m.Path)
	require.NoError(t, err)
	assert.NotContains(t, string(record), "token")
	assert.NotContains(t, string(record), "secret")
}

// removeFile removes a file of the work tree.
func removeFile(r *gitServer, name string) error { return os.Remove(filepath.Join(r.dir, name)) }
