package ctrlmanager

import (
	"log/slog"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// Pods of operators do not elect a leader: on the network of the one node the address of /readyz keeps two apart
// (daemonpod.Manager).
func TestASecondManagerDoesNotStartWhereOneIs(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	options := Options{Name: "test", Namespace: "test", Health: free.Addr().String(), Scheme: runtime.NewScheme()}
	require.NoError(t, free.Close())
	api, log := &rest.Config{Host: "https://127.0.0.1:1"}, slog.New(slog.DiscardHandler)

	_, err = New(api, options, log)
	require.NoError(t, err)
	_, err = New(api, options, log)
	assert.ErrorIs(t, err, syscall.EADDRINUSE)
}
