package mirror

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/metal/packages"
)

// TestTheIndexIsWrittenAgainForAnotherKey when that signs, and not before.
func TestTheIndexIsWrittenAgainForAnotherKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "packages.key")
	open := func() *packages.Key {
		key, err := packages.OpenKey(file)
		require.NoError(t, err)
		return key
	}
	state := func() string { return indexState([]string{"alice"}, open()) }
	before := state()
	require.NoError(t, open().BeginRotation())
	assert.Equal(t, before, state())
	require.NoError(t, open().Switch())
	switched := state()
	assert.NotEqual(t, before, switched)
	require.NoError(t, open().ForgetFormer())
	assert.Equal(t, switched, state())
}

func TestWhatTheRegistryHandsOutIsCompared(t *testing.T) {
	served := "both"
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if served == "" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, err := w.Write([]byte(served))
		assert.NoError(t, err)
	}))
	url := server.URL + "/packages.asc"
	require.NoError(t, checkText(t.Context(), server.Client(), url, []byte("both")))
	for _, served = range []string{"", "bot", "both and more"} {
		assert.ErrorContains(t, checkText(t.Context(), server.Client(), url, []byte("both")), url+" to be as it ought to be", served)
	}
	server.Close()
	assert.ErrorContains(t, checkText(t.Context(), server.Client(), url, []byte("both")), url+" to answer")
}
