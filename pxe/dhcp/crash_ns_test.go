package dhcp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFault08KillAroundTheAck kills the server twenty times while it gives out leases, as
// fast as machines ask. An observer on the cable notes every DHCPACK.
func TestFault08KillAroundTheAck(t *testing.T) {
	l := newLab(t)
	l.withAddress()
	self, err := os.Executable()
	require.NoError(t, err)
	observer := exec.Command("ip", "netns", "exec", l.client, self)
	observer.Env = append(os.Environ(), clientEnv+"=watch")
	var acks lockedBuffer
	observer.Stdout, observer.Stderr = &acks, os.Stderr
	require.NoError(t, observer.Start())
	require.Eventually(t, func() bool { return strings.Contains(acks.String(), "watching") }, time.Minute, 20*time.Millisecond)

	c := l.config(func(c *Config) {
		c.ProbeWait = 100 * time.Millisecond
		c.Subnets[0].Pool = Range{First: netip.MustParseAddr("172.22.16.0"), Last: netip.MustParseAddr("172.22.239.255")}
	})
	for round := range 20 {
		p := start(t, l.server, c)
		p.waitFor("status serving")
		load := exec.Command("ip", "netns", "exec", l.client, "perfdhcp", "-4", "-l", "cli0", "-r", "3000", "-R", "10000", "-p", "5",
			"-b", fmt.Sprintf("mac=02:00:00:%02x:00:00", round/2), "172.22.0.1") // every second round the same machines come back
		require.NoError(t, load.Start())
		time.Sleep(time.Duration(250+rand.IntN(500)) * time.Millisecond)
		p.kill()
		require.NoError(t, load.Process.Signal(syscall.SIGKILL))
		_ = load.Wait() // killed
	}
	time.Sleep(200 * time.Millisecond) // what is still in the observer's queue
	require.NoError(t, observer.Process.Kill())
	_ = observer.Wait()

	addrOf, macOf := map[string]string{}, map[string]string{}
	seen := 0
	for _, line := range strings.Split(strings.TrimSpace(acks.String()), "\n")[1:] {
		mac, addr, ok := strings.Cut(line, " ")
		if !ok || len(mac) != 17 {
			continue // the observer was killed in a line
		}
		seen++
		if other, given := macOf[addr]; given {
			require.Equal(t, other, mac, "%s was given twice", addr)
		}
		addrOf[mac], macOf[addr] = addr, mac
	}
	kept := map[string]string{}
	for _, k := range leasesIn(t, c.LeaseDir) {
		require.Equal(t, "active", k.State)
		kept[k.Addr.String()] = k.MAC
	}
	for mac, addr := range addrOf {
		require.Equal(t, mac, kept[addr], "the acknowledged lease of %s is lost", addr)
	}
	t.Logf("20 kills, %d DHCPACKs seen, %d machines, %d leases kept: none twice, none lost", seen, len(addrOf), len(kept))
	require.Greater(t, len(addrOf), 1000, "too few leases to tell")
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
