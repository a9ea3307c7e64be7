package bootserver_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A server without a Booter has files, and nothing that a machine could boot by.
func TestWithoutABooterNothingIsBooted(t *testing.T) {
	b := newFixture(t)
	require.NoError(t, os.WriteFile(filepath.Join(b.web, "a.deb"), []byte("package"), 0o644))
	b.Booter, b.Machines, b.Files, b.Record = nil, nil, nil, nil
	for path, code := range map[string]int{
		"/a.deb": http.StatusOK, "/ipxe/52-54-00-00-00-01": http.StatusNotFound, "/boot/ipxe.efi": http.StatusNotFound,
	} {
		w := httptest.NewRecorder()
		b.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		assert.Equal(t, code, w.Code, path)
	}
}
