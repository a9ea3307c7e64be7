package standinbmc

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rotated is a stand-in whose Ironic is the test's.
type rotated struct {
	*Server
	t       *testing.T
	waiting []string
	err     error
	asked   string // the password that Ironic is to have
}

// restart is what a daemon is that knows nothing but what is on DATA.
func (r *rotated) restart() {
	r.Server = &Server{Dir: r.Dir, Log: slog.New(slog.DiscardHandler)}
	r.Waiting = func(_ context.Context, password string) ([]string, error) {
		r.asked = password
		return r.waiting, r.err
	}
}

func (r *rotated) takes(password string) bool {
	request := httptest.NewRequest(http.MethodGet, systems+"/node-1", nil)
	request.SetBasicAuth(username, password)
	w := httptest.NewRecorder()
	r.ServeHTTP(w, request)
	return w.Code == http.StatusOK
}

func (r *rotated) present() string {
	r.t.Helper()
	b, err := r.BMC("node-1")
	require.NoError(r.t, err)
	return b.Password.Reveal()
}

func newRotated(t *testing.T) *rotated {
	r := &rotated{t: t, Server: &Server{Dir: t.TempDir()}}
	r.restart()
	return r
}

// TestTheFormerPasswordIsTakenUntilIronicHasTheNext, also after a restart, and no longer.
func TestTheFormerPasswordIsTakenUntilIronicHasTheNext(t *testing.T) {
	r := newRotated(t)
	require.NoError(t, r.Round(t.Context()), "before anything is minted")
	former := r.present()
	require.NoError(t, r.BeginRotation())
	next := r.present()
	require.NotEqual(t, former, next)
	assert.ErrorIs(t, r.BeginRotation(), ErrRotating)

	r.waiting = []string{"node-1: Ironic has not accepted the present one"}
	for range 2 {
		require.NoError(t, r.Round(t.Context()))
		assert.Equal(t, next, r.asked)
		assert.Equal(t, "The former password of the stand-in BMC is taken still; it is waited for 1: "+r.waiting[0], r.Note())
		assert.True(t, r.takes(former) && r.takes(next))
		assert.False(t, r.takes("") || r.takes("guess"))
		r.restart()
	}
	r.err = errors.New("the hosts are being read")
	assert.ErrorIs(t, r.Round(t.Context()), r.err)
	assert.Contains(t, r.Note(), "waited for 1: the hosts are being read")

	r.waiting, r.err = nil, nil
	require.NoError(t, r.Round(t.Context()))
	assert.Empty(t, r.Note())
	assert.False(t, r.takes(former) || r.takes(""))
	assert.True(t, r.takes(next))
	assert.Equal(t, next, r.present())
	require.NoError(t, r.BeginRotation(), "another cannot begin")
	assert.NotEqual(t, next, r.present())
}

// TestThePowerFailsWhileTheStandInGetsItsPassword between its two files: what was taken is taken, and it can be asked for again.
func TestThePowerFailsWhileTheStandInGetsItsPassword(t *testing.T) {
	r := newRotated(t)
	former := r.present()
	require.NoError(t, os.WriteFile(filepath.Join(r.Dir, formerName), []byte(former), 0o600))
	r.restart()
	assert.True(t, r.takes(former))
	require.NoError(t, r.BeginRotation())
	assert.NotEqual(t, former, r.present())
	assert.True(t, r.takes(former) && r.takes(r.present()))

	r = newRotated(t)
	former = r.present()
	require.NoError(t, os.WriteFile(filepath.Join(r.Dir, formerName), []byte(former), 0o600))
	require.NoError(t, r.Round(t.Context()))
	assert.NoFileExists(t, filepath.Join(r.Dir, formerName))
	assert.True(t, r.takes(former))
}
