package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/engine/remote"
	"firstlight.dev/firstlight/daemon/engine/remote/sshtest"
	"firstlight.dev/firstlight/daemon/metal/authority"
	"firstlight.dev/firstlight/daemon/metal/registry"
)

// killFixture is what the processes of the test share: an appliance's folders, and nodes to log in to.
type killFixture struct {
	Dir   string // of the authority, "settings" and "store" of the registry
	Serve uint16 // port of the registry
	Port  uint16 // of nodes' sshd
	Key   []byte // of the log-in, PEM
	Nodes []killNode
}

type killNode struct{ Addr, HostKey, Dir string }

const (
	killFixtureEnv = "FIRSTLIGHT_AUTHORITY_FIXTURE" // the process that it is set for is the role below
	killRoleEnv    = "FIRSTLIGHT_AUTHORITY_ROLE"
)

// killSettle is how long a stage lasts. A ramdisk lives for half of it, so that a busy machine has the other half.
const killSettle = 12 * time.Second

func killPrefix() netip.Prefix { return netip.MustParsePrefix("127.0.0.7/8") }

// TestTheDaemonIsKilledWhileTheAuthorityIsReplaced over and over, at moments that nobody chose, while nodes and ramdisks
// ask the registry without a pause: each with what it was told to trust, nodes with the file that containerd reads. Not
// one of them is refused, in the end the former authority is nowhere, and its certificates are taken no more.
func TestTheDaemonIsKilledWhileTheAuthorityIsReplaced(t *testing.T) {
	if os.Getenv(killFixtureEnv) != "" {
		t.Skip("it is a part of itself")
	}
	f := newKillFixture(t)
	a, err := ca.Open(filepath.Join(f.Dir, "ca"), time.Now)
	require.NoError(t, err)
	old := a.PEM()
	for _, n := range f.Nodes {
		require.NoError(t, os.MkdirAll(filepath.Join(n.Dir, "etc/firstlight"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(n.Dir, "etc/firstlight/ca.crt"), old, 0o644))
	}
	f.start(t, "registry")
	daemon := f.start(t, "daemon")
	require.Eventually(t, func() bool { return f.ask(old) == nil }, 10*time.Minute, 50*time.Millisecond)
	daemon.kill(t)
	require.NoError(t, a.BeginRotation())

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var asked, refused atomic.Int64
	clients := f.clients(ctx, t, &asked, &refused)
	kills, stages := 0, map[ca.Stage]int{}
	deadline := time.Now().Add(10 * time.Minute)
	for {
		daemon := f.start(t, "daemon")
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Millisecond)
		daemon.kill(t)
		now, err := ca.Open(filepath.Join(f.Dir, "ca"), time.Now)
		require.NoError(t, err)
		stage, _ := now.Stage()
		if stage == "" {
			break
		}
		kills++
		stages[stage]++
		require.True(t, time.Now().Before(deadline), "it stays %s", stage)
	}

	last := f.start(t, "daemon") // what it serves may be of before
	now, err := ca.Open(filepath.Join(f.Dir, "ca"), time.Now)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return f.ask(now.Current()) == nil }, 10*time.Minute, 50*time.Millisecond)
	last.kill(t)
	stop()
	require.NoError(t, clients.Wait())
	t.Logf("the daemon was killed %d times (%v); %d requests, %d refused", kills, stages, asked.Load(), refused.Load())
	assert.Zero(t, refused.Load())
	assert.Positive(t, asked.Load())
	assert.Positive(t, stages[ca.Introduced])
	assert.Positive(t, stages[ca.Switched])

	assert.NotEqual(t, string(old), string(now.PEM()))
	assert.Equal(t, 1, bytes.Count(now.PEM(), []byte("BEGIN CERTIFICATE")))
	for _, n := range f.Nodes {
		text, err := os.ReadFile(filepath.Join(n.Dir, "etc/firstlight/ca.crt"))
		require.NoError(t, err)
		assert.Equal(t, string(now.PEM()), string(text))
	}
	assert.Error(t, f.ask(old), "who trusts the former alone is served by it")
	for _, name := range []string{"next.key", "next.crt", "former.crt"} {
		assert.NoFileExists(t, filepath.Join(f.Dir, "ca", name))
	}
}

func newKillFixture(t *testing.T) *killFixture {
	signer, file := sshtest.NewKeyFile(t)
	f := &killFixture{Dir: t.TempDir(), Key: file}
	free, err := net.Listen("tcp", netip.AddrPortFrom(killPrefix().Addr(), 0).String())
	require.NoError(t, err)
	f.Serve = uint16(free.Addr().(*net.TCPAddr).Port)
	require.NoError(t, free.Close())
	for i := range 2 {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(11 + i)}), f.Port)
		n := sshtest.NewAt(t, at.String())
		n.AuthorizeKey(signer)
		f.Port = n.Port
		f.Nodes = append(f.Nodes, killNode{n.Addr, n.HostKey(), n.Dir})
	}
	return f
}

