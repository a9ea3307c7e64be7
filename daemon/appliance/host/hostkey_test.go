package host

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/assets/site"
)

const restartSSH = "systemctl restart " + sshUnit

// TestTheNextHostKeyIsThereBeforeItIsShown: of the two host keys the second one becomes the first, another second one is
// made, and sshd starts with both; whenever that is interrupted.
func TestTheNextHostKeyIsThereBeforeItIsShown(t *testing.T) {
	h, u := newHost(t)
	_, _, err := h.RotateHostKey()
	require.ErrorIs(t, err, ErrNoHostKey)

	h.site = &site.Site{Access: site.Access{SSHKeys: []site.SSHKey{key}}}
	stageHolds(t, h.SSHDone, h.SSHDo)
	before, err := HostKeys(h.Root)
	require.NoError(t, err)
	require.Len(t, before, 2)
	require.NotEqual(t, before[0], before[1])
	assert.NotContains(t, u.asked, restartSSH, "sshd was started with both")

	minted := time.Now().Add(-time.Hour).Truncate(time.Second)
	require.NoError(t, os.Chtimes(h.dataPath(nextHostKeyName), minted, minted))
	fingerprint, since, err := h.RotateHostKey()
	require.NoError(t, err)
	assert.Equal(t, minted, since)
	next, _, _, _, err := ssh.ParseAuthorizedKey([]byte(before[1]))
	require.NoError(t, err)
	assert.Equal(t, ssh.FingerprintSHA256(next), fingerprint)

	// Here the power fails: what there is of the next one is not mistaken for one.
	_, _, err = h.RotateHostKey()
	require.ErrorIs(t, err, ErrNoHostKey, "it would be replaced by none")
	require.Error(t, h.SSHDone(t.Context()))
	stageHolds(t, h.SSHDone, h.SSHDo)
	after, err := HostKeys(h.Root)
	require.NoError(t, err)
	assert.Equal(t, before[1], after[0])
	assert.NotContains(t, before, after[1])
	assert.Contains(t, u.asked, restartSSH)

	// Keys that sshd has not loaded are loaded; those that it has are not again.
	u.asked = nil
	require.NoError(t, os.Remove(h.path(loadedKeysFile)))
	require.ErrorContains(t, h.SSHDone(t.Context()), "has other host keys than DATA")
	stageHolds(t, h.SSHDone, h.SSHDo)
	stageHolds(t, h.SSHDone, h.SSHDo)
	assert.Equal(t, 1, len(slices.DeleteFunc(u.asked, func(a string) bool { return a != restartSSH })))
}

// TestSSHDThatDoesNotStartHasLoadedNothing: the keys count as loaded when sshd was started with them, and not before.
func TestSSHDThatDoesNotStartHasLoadedNothing(t *testing.T) {
	h, u := newHost(t)
	h.site = &site.Site{Access: site.Access{SSHKeys: []site.SSHKey{key}}}
	stageHolds(t, h.SSHDone, h.SSHDo)
	_, _, err := h.RotateHostKey()
	require.NoError(t, err)

	u.fails = errors.New("exit status 1")
	require.ErrorIs(t, h.SSHDo(t.Context(), quiet), u.fails)
	require.Error(t, h.SSHDone(t.Context()))
	u.fails = nil
	stageHolds(t, h.SSHDone, h.SSHDo)
}
