package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/metrics"
	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/pxe/limit"
)

// Unit runs the registry's process, as User, who has a group of that name.
const (
	Unit = "firstlight-registry.service"
	User = "firstlight-registry"
)

// Where daemon and process meet.
const (
	SettingsDir   = stick.RunDir + "/registry"
	MetricsSocket = "/run/firstlight-registry/metrics.sock"
)

// Process is the registry as a process of its own. What clients do to it ends there: it has none of root's rights,
// no key but its own, and a share of processor and memory. It serves what Settings say, also while nobody writes them.
type Process struct {
	Settings string // folder of Settings
	Layout   string // as in Config
	Store    string // as in Config
	Metrics  string // socket at which its metrics are read
	Port     uint16
	Log      *slog.Logger

	metrics metrics.Parts
}

// NewProcess is that of an appliance.
func NewProcess(log *slog.Logger) *Process {
	return &Process{
		Settings: SettingsDir,
		Layout:   "/usr/share/firstlight/images",
		Store:    stick.DataDir + "/registry",
		Metrics:  MetricsSocket,
		Port:     assets.RegistryPort,
		Log:      log,
	}
}

// Run serves from the moment that there are settings until ctx ends, and begins anew when they name other addresses.
func (p *Process) Run(ctx context.Context) error {
	layout, err := openLayout(p.Layout)
	if err != nil {
		return err
	}
	// What follows is others' to ask, and may not open what root alone reads.
	if err := dropCapabilities(); err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.serveMetrics(ctx) })
	group.Go(func() error {
		f := &follower{dir: p.Settings, log: p.Log}
		return rerun.OnChange(ctx, func() bool { return true }, f.place, func(ctx context.Context, at []netip.Prefix) error {
			s, err := newServer(p.config(f, at), layout)
			if err != nil {
				return err
			}
			p.Log.Info("container images are served", "at", at)
			return s.Run(ctx)
		})
	})
	return group.Wait()
}

// config is what is served at addresses, with what is told of clients, certificate and trust at the moment of each
// question.
func (p *Process) config(f *follower, at []netip.Prefix) Config {
	return Config{
		Addrs:    at,
		Port:     p.Port,
		Store:    p.Store,
		Owner:    func(addr netip.Addr) string { return f.now.Load().owners[addr] },
		Writers:  func() *x509.CertPool { return f.now.Load().writers },
		Registry: p.metrics.NewRegistry("registry"),
		Log:      limit.Log(p.Log),
		Known:    func(addr netip.Addr) bool { return f.now.Load().known[addr] },
		Public: func() map[string][]byte {
			now := f.now.Load()
			return map[string][]byte{"/ca.crt": now.authority, "/packages.asc": now.packages}
		},
		Certificate: func() (tls.Certificate, error) { return f.now.Load().certificate, nil },
	}
}

// serveMetrics answers whoever may open the socket, which is root.
func (p *Process) serveMetrics(ctx context.Context) error {
	if err := os.Remove(p.Metrics); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove former socket of metrics: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(p.Metrics), 0o700); err != nil {
		return fmt.Errorf("make folder of the socket of metrics: %w", err)
	}

	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", p.Metrics)
	if err != nil {
		return fmt.Errorf("listen for readers of metrics: %w", err)
	}

	handler := http.NewServeMux()
	handler.Handle("GET /metrics", promhttp.HandlerFor(&p.metrics, promhttp.HandlerOpts{}))
	if err := (&limit.Server{Handler: handler, Log: p.Log}).Serve(ctx, listener); ctx.Err() == nil {
		return fmt.Errorf("serve metrics: %w", err)
	}

	return nil
}

// follower reads settings again when they changed.
type follower struct {
	dir string
	log *slog.Logger
	now atomic.Pointer[told] // nil: there were none yet

	mu       sync.Mutex
	changed  time.Time // of the folder, when settings were read
	read     time.Time // when that was
	complain string    // what was wrong then
}

// place is where to serve, and begin anew when that changes; false: nowhere yet. It is asked every second.
func (f *follower) place() ([]netip.Prefix, bool) {
	f.refresh(time.Now())
	t := f.now.Load()
	if t == nil || len(t.addrs) == 0 {
		return nil, false
	}

	return t.addrs, true
}

// settled is how much older than its reading a change of the folder must be: two changes may have the same time.
const settled = 2 * time.Second

// refresh reads settings if the folder has changed: each file of it is written by renaming another. Settings that
// cannot be read leave those before in force, and are told once.
func (f *follower) refresh(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.dir)
	if err == nil && f.complain == "" && info.ModTime().Equal(f.changed) && f.read.Sub(f.changed) > settled {
		return
	}

	var t told
	if err == nil {
		f.changed, f.read = info.ModTime(), now
		t, err = readSettings(f.dir)
	}
	if err != nil {
		if f.complain != err.Error() {
			f.log.Warn("settings are waited for", "error", err)
		}
		f.complain = err.Error()
		return
	}

	f.complain = ""
	f.now.Store(&t)
}
