package bootserver_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/boottrace"
)

const patience = 2 * time.Minute // ends a hung run; nothing takes that long

// start serves on a real socket and returns its address.
func start(t testing.TB, b *fixture) string {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	return listener.Addr().String()
}

// raw sends one request line as it is and returns status and body.
func raw(t testing.TB, addr, target string) (int, string) {
	conn, err := net.Dial("tcp4", addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", target)
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, strings.TrimSpace(string(body))
}

// TestFault11HTTPPathsCannotEscape: what would lead out of the served directories.
func TestFault11HTTPPathsCannotEscape(t *testing.T) {
	b := newFixture(t)
	top := filepath.Dir(b.web)
	require.NoError(t, os.WriteFile(filepath.Join(top, "secret"), []byte("secret"), 0o644))
	require.NoError(t, os.Symlink("../secret", filepath.Join(b.web, "link")))
	b.write(t, "dir/file", []byte("good"))
	addr := start(t, b)
	dots := `refused: the name is not one that can be served: it has ".." in it`
	chars := "refused: the name is not one that can be served: it has control characters, backslashes or broken text in it"
	for target, want := range map[string]struct {
		status int
		body   string
	}{
		"/dir/file":                         {200, "good"},
		"/dir/./file":                       {200, "good"},
		"/../secret":                        {400, dots},
		"/%2e%2e/secret":                    {400, dots},
		"/dir/%2e%2e%2f%2e%2e%2fsecret":     {400, dots},
		"/..%5csecret":                      {400, chars},
		"/dir/file%00":                      {400, chars},
		"/%ff%fe":                           {400, chars},
		"/link":                             {404, "there is no such file here"},
		"/" + filepath.Join(top, "secret"):  {404, "there is no such file here"},
		"/dir":                              {403, "this is not a regular file"},
		"/dir/":                             {403, "this is not a regular file"},
		"/":                                 {400, "refused: the name is not one that can be served: it is empty"},
		"/" + strings.Repeat("n", 4000):     {400, "refused: the name is not one that can be served: it is longer than 255 bytes"},
		"/dir/file/more":                    {404, "there is no such file here"},
		"/boot/..%2f..%2fsecret":            {400, dots},
		"/ipxe/52-54-00-00-00-01/../secret": {400, dots},
	} {
		status, body := raw(t, addr, target)
		assert.Equal(t, want.status, status, target)
		assert.Equal(t, want.body, body, target)
		assert.NotContains(t, body, top, "a refusal shows a path of the host")
	}
}

// TestFault12HTTPIsReadOnly: no method changes anything.
func TestFault12HTTPIsReadOnly(t *testing.T) {
	b := newFixture(t)
	addr := start(t, b)
	for _, method := range []string{"PUT", "POST", "DELETE", "PATCH", "MKCOL", "TRACE"} {
		r, err := http.NewRequest(method, "http://"+addr+"/new", strings.NewReader("data"))
		require.NoError(t, err)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		_ = answer.Body.Close()
		assert.Equal(t, http.StatusMethodNotAllowed, answer.StatusCode, method)
	}
	left, err := os.ReadDir(b.web)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestFault17DoubledSlashesAreNotRedirected: UEFI HTTP boot gives up on a 301.
func TestFault17DoubledSlashesAreNotRedirected(t *testing.T) {
	b := newFixture(t)
	b.write(t, "images/node.raw", []byte("image"))
	require.NoError(t, os.WriteFile(filepath.Join(b.boot, "snponly.efi"), []byte("efi"), 0o644))
	addr := start(t, b)
	for target, want := range map[string]string{"//images//node.raw": "image", "//boot/snponly.efi": "efi", "///boot///snponly.efi": "efi", "/boot/snponly.efi?x=y": "efi"} {
		status, body := raw(t, addr, target)
		assert.Equal(t, 200, status, target)
		assert.Equal(t, want, body, target)
	}
}

// TestFault17Ranges: right ones are honoured, wrong ones refused, abuse gets the whole file.
func TestFault17Ranges(t *testing.T) {
	b := newFixture(t)
	b.write(t, "f", []byte("0123456789"))
	many := "bytes=" + strings.Repeat("0-9,", 2000) + "0-9"
	for ranges, want := range map[string]struct {
		status int
		body   string
	}{
		"bytes=2-4": {206, "234"}, "bytes=-3": {206, "789"}, "bytes=8-99": {206, "89"}, "bytes=20-": {416, ""},
		"bytes=x": {416, ""}, "bytes=5-2": {416, ""}, many: {200, "0123456789"}, "bytes=99999999999999999999-": {416, ""},
	} {
		answer := b.get("/f", "Range", ranges)
		assert.Equal(t, want.status, answer.Code, ranges)
		if want.body != "" {
			assert.Equal(t, want.body, answer.Body.String(), ranges)
		}
	}
	tag := b.get("/f").Header().Get("ETag")
	assert.Equal(t, 206, b.get("/f", "Range", "bytes=2-4", "If-Range", tag).Code)
	assert.Equal(t, 304, b.get("/f", "If-None-Match", tag).Code)
	b.write(t, "f", []byte("9876543210 and more"))
	assert.Equal(t, 200, b.get("/f", "Range", "bytes=2-4", "If-Range", tag).Code, "a file that changed must not be resumed")
}

// TestFault17SlowClients: one that takes each piece just in time gets all, one that takes nothing is cut off. The
// time is that of the bubble, so no load on this machine makes a slow client slower.
func TestFault17SlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t)
		b.Stall = time.Minute
		const size = 4 << 20
		b.write(t, "f", make([]byte, size))
		listener := newPipeListener()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Serve(ctx, listener) }()
		ask := func() net.Conn {
			conn := listener.dial()
			_, err := io.WriteString(conn, "GET /f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			require.NoError(t, err)
			return conn
		}

		begun := time.Now()
		stuck, slow := ask(), ask()
		total := int64(0)
		for {
			n, err := io.CopyN(io.Discard, slow, 1<<20)
			total += n
			if err == io.EOF {
				break
			}
			require.NoError(t, err, "after %d bytes", total)
			time.Sleep(b.Stall * 9 / 10)
		}
		assert.Greater(t, total, int64(size), "the slow client gets all, and the header")
		assert.Greater(t, time.Since(begun), 3*b.Stall)

		n, err := io.Copy(io.Discard, stuck)
		assert.Less(t, n, int64(size), "the stuck client was cut off (%v)", err)
		cancel()
		require.NoError(t, <-ended)
	})
}

