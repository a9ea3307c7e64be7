package netns_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/testbed/netns"
)

func TestWithinRunsInAnotherNetwork(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to change the network of a thread")
	}
	other := exec.Command("unshare", "--net", "sh", "-c", "echo ready; exec sleep 1000")
	out, err := other.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	defer func() { other.Process.Kill(); other.Wait() }()
	_, err = out.Read(make([]byte, 8))
	require.NoError(t, err)

	network := func() (string, error) { return os.Readlink("/proc/thread-self/ns/net") }
	here, err := network()
	require.NoError(t, err)
	var there string
	require.NoError(t, netns.Do(netns.PathOf(other.Process.Pid), func() (err error) { there, err = network(); return err }))
	assert.NotEqual(t, here, there)
	assert.ErrorIs(t, netns.Do(netns.PathOf(-1), func() error { return nil }), os.ErrNotExist)
	after, err := network()
	require.NoError(t, err)
	assert.Equal(t, here, after)
}
