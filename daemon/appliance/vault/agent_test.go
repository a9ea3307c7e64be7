package vault

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh/agent"
)

func TestTheAgentSignsAndTellsNoKey(t *testing.T) {
	k := &Keys{Dir: filepath.Join(t.TempDir(), "ssh")}
	own, err := k.AccessSigner()
	require.NoError(t, err)
	socket := filepath.Join(t.TempDir(), "agent", "ssh.sock")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	serve := func() {
		go func() { ended <- k.ServeAgent(ctx, socket) }()
	}
	serve()
	var c net.Conn
	require.Eventually(t, func() bool { c, err = net.Dial("unix", socket); return err == nil }, time.Minute, time.Millisecond)
	info, err := os.Stat(socket)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	client := agent.NewClient(c)
	signers, err := client.Signers()
	require.NoError(t, err)
	require.Len(t, signers, 1)
	signature, err := signers[0].Sign(nil, []byte("text"))
	require.NoError(t, err)
	assert.NoError(t, own.PublicKey().Verify([]byte("text"), signature))

	assert.Error(t, client.RemoveAll())
	assert.Error(t, client.Lock([]byte("x")))
	assert.Error(t, client.Add(agent.AddedKey{PrivateKey: own}))
	keys, err := client.List()
	require.NoError(t, err)
	assert.Len(t, keys, 1, "somebody took the key away")
	cancel()
	require.NoError(t, <-ended)

	// What a killed process left does not keep the next one from serving.
	ctx, cancel = context.WithCancel(t.Context())
	require.NoError(t, os.WriteFile(socket, nil, 0o600))
	serve()
	require.Eventually(t, func() bool { _, err = net.Dial("unix", socket); return err == nil }, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}
