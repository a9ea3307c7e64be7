package dhcp

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestClosedWireTouchesNoOtherFile: ctx, a failed reader and the end of reading all close a
// wire, and a lease that reaches the disk later is still sent. By then another file may
// have the socket's number.
func TestClosedWireTouchesNoOtherFile(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(pair[0]); unix.Close(pair[1]) })
	const high = 700 // a number that nothing else in this process is given
	number, err := unix.FcntlInt(uintptr(pair[0]), unix.F_DUPFD_CLOEXEC, high)
	require.NoError(t, err)
	w := &packetConn{raw: number}
	w.Close()
	other, err := unix.FcntlInt(uintptr(pair[0]), unix.F_DUPFD_CLOEXEC, high)
	require.NoError(t, err)
	require.Equal(t, number, other, "the number was not given again")

	w.src = netip.MustParseAddr("172.22.0.1")
	require.ErrorIs(t, w.unicast([]byte("late"), netip.MustParseAddr("172.22.0.9"), [6]byte{2}), net.ErrClosed)
	w.Close()
	_, err = unix.FcntlInt(uintptr(other), unix.F_GETFD, 0)
	assert.NoError(t, err, "another's file was closed")
	unix.Close(other)
}
