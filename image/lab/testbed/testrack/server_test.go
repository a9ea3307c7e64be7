package testrack_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/bmc"
	"firstlight.dev/firstlight/image/lab/testbed/testrack"
)

// bootSector prints "from the disk" on the serial line and halts: it sends each byte at 0x7c11 to port 0x3f8 until a
// zero.
func bootSector() []byte {
	sector := make([]byte, 512)
	copy(sector, "\xbe\x11\x7c\xac\x84\xc0\x74\x06\xba\xf8\x03\xee\xeb\xf5\xf4\xeb\xfdfrom the disk\n")
	copy(sector[510:], "\x55\xaa")
	return sector
}

func bootsFromDisk(s *testrack.Server) int { return strings.Count(s.Console(), "from the disk") }

func TestAServerBootsFromWhatItsBMCIsTold(t *testing.T) {
	need(t, "qemu")
	if os.Geteuid() != 0 {
		t.Skip("needs root for a network of its own")
	}
	rack, err := testrack.New(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rack.Close()) })
	s, err := rack.Plug(t.Context(), testrack.ServerConfig{
		Name: "node1",
		Dir:  t.TempDir(),
		MAC:  "52:54:00:00:00:01",
		Port: 6230,
		Disk: 1 << 20,
		MiB:  64,
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Unplug()) })
	disk, err := os.OpenFile(s.DiskFile(), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = disk.Write(bootSector())
	require.NoError(t, err)
	require.NoError(t, disk.Close())
	const deadline = 5 * time.Minute

	require.False(t, s.IsOn())
	require.NoError(t, s.BMC().Press("power", "1"))
	require.Eventually(t, func() bool { return bootsFromDisk(s) == 1 }, deadline, 100*time.Millisecond)
	assert.Zero(t, s.Cable().Stats().Sent, "it asked the network first")

	require.NoError(t, s.BMC().Press("boot", bmc.BootNetwork))
	require.NoError(t, s.BMC().Press("reset", ""))
	require.Eventually(t, func() bool { return s.Cable().Stats().Sent > 0 }, deadline, 100*time.Millisecond)
	assert.Equal(t, 1, bootsFromDisk(s), "it booted from the disk first")

	require.NoError(t, s.BMC().Press("power", "0"))
	assert.False(t, s.IsOn())
}
