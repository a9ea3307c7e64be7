package simulator

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestServersOutliveTheirSimulator: disks, power, passwords and the certificate that somebody has pinned.
func TestServersOutliveTheirSimulator(t *testing.T) {
	file := filepath.Join(t.TempDir(), "servers.json")
	start := func() *Simulator {
		f, err := Start(Config{Hosts: 2, Boot: "http://127.0.0.1:1", Keep: file, BootTime: time.Millisecond})
		require.NoError(t, err)
		return f
	}

	first := start()
	host := first.Hosts()[0]
	host.beginWrite("/dev/sda")
	host.finishWrite("/dev/sda", "the sum of an image", nil, "a host key")
	host.mu.Lock()
	host.password = "another-password"
	host.mu.Unlock()
	host.Power(true)
	require.Eventually(t, func() bool {
		states, err := Kept(file)
		require.NoError(t, err)
		return states["node1"] == OnDisk && states["node2"] == Off
	}, 2*time.Minute, 10*time.Millisecond, "it is kept while the simulator runs")
	certificate := first.cert.Certificate
	require.NoError(t, first.Close())
	assert.Equal(t, Off, host.State())

	second := start()
	host = second.Hosts()[0]
	assert.Equal(t, certificate, second.cert.Certificate)
	assert.Equal(t, "the sum of an image", host.Disks()[0].Image)
	assert.Equal(t, "a host key", host.Disks()[0].HostKey)
	assert.Equal(t, "another-password", host.Password())
	require.Eventually(t, func() bool { return host.State() == OnDisk }, 2*time.Minute, 10*time.Millisecond, "it was on")
	assert.Equal(t, Off, second.Hosts()[1].State(), "it was not")
	require.NoError(t, second.Close())

	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	_, err := Start(Config{Hosts: 1, Boot: "http://127.0.0.1:1", Keep: file})
	assert.ErrorContains(t, err, file)
}
