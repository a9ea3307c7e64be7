package verify

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/engine/remote"
	"firstlight.dev/firstlight/daemon/engine/remote/sshtest"
	"firstlight.dev/firstlight/daemon/metal/verify/shell"
)

// TestAHostWithADefaultPasswordIsVerified: an image that knows no key of ours is logged in to once with what its owner
// says it came with; from then on the appliance's key and the host key that it met open it, and the password nothing.
func TestAHostWithADefaultPasswordIsVerified(t *testing.T) {
	n := sshtest.New(t)
	access, minted := sshtest.NewKey(t), sshtest.NewKey(t)
	given := Credentials{Password: remote.Password{User: "ubuntu", Password: "ubuntu"}, From: "Secret metal3/image-login"}
	asked := 0
	l := &Logins{Dir: t.TempDir(), Port: n.Port, Credentials: func(context.Context, string) (Credentials, bool, error) {
		asked++
		return given, given.User != "", nil
	}}
	target := func() shell.Target {
		return shell.Target{Name: "node-1", Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Port: n.Port,
			User: "firstlight", Key: access, HostKey: minted.PublicKey()}
	}
	ask := func(t shell.Target) shell.Answer { return shell.Ask(context.Background(), t) }

	first := target()
	assert.Equal(t, shell.OtherMachine, ask(first).Verdict, "what is there is not what the appliance's keys would have made")
	assert.False(t, l.aim(&first, "image@1"))
	require.NoError(t, l.adopt(t.Context(), &first, "image@1"))
	assert.NotEqual(t, shell.OtherMachine, ask(first).Verdict)
	assert.Equal(t, "*", n.Get("shadow"), "the default password still opens it")
	assert.Equal(t, n.HostKey(), l.HostKey("node-1", "image@1"))

	again := target()
	require.True(t, (&Logins{Dir: l.Dir}).aim(&again, "image@1"), "forgotten at a restart")
	assert.NotEqual(t, shell.OtherMachine, ask(again).Verdict)
	reinstalled := target()
	assert.False(t, l.aim(&reinstalled, "image@2"), "what is installed is another system, with another key")

	// Cut off after the key was kept and before the password went: nothing is taken for done.
	n.Put("shadow", "ubuntu")
	require.NoError(t, l.save("node-1", pin{Installed: "image@1", HostKey: n.HostKey()}))
	cut := target()
	require.False(t, l.aim(&cut, "image@1"))
	require.NoError(t, l.adopt(t.Context(), &cut, "image@1"))
	assert.Equal(t, "*", n.Get("shadow"))

	// Another machine with that address learns no password.
	require.NoError(t, os.Remove(filepath.Join(l.Dir, "node-1.json")))
	asked = 0
	refused := target()
	assert.ErrorContains(t, l.adopt(t.Context(), &refused, "image@1"), "user ubuntu of Secret metal3/image-login does not get in")
	logins := n.Logins.Load()
	assert.ErrorContains(t, l.adopt(t.Context(), &refused, "image@1"), "is tried again in")
	assert.Equal(t, logins, n.Logins.Load(), "a refused password was tried again at once")
	given = Credentials{}
	assert.True(t, errors.Is(l.adopt(t.Context(), &refused, "image@1"), errNoCredentials))
}

// TestTheEngineLogsInWithADefaultPassword: what the appliance's keys do not open is opened by what its owner names, is
// asked again, and is met by that host key from then on.
func TestTheEngineLogsInWithADefaultPassword(t *testing.T) {
	n := sshtest.New(t)
	access, minted := sshtest.NewKey(t), sshtest.NewKey(t)
	given := Credentials{}
	e := &Engine{
		Logger: slog.New(slog.DiscardHandler),
		Logins: &Logins{
			Dir:  t.TempDir(),
			Port: n.Port,
			Credentials: func(_ context.Context, host string) (Credentials, bool, error) {
				return given, given.User != "" && host == "node-1", nil
			},
		},
	}
	target := shell.Target{
		Name:      "node-1",
		Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
		Port:      n.Port,
		User:      "firstlight",
		Key:       access,
		HostKey:   minted.PublicKey(),
	}

	assert.Equal(t, shell.OtherMachine, e.ask(t.Context(), shell.Ask, target, "image@1").Verdict, "no one named a password")
	assert.Equal(t, "ubuntu", n.Get("shadow"))

	given = Credentials{Password: remote.Password{User: "ubuntu", Password: "wrong"}, From: "Secret metal3/image-login"}
	refused := e.ask(t.Context(), shell.Ask, target, "image@1")
	assert.Equal(t, shell.Locked, refused.Verdict)
	assert.Contains(t, refused.Text, "user ubuntu of Secret metal3/image-login does not get in")

	given.Password.Password = "ubuntu"
	e.Logins.later = nil
	assert.NotContains(t, []shell.Verdict{shell.OtherMachine, shell.Locked}, e.ask(t.Context(), shell.Ask, target, "image@1").Verdict)
	assert.Equal(t, "*", n.Get("shadow"), "the default password still opens it")

	given = Credentials{}
	assert.NotContains(t, []shell.Verdict{shell.OtherMachine, shell.Locked}, e.ask(t.Context(), shell.Ask, target, "image@1").Verdict,
		"the host key that was met is forgotten")
	assert.Equal(t, n.HostKey(), e.Logins.HostKey("node-1", "image@1"))
}
