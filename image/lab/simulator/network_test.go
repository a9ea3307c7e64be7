package simulator

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestNothingIsDialedAfterTheEnd: a request that ends leaves its dial behind, on a thread that keeps the network of a
// rack alive.
func TestNothingIsDialedAfterTheEnd(t *testing.T) {
	full := listenWithoutRoom(t)
	f, err := Start(Config{Hosts: 1, Boot: "http://" + full})
	require.NoError(t, err)
	client := f.Hosts()[0].httpClient(nil)
	dialed := make(chan error)
	go func() {
		_, err := client.Transport.(*http.Transport).DialContext(context.Background(), "tcp", full)
		dialed <- err
	}()

	require.NoError(t, f.Close())
	assert.ErrorIs(t, <-dialed, context.Canceled, "it ended when its own time was up")
}

// listenWithoutRoom is the address of a listener that keeps further connections waiting: its queue is full.
func listenWithoutRoom(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, unix.Listen(fd, 0))
	name, err := unix.Getsockname(fd)
	require.NoError(t, err)
	addr := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*unix.SockaddrInet4).Port}).String()
	only, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = only.Close() })
	return addr
}
