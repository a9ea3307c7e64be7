package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
)

// agentOfUploads takes records and their bytes, whole, and lists the names that were complete in their order.
type agentOfUploads struct {
	records  map[string]artifact.Metadata
	complete []string
}

func (a *agentOfUploads) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := r.URL.Path
	have, known := a.records[at]
	switch {
	case r.Method == http.MethodPost:
		var m artifact.Metadata
		_ = json.Unmarshal([]byte(r.FormValue("metadata")), &m)
		a.records[path.Join(at, m.ImageName)] = m
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(m)
	case !known:
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(artifact.Problem{Status: http.StatusNotFound, Detail: "there is no such thing"})
	case r.Method == http.MethodPatch:
		n, _ := io.Copy(io.Discard, r.Body)
		have.ImageOffset, have.Complete = n, n == have.ImageLength
		a.records[at] = have
		a.complete = append(a.complete, path.Base(path.Dir(at))+"/"+have.ImageName)
		w.WriteHeader(http.StatusNoContent)
	default:
		_ = json.NewEncoder(w).Encode(have)
	}
}

// TestASignatureIsPushedBeforeItsImage, so that no node waits for it.
func TestASignatureIsPushedBeforeItsImage(t *testing.T) {
	agent := &agentOfUploads{records: map[string]artifact.Metadata{}}
	s := httptest.NewTLSServer(agent)
	defer s.Close()
	image := filepath.Join(t.TempDir(), "debian.qcow2")
	require.NoError(t, os.WriteFile(image, []byte("QFI\xfb and so on"), 0o600))
	key, _ := newSigningKey(t)
	push := func(more ...string) error {
		_, _, err := command(t, "", append([]string{"artifact", "push", image, "os/debian-12", "--server", s.URL, "--ca",
			certificateOf(t, s), "--owner", "alpha", "--cluster", "beta"}, more...)...)
		return err
	}

	require.ErrorContains(t, push("--signature", image+".minisig"), "push signature of "+image+": it is not signed: there is no file")
	require.ErrorContains(t, push("--signature", image), "no signature of minisign")
	assert.Empty(t, agent.complete)

	_, _, err := command(t, "", "sign", image, "--key", key)
	require.NoError(t, err)
	require.NoError(t, push("--signature", image+".minisig"))
	assert.Equal(t, []string{"binary_images/debian-12.minisig", "os_images/debian-12"}, agent.complete)
	require.NoError(t, push("--signature", image+".minisig"), "again")
	assert.Len(t, agent.complete, 2)
	assert.ErrorContains(t, push("--signature", image+".minisig", "--note", strings.Repeat("x", 3)), "is not KEY=VALUE")
}
