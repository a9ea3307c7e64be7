package remote_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/engine/remote"
	"firstlight.dev/firstlight/daemon/engine/remote/sshtest"
)

var local = netip.MustParseAddr("127.0.0.1")

func shell(n *sshtest.Node) remote.Shell {
	return remote.Shell{Signer: sshtest.NewKey(n.T), Port: n.Port}
}

func TestShellRuns(t *testing.T) {
	n := sshtest.New(t)
	s := shell(n)
	n.AuthorizeKey(s.Signer)
	out, said, err := s.Run(t.Context(), local, n.HostKey(), "echo out; echo said >&2; exit 3\n")
	require.NoError(t, err)
	assert.Equal(t, "out\n", out)
	assert.Equal(t, "said\nexit code 3\n", said)
}

func TestRunRefusesAnotherHost(t *testing.T) {
	n := sshtest.New(t)
	s := shell(n)
	n.AuthorizeKey(s.Signer)
	_, _, err := s.Run(t.Context(), local, sshtest.AuthorizedKey(sshtest.NewKey(t)), "touch ran\n")
	assert.ErrorContains(t, err, "another machine has this address, or it was installed again")
	_, _, err = s.Run(t.Context(), local, "", "touch ran\n")
	assert.ErrorIs(t, err, remote.ErrUnknownHost)
	_, _, err = s.Run(t.Context(), local, "ssh-ed25519 x", "touch ran\n")
	assert.ErrorContains(t, err, "read its host key")
	assert.Zero(t, n.Logins.Load())
}

func TestRunEndsWithItsContext(t *testing.T) {
	n := sshtest.New(t)
	s := shell(n)
	n.AuthorizeKey(s.Signer)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil && n.Get("began") == "" {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	_, _, err := s.Run(ctx, local, n.HostKey(), "echo yes >$DIR/began\nexec sleep 600\n")
	assert.ErrorIs(t, err, context.Canceled)
}

func TestAdopt(t *testing.T) {
	n := sshtest.New(t)
	s := shell(n)
	p := remote.Password{"ubuntu", "ubuntu"}
	pinned := ""
	pin := func(k string) error {
		assert.Equal(t, "ubuntu", n.Get("shadow"), "the password went before the host key was kept")
		pinned = k
		return nil
	}
	require.NoError(t, s.Adopt(t.Context(), local, "", p, pin))
	assert.Equal(t, n.HostKey(), pinned)
	assert.Equal(t, "*", n.Get("shadow"), "the default password still opens it")
	assert.Equal(t, sshtest.AuthorizedKey(s.Signer)+" appliance", n.Get("root/.ssh/authorized_keys"))
	require.NoError(t, s.Adopt(t.Context(), local, pinned, p, pin), "again, when all is done")
	assert.Equal(t, sshtest.AuthorizedKey(s.Signer)+" appliance", n.Get("root/.ssh/authorized_keys"))
	assert.Error(t, s.Adopt(t.Context(), local, "", p, pin), "the password was taken away and still works")
}

func TestAdoptCutOff(t *testing.T) {
	n := sshtest.New(t)
	s, p := shell(n), remote.Password{"ubuntu", "ubuntu"}
	kept := ""
	lost := func(k string) error { kept = k; return errors.New("no space left on device") }
	assert.ErrorContains(t, s.Adopt(t.Context(), local, "", p, lost), "keep host key")
	assert.Equal(t, "ubuntu", n.Get("shadow"), "the password is gone and the host key was not kept")
	// Cut off before the host key was kept, and after.
	require.NoError(t, s.Adopt(t.Context(), local, "", p, func(string) error { return nil }))
	n.Put("shadow", "ubuntu")
	require.NoError(t, s.Adopt(t.Context(), local, kept, p, nil))
	assert.Equal(t, "*", n.Get("shadow"))
}

func TestAdoptRefusals(t *testing.T) {
	n := sshtest.New(t)
	s := shell(n)
	adopt := func(hostKey, password string) error {
		return s.Adopt(t.Context(), local, hostKey, remote.Password{"ubuntu", password}, func(string) error { return nil })
	}
	assert.ErrorContains(t, adopt("", "wrong"), "log in to 127.0.0.1 as ubuntu")
	assert.ErrorContains(t, adopt(sshtest.AuthorizedKey(sshtest.NewKey(t)), "ubuntu"), "another machine has this address", "the password was told to another machine")
	n.Put("nosudo", "")
	assert.ErrorContains(t, adopt("", "ubuntu"), "user ubuntu may not become root")
	assert.Equal(t, "ubuntu", n.Get("shadow"))
}