// clients ask the registry until ctx ends: each node with the file that it has, and ramdisks with what they were given
// when they booted.
func (r *killFixture) clients(ctx context.Context, t *testing.T, asked, refused *atomic.Int64) *errgroup.Group {
	var group errgroup.Group
	ask := func(who string, trusted []byte) {
		asked.Add(1)
		if err := r.ask(trusted); err != nil {
			refused.Add(1)
			t.Errorf("%s is refused: %v", who, err)
		}
	}
	for _, n := range r.Nodes {
		group.Go(func() error {
			for ctx.Err() == nil {
				trusted, err := os.ReadFile(filepath.Join(n.Dir, "etc/firstlight/ca.crt"))
				if err != nil {
					return err
				}
				ask("node "+n.Addr, trusted)
				time.Sleep(20 * time.Millisecond)
			}
			return nil
		})
	}
	for i := range 2 {
		group.Go(func() error {
			for ctx.Err() == nil {
				trusted, err := ca.ReadTrusted(filepath.Join(r.Dir, "ca"))
				if err != nil {
					return err
				}
				for booted := time.Now(); time.Since(booted) < killSettle/2 && ctx.Err() == nil; {
					ask(fmt.Sprintf("ramdisk %d", i+1), trusted)
					time.Sleep(20 * time.Millisecond)
				}
			}
			return nil
		})
	}
	return &group
}

// ask asks the registry once, by a new connection.
func (r *killFixture) ask(trusted []byte) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trusted)
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: pool},
	}}
	response, err := client.Get(fmt.Sprintf("https://%s:%d/ca.crt", killPrefix().Addr(), r.Serve))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || !bytes.Contains(text, []byte("BEGIN CERTIFICATE"))) {
		err = fmt.Errorf("it says %s: %s", response.Status, text)
	}
	return err
}

type killProcess struct{ cmd *exec.Cmd }

// start starts a process of the appliance, until the test ends.
func (r *killFixture) start(t *testing.T, role string) killProcess {
	self, err := os.Executable()
	require.NoError(t, err)
	text, err := json.Marshal(r)
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^TestAProcessOfTheAppliance$", "-test.v")
	cmd.Env = append(os.Environ(), killFixtureEnv+"="+string(text), killRoleEnv+"="+role)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", role, out.String())
		}
	})
	return killProcess{cmd}
}

func (p killProcess) kill(t *testing.T) {
	require.NoError(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
}

// TestAProcessOfTheAppliance is what the test above starts and kills.
func TestAProcessOfTheAppliance(t *testing.T) {
	if os.Getenv(killFixtureEnv) == "" {
		t.Skip("it is a part of another test")
	}
	var r killFixture
	require.NoError(t, json.Unmarshal([]byte(os.Getenv(killFixtureEnv)), &r))
	if os.Getenv(killRoleEnv) == "registry" {
		p := &registry.Process{
			Settings: filepath.Join(r.Dir, "settings"),
			Layout:   filepath.Join(r.Dir, "none"),
			Store:    filepath.Join(r.Dir, "store"),
			Metrics:  filepath.Join(r.Dir, "run", "metrics.sock"),
			Port:     r.Serve,
			Log:      slog.Default(),
		}
		for t.Context().Err() == nil { // its unit starts it again
			slog.Warn("the registry ended", "error", p.Run(t.Context()))
			time.Sleep(time.Second)
		}
	}
	require.NoError(t, r.runDaemon(t.Context()))
}

// runDaemon is the part of the daemon that the authority is about: it tells the registry what to serve, and goes on with
// the rotation.
func (r *killFixture) runDaemon(ctx context.Context) error {
	a, err := ca.Open(filepath.Join(r.Dir, "ca"), time.Now)
	if err != nil {
		return err
	}
	key, err := ssh.ParsePrivateKey(r.Key)
	if err != nil {
		return err
	}

	rotation := &authority.Rotation{
		What:       "authority",
		Trust:      func() (authority.Trust, error) { return a, nil },
		Introduce:  func() error { return a.Introduce("localhost") },
		File:       authority.File,
		Installing: func() ([]string, error) { return nil, nil },
		Nodes: func() (all []remote.Installed, err error) {
			for _, n := range r.Nodes {
				all = append(all, remote.Installed{Name: n.Addr, Addresses: []netip.Addr{netip.MustParseAddr(n.Addr)}, HostKey: n.HostKey})
			}
			return all, nil
		},
		LogIn:   func() (ssh.Signer, error) { return key, nil },
		Told:    func(context.Context, []byte, []byte) ([]string, error) { return nil, nil },
		Own:     func(context.Context) error { return r.ask(a.Current()) },
		Changed: func() {},
		Settle:  killSettle,
		Root:    "$DIR",
		Port:    r.Port,
		Log:     slog.Default(),
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for ctx.Err() == nil {
			if err := r.tell(a); err != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
		return nil
	})
	group.Go(func() error {
		for ctx.Err() == nil {
			if err := rotation.Round(ctx); err != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
		return nil
	})
	return group.Wait()
}

// tell is what the mirror tells the registry.
func (r *killFixture) tell(a *ca.Authority) error {
	pair, _, err := a.Issue("registry", ca.Names{Of: "registry", Addrs: []netip.Addr{killPrefix().Addr()}})
	if err != nil {
		return err
	}
	return registry.Settings{
		Addrs:     []netip.Prefix{killPrefix()},
		Pair:      slices.Concat(pair.Cert, pair.Key),
		Authority: a.PEM(),
		Packages:  []byte("a key\n"),
	}.Write(filepath.Join(r.Dir, "settings"), os.Getgid())
}
