package standinbmc

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWhatIsWantedIsKept: Ironic is answered like by a BMC that obeys at once, also after a restart.
func TestWhatIsWantedIsKept(t *testing.T) {
	dir := t.TempDir()
	s := &Server{Dir: dir, Log: slog.New(slog.DiscardHandler)}
	b, err := s.BMC("node-1")
	require.NoError(t, err)
	assert.Equal(t, "redfish+http://127.0.0.1:6187/redfish/v1/Systems/node-1", string(b.Address))
	ask := func(method, path, body, password string) (int, map[string]any) {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.SetBasicAuth(username, password)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		var said map[string]any
		_ = json.Unmarshal(w.Body.Bytes(), &said)
		return w.Code, said
	}
	const one = systems + "/node-1"
	power := func() any {
		code, said := ask(http.MethodGet, one, "", b.Password.Reveal())
		require.Equal(t, http.StatusOK, code)
		return said["PowerState"]
	}
	code, _ := ask(http.MethodGet, one, "", "guess")
	assert.Equal(t, http.StatusUnauthorized, code)
	code, _ = ask(http.MethodGet, root+"/", "", "")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "On", power(), "a server of which nothing is known may be in service")

	code, _ = ask(http.MethodPost, one+resetTo, `{"ResetType": "ForceOff"}`, b.Password.Reveal())
	assert.Equal(t, http.StatusNoContent, code)
	code, said := ask(http.MethodPatch, one, `{"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}`, b.Password.Reveal())
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "Pxe", said["Boot"].(map[string]any)["BootSourceOverrideTarget"])
	s = &Server{Dir: dir, Log: s.Log}
	assert.Equal(t, "Off", power(), "forgotten at a restart")
	again, err := s.BMC("node-1")
	require.NoError(t, err)
	assert.Equal(t, b.Password.Reveal(), again.Password.Reveal())
	code, _ = ask(http.MethodPost, one+resetTo, `{"ResetType": "Nmi"}`, b.Password.Reveal())
	assert.Equal(t, http.StatusNotFound, code)
	code, _ = ask(http.MethodPost, one+resetTo, `{`, b.Password.Reveal())
	assert.Equal(t, http.StatusBadRequest, code)
}
