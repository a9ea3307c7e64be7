package limit

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/netns"
)

// TestOneMachineHoldsItsShareOnly: a machine of another network keeps as many TLS connections open as it gets, after
// a request on each. The server's memory and files stay flat, and another machine is served.
func TestOneMachineHoldsItsShareOnly(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "ns") {
		t.Skip("needs root and network namespaces: set FIRSTLIGHT_TEST=ns")
	}
	far := exec.Command("sleep", "infinity")
	far.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, far.Start())
	t.Cleanup(func() { _ = far.Process.Kill(); _ = far.Wait() })
	near := exec.Command("sleep", "infinity")
	near.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, near.Start())
	t.Cleanup(func() { _ = near.Process.Kill(); _ = near.Wait() })
	require.NoError(t, netns.IP(t.Context(), near.Process.Pid, fmt.Sprintf("link add eth0 type veth peer name eth0 netns %d", far.Process.Pid),
		"addr add 172.22.0.1/24 dev eth0", "link set eth0 up"))
	require.NoError(t, netns.IP(t.Context(), far.Process.Pid, "addr add 172.22.0.66/24 dev eth0", "addr add 172.22.0.77/24 dev eth0", "link set eth0 up"))

	fixture := httptest.NewTLSServer(nil)
	defer fixture.Close()
	s := &Server{Log: quiet, TLS: &tls.Config{Certificates: fixture.TLS.Certificates},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "served") })}
	var l net.Listener
	require.NoError(t, netns.Do(netns.PathOf(near.Process.Pid), func() (err error) {
		l, err = net.Listen("tcp4", "172.22.0.1:5000")
		return err
	}))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(t.Context(), l) }()

	ask := func(from string) (*tls.Conn, error) {
		var raw net.Conn
		err := netns.Do(netns.PathOf(far.Process.Pid), func() (err error) {
			d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			raw, err = d.Dial("tcp4", "172.22.0.1:5000")
			return err
		})
		if err != nil {
			return nil, err
		}
		c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		if err != nil {
			_ = c.Close()
			return nil, err
		}
		return c, nil
	}
	var mu sync.Mutex
	var held []*tls.Conn
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 64 {
				if c, err := ask("172.22.0.66"); err == nil {
					mu.Lock()
					held = append(held, c)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	assert.Len(t, held, defaultPerClient)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("512 connections of one machine: %d are held, %d MiB of heap on both sides", len(held), m.HeapInuse>>20)
	c, err := ask("172.22.0.77")
	require.NoError(t, err, "another machine is not served")
	_ = c.Close()
	for _, c := range held {
		_ = c.Close()
	}
}
