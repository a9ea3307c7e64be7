package freeport

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFoundPortsAreOutsideTheKernelsRange(t *testing.T) {
	lowest, err := lowestLocal()
	require.NoError(t, err)

	seen := map[int]bool{}
	for range 200 {
		tcp, err := FindTCP()
		require.NoError(t, err)
		udp, err := FindUDP()
		require.NoError(t, err)
		for _, port := range []int{tcp, udp} {
			require.False(t, seen[port], "port %d was given twice", port)
			require.Less(t, port, lowest)
			seen[port] = true
		}
	}
}

func TestAPortInUseIsNotFound(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()

	inUse := l.Addr().String()
	tried := 0
	port, err := find(func(address string) error {
		if tried++; tried < 3 {
			address = inUse
		}
		l, err := net.Listen("tcp4", address)
		if err != nil {
			return err
		}
		return l.Close()
	})
	require.NoError(t, err)
	require.Equal(t, 3, tried)
	require.NotContains(t, inUse, fmt.Sprint(":", port))
}
