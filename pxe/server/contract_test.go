package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	peer "github.com/pin/tftp/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/bootfile"
	"firstlight.dev/firstlight/pxe/bootserver"
	"firstlight.dev/firstlight/pxe/dhcp"
	"firstlight.dev/firstlight/pxe/metrics"
	"firstlight.dev/firstlight/pxe/server"
	"firstlight.dev/firstlight/pxe/tftp"
)

const (
	eventually = time.Minute // ends a hung run
	tick       = 10 * time.Millisecond
)

type inspect struct{}

func (inspect) Boot(context.Context, pxe.Machine) pxe.Boot {
	return pxe.Boot{Action: pxe.ActionInspect, Kernel: "k"}
}

// TestEveryFileAdvertisedIsServed: each name in the table of DHCP is fetched from the real
// handlers: by TFTP with a client that is not ours, by HTTP at the URL that would be sent.
func TestEveryFileAdvertisedIsServed(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		t.Run(addr, func(t *testing.T) { fetchAdvertised(t, netip.MustParseAddr(addr)) })
	}
}

func fetchAdvertised(t *testing.T, addr netip.Addr) {
	dir := t.TempDir()
	var names []string
	for _, file := range dhcp.DefaultFiles() {
		names = append(names, file.Names()...)
	}
	for _, name := range names {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("program "+name), 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other"), []byte("not advertised"), 0o644))
	files, err := bootfile.OpenSet([]string{dir}, names)
	require.NoError(t, err)
	require.Empty(t, files.MissingFiles())
	log, counters := slog.New(slog.DiscardHandler), metrics.New(prometheus.NewRegistry())

	local := netip.AddrPortFrom(addr, 0)
	boots := &tftp.Server{Addr: local, Files: files, Metrics: counters, Log: log}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(local))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- boots.Serve(ctx, conn) }()
	web := &bootserver.Server{Base: "http://" + netip.AddrPortFrom(addr, 8080).String(), Files: files, Booter: inspect{}, Metrics: counters, Log: log}

	for _, name := range names {
		client, err := peer.NewClient(conn.LocalAddr().String())
		require.NoError(t, err)
		from, err := client.Receive(name, "octet")
		require.NoError(t, err, name)
		var got bytes.Buffer
		_, err = from.WriteTo(&got)
		require.NoError(t, err, name)
		assert.Equal(t, "program "+name, got.String())

		w := httptest.NewRecorder()
		web.ServeHTTP(w, httptest.NewRequest(http.MethodGet, web.Base+pxe.BootPath+name, nil))
		assert.Equal(t, http.StatusOK, w.Code, name)
		assert.Equal(t, "program "+name, w.Body.String())
	}
	w := httptest.NewRecorder()
	web.ServeHTTP(w, httptest.NewRequest(http.MethodGet, web.Base+pxe.ScriptPath+"52-54-00-00-00-01", nil))
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, w.Body.String(), "#!ipxe")
	w = httptest.NewRecorder()
	web.ServeHTTP(w, httptest.NewRequest(http.MethodGet, web.Base+pxe.BootPath+"other", nil))
	assert.Equal(t, http.StatusNotFound, w.Code, "only what is advertised is a boot program")
	cancel()
	require.NoError(t, <-ended)
	require.NoError(t, files.Close())
}

// TestDebianHasEveryFileAdvertised asks the package itself, where it is installed.
func TestDebianHasEveryFileAdvertised(t *testing.T) {
	const dir = "/usr/lib/ipxe"
	if _, err := os.Stat(filepath.Join(dir, "ipxe-arm64.efi")); err != nil {
		t.Skip("Debian 13's ipxe package is not installed here")
	}
	for _, file := range dhcp.DefaultFiles() {
		_, err := os.Stat(filepath.Join(dir, file.Name))
		assert.NoError(t, err)
	}
}

// TestRunEndsWithItsContext and leaves nothing open: services on the loopback interface, without DHCP.
func TestRunEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	// An address of its own and ports below the range the kernel hands out: nobody else has them.
	conf := server.Config{
		Interface: "", Addr: netip.MustParseAddr("127.38.80.1"), HTTPPort: 18080, TFTPPort: 10069, BootDirs: []string{dir},
		Mounts: []server.Mount{{Path: "/", Dir: dir}}, Booter: inspect{}, Log: slog.New(slog.DiscardHandler),
	}
	for range 2 { // the second start finds the ports free
		s, err := server.New(conf)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			select {
			case err := <-ended:
				ended <- err
				require.NoError(t, err, "the services ended by themselves")
			default:
			}
			answer, err := http.Get("http://127.38.80.1:18080/ipxe/52-54-00-00-00-01")
			if !assert.NoError(c, err) {
				return
			}
			_ = answer.Body.Close()
			assert.Equal(c, http.StatusOK, answer.StatusCode)
		}, eventually, tick)
		require.Len(t, s.Traces().List(), 1)
		answer, err := http.Get("http://127.38.80.1:18080/" + pxe.GRUBConfig)
		require.NoError(t, err)
		config, err := io.ReadAll(answer.Body)
		require.NoError(t, errors.Join(err, answer.Body.Close()))
		assert.Contains(t, string(config), "source '(http,127.38.80.1:18080)/grub/'$net_default_mac")
		byTFTP, err := peer.NewClient("127.38.80.1:10069")
		require.NoError(t, err)
		from, err := byTFTP.Receive("/"+pxe.GRUBConfig, "octet")
		require.NoError(t, err)
		var same bytes.Buffer
		_, err = from.WriteTo(&same)
		require.NoError(t, err)
		assert.Equal(t, string(config), same.String())
		cancel()
		require.NoError(t, <-ended)
	}
	conf.Mounts[0].Path = "images"
	_, err := server.New(conf)
	assert.ErrorContains(t, err, `mount path "images" does not begin and end with a slash`)
	conf.BootDirs = []string{filepath.Join(dir, "nothing")}
	_, err = server.New(conf)
	assert.ErrorContains(t, err, "open boot directory")
}
