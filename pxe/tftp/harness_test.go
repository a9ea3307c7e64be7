package tftp_test

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/bootfile"
	"firstlight.dev/firstlight/pxe/boottrace"
	"firstlight.dev/firstlight/pxe/metrics"
	"firstlight.dev/firstlight/pxe/tftp"
)

// content is a file's bytes: every position tells itself, so that a block that is lost,
// doubled or swapped is seen.
func content(size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i) ^ byte(i>>8)*31 ^ byte(i>>16)*17
	}
	return data
}

// serve runs a server on a free port of 127.0.0.1 with one file, "boot.efi", and returns
// its address. change may be nil.
func serve(t testing.TB, data []byte, change func(*tftp.Server)) (*tftp.Server, netip.AddrPort) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "boot.efi"), data, 0o644))
	files, err := bootfile.OpenSet([]string{dir}, nil)
	require.NoError(t, err)
	s := &tftp.Server{
		Addr: netip.MustParseAddrPort("127.0.0.1:0"), Files: files, Record: &boottrace.Recorder{},
		Metrics: metrics.New(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(s)
	}
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(s.Addr))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, conn) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, files.Close())
	})
	return s, conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// one knows one machine, at every address.
type one struct {
	machine pxe.Machine
	boot    pxe.Boot
}

func (o one) MachineAt(netip.Addr) (pxe.Machine, bool)   { return o.machine, true }
func (o one) Boot(context.Context, pxe.Machine) pxe.Boot { return o.boot }
