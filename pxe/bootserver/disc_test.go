package bootserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/bootserver"
	"firstlight.dev/firstlight/pxe/boottrace"
	"firstlight.dev/firstlight/pxe/disc"
)

// TestABMCReadsTheDiscOfItsNode: whole, in ranges as it likes, and with HEAD before; and nobody else's BMC does.
func TestABMCReadsTheDiscOfItsNode(t *testing.T) {
	kernel, ramdisk := bytes.Repeat([]byte("kernel"), 20_001), bytes.Repeat([]byte("ramdisk"), 50_001)
	layout, err := disc.NewLayout(disc.Loaders{Shim: []byte("shim"), GRUB: []byte("grub")}, int64(len(kernel)), int64(len(ramdisk)))
	require.NoError(t, err)
	open := func(args ...string) (bootserver.File, int64) {
		d, err := layout.Disc(bytes.NewReader(kernel), bytes.NewReader(ramdisk), args)
		require.NoError(t, err)
		return d, d.Size()
	}
	file, size := open("token=a")
	whole, err := io.ReadAll(file)
	require.NoError(t, err)

	b := newFixture(t)
	b.Booter, b.Files, b.Mounts = nil, nil, nil // BMCs get nothing else
	mac := net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}
	b.rack.leases[netip.MustParseAddr("127.0.0.1")] = mac
	var refused error
	b.Disc = func(_ context.Context, m pxe.Machine) (bootserver.File, fs.FileInfo, error) {
		assert.Equal(t, mac, m.MAC)
		if refused != nil {
			return nil, nil, refused
		}
		d, size := open("token=a")
		return d, info(t, size), nil
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { assert.NoError(t, b.Serve(t.Context(), listener)) }()
	ask := func(method, path, ranges string) (*http.Response, []byte) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+listener.Addr().String()+path, nil)
		require.NoError(t, err)
		if ranges != "" {
			r.Header.Set("Range", ranges)
		}
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response, body
	}

	response, _ := ask(http.MethodHead, pxe.DiscPath, "")
	assert.Equal(t, http.StatusOK, response.StatusCode)
	assert.Equal(t, size, response.ContentLength)
	assert.Equal(t, "bytes", response.Header.Get("Accept-Ranges"))
	_, known := b.Record.Get(mac)
	assert.False(t, known, "it has only asked how large the disc is")

	response, body := ask(http.MethodGet, pxe.DiscPath, "")
	assert.Equal(t, http.StatusOK, response.StatusCode)
	assert.True(t, bytes.Equal(whole, body))

	for _, from := range []int64{0, 32768, size/2 - 1000, size - 2048} {
		response, body := ask(http.MethodGet, pxe.DiscPath, fmt.Sprintf("bytes=%d-%d", from, from+2047))
		assert.Equal(t, http.StatusPartialContent, response.StatusCode)
		assert.True(t, bytes.Equal(whole[from:from+2048], body), "byte %d", from)
	}

	// The body is here before the server has written down that it went.
	require.Eventually(t, func() bool {
		trace, ok := b.Record.Get(mac)
		return ok && trace.Last.Bytes == size
	}, patience, 5*time.Millisecond, "where the last range ended")
	trace, _ := b.Record.Get(mac)
	assert.Equal(t, boottrace.StepDisc, trace.Last.Step)
	assert.Equal(t, size, trace.Last.Total)
	assert.Equal(t, 1, trace.Boots)

	refused = errors.New("it is being installed")
	response, body = ask(http.MethodGet, pxe.DiscPath, "")
	assert.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	assert.Contains(t, string(body), "it is being installed")
	for _, path := range []string{"/", "/ipxe/52-54-00-00-00-01", "/boot/snponly.efi", "/ramdisk/initramfs"} {
		response, _ := ask(http.MethodGet, path, "")
		assert.GreaterOrEqual(t, response.StatusCode, http.StatusBadRequest, path)
	}
	delete(b.rack.leases, netip.MustParseAddr("127.0.0.1"))
	response, _ = ask(http.MethodGet, pxe.DiscPath, "")
	assert.Equal(t, http.StatusNotFound, response.StatusCode, "a BMC of no node")
}

// info is a file's, of a size.
func info(t *testing.T, size int64) fs.FileInfo {
	t.Helper()
	i, err := fstest.MapFS{"disc": {Data: make([]byte, size), ModTime: time.Unix(1e9, 0)}}.Stat("disc")
	require.NoError(t, err)
	return i
}
