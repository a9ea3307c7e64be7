package bootserver_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/bootfile"
	"firstlight.dev/firstlight/pxe/bootserver"
	"firstlight.dev/firstlight/pxe/boottrace"
	"firstlight.dev/firstlight/pxe/metrics"
)

// rack is a Booter and a lease table that a test fills in.
type rack struct {
	boots  map[string]pxe.Boot
	leases map[netip.Addr]net.HardwareAddr
}

func (r *rack) Boot(_ context.Context, m pxe.Machine) pxe.Boot { return r.boots[m.MAC.String()] }

func (r *rack) MachineAt(addr netip.Addr) (pxe.Machine, bool) {
	mac, ok := r.leases[addr]
	return pxe.Machine{MAC: mac, Addr: addr}, ok
}

type fixture struct {
	*bootserver.Server
	rack *rack
	log  *bytes.Buffer
	web  string // directory at /
	boot string // directory of boot programs
}

// newFixture is a server over two empty directories; clients are at 192.0.2.1 (httptest).
func newFixture(t testing.TB) *fixture {
	b := &fixture{rack: &rack{boots: map[string]pxe.Boot{}, leases: map[netip.Addr]net.HardwareAddr{}}, log: &bytes.Buffer{}, web: t.TempDir(), boot: t.TempDir()}
	files, err := bootfile.OpenSet([]string{b.boot}, nil)
	require.NoError(t, err)
	root, err := os.OpenRoot(b.web)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, files.Close())
		require.NoError(t, root.Close())
	})
	b.Server = &bootserver.Server{
		Base: "http://172.22.0.1:8080", Files: files, Mounts: []bootserver.Mount{{Path: "/", Root: root}},
		Booter: b.rack, Machines: b.rack, Record: &boottrace.Recorder{}, Metrics: metrics.New(prometheus.NewRegistry()),
		Log: slog.New(slog.NewTextHandler(b.log, nil)),
	}
	return b
}

func (b *fixture) write(t testing.TB, name string, data []byte) {
	path := filepath.Join(b.web, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, data, 0o644))
}

// get asks for a raw request target, as it would stand on the wire.
func (b *fixture) get(target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "http://server/", nil)
	r.RequestURI = target
	u, err := r.URL.Parse("/")
	if err == nil {
		r.URL = u
	}
	r.URL.Path = target
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	return w
}