// pipeListener accepts connections that have no socket below, so that they can be in a bubble of synctest.
type pipeListener struct {
	conns chan net.Conn
	end   chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), end: make(chan struct{})}
}

func (l *pipeListener) dial() net.Conn {
	client, server := net.Pipe()
	l.conns <- server
	return client
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.end:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.end) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// TestFault17StuckOnASocket: the kernel, which sends files itself, keeps to the same limit.
func TestFault17StuckOnASocket(t *testing.T) {
	b := newFixture(t)
	b.Stall = 300 * time.Millisecond
	mac := net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}
	b.rack.leases[netip.MustParseAddr("127.0.0.1")] = mac
	const size = 24 << 20
	b.write(t, "f", make([]byte, size))
	conn, err := net.Dial("tcp4", start(t, b))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(64<<10))
	_, err = io.WriteString(conn, "GET /f HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)

	require.Eventually(t, func() bool {
		kept, ok := b.Record.Get(mac)
		return ok && kept.Last.Error != "" && kept.Last.Bytes < size
	}, time.Minute, 5*time.Millisecond)
}

// TestFault17GoneAtTheEnd: a client that leaves at 99 % is noted as such.
func TestFault17GoneAtTheEnd(t *testing.T) {
	b := newFixture(t)
	mac := net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}
	b.rack.leases[netip.MustParseAddr("127.0.0.1")] = mac
	const size = 64 << 20
	b.write(t, "node.raw", make([]byte, size))
	addr := start(t, b)
	conn, err := net.Dial("tcp4", addr)
	require.NoError(t, err)
	_, err = io.WriteString(conn, "GET /node.raw HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	_, err = io.CopyN(io.Discard, conn, 8<<20)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool {
		kept, ok := b.Record.Get(mac)
		return ok && kept.Last.Error != "" && kept.Last.Bytes < size && kept.Last.Total == size
	}, patience, 5*time.Millisecond)
	kept, _ := b.Record.Get(mac)
	assert.Equal(t, boottrace.StepImage, kept.Last.Step)
}

// TestManyMachinesAtOnce: a rack that is switched on asks at the same moment.
func TestManyMachinesAtOnce(t *testing.T) {
	b := newFixture(t)
	b.Log = discard()
	addr := start(t, b)
	var all sync.WaitGroup
	for i := range 300 {
		mac := net.HardwareAddr{0x52, 0x54, 0, 1, byte(i >> 8), byte(i)}
		b.rack.boots[mac.String()] = pxe.Boot{Action: pxe.ActionInspect, Kernel: "k", Initrd: []string{"r"}}
	}
	for i := range 300 {
		all.Go(func() {
			mac := net.HardwareAddr{0x52, 0x54, 0, 1, byte(i >> 8), byte(i)}
			status, body := raw(t, addr, "/ipxe/"+strings.ReplaceAll(mac.String(), ":", "-"))
			assert.Equal(t, 200, status)
			assert.Contains(t, body, "BOOTIF=01-"+strings.ReplaceAll(mac.String(), ":", "-"))
		})
	}
	all.Wait()
}

// TestSendfileIsKept: the connection's ReadFrom is what sends a file; a wrapper that
// hides it would copy every byte through this program.
func TestSendfileIsKept(t *testing.T) {
	b := newFixture(t)
	b.write(t, "f", bytes.Repeat([]byte("x"), 3<<20))
	w := &readerFrom{header: http.Header{}}
	r, err := http.NewRequest("GET", "/f", nil)
	require.NoError(t, err)
	b.ServeHTTP(w, r)
	assert.Equal(t, int64(3<<20), w.fromFile)
}

type readerFrom struct {
	header   http.Header
	fromFile int64
}

func (w *readerFrom) Header() http.Header         { return w.header }
func (w *readerFrom) WriteHeader(int)             {}
func (w *readerFrom) Write(p []byte) (int, error) { return len(p), nil }
func (w *readerFrom) ReadFrom(src io.Reader) (int64, error) {
	n, err := io.Copy(io.Discard, src)
	if limited, ok := src.(*io.LimitedReader); ok {
		if _, ok := limited.R.(*os.File); ok {
			w.fromFile += n
		}
	}
	return n, err
}
