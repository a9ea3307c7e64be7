package main

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
)

func TestServerURL(t *testing.T) {
	for given, want := range map[string]string{
		"172.22.0.1":               "https://172.22.0.1:9015",
		"appliance":                "https://appliance:9015",
		"appliance:1234":           "https://appliance:1234",
		"fd00::1":                  "https://[fd00::1]:9015",
		"[fd00::1]:1234":           "https://[fd00::1]:1234",
		"https://appliance:9015/":  "https://appliance:9015",
		"http://appliance:9015":    "",
		"https://appliance/v1":     "",
		"https://":                 "",
		"https://appliance:port:x": "",
	} {
		got, err := serverURL(given)
		assert.Equal(t, want, got, given)
		assert.Equal(t, want == "", err != nil, given)
	}
}

func TestArtifactCommandLine(t *testing.T) {
	t.Setenv("FIRSTLIGHT_SERVER", "")
	scope := []string{"--server", "127.9.15.9:1", "--owner", "alpha", "--cluster", "beta"}
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o644))
	for _, c := range []struct {
		name string
		args []string
		code int
	}{
		{"help", []string{"artifact", "-h"}, 0},
		{"nothing to do", []string{"artifact"}, 0},
		{"no server", []string{"artifact", "list"}, 2},
		{"no owner", []string{"artifact", "list", "--server", "x", "--cluster", "beta"}, 2},
		{"owner that is none", []string{"artifact", "list", "--server", "x", "--owner", "Alpha", "--cluster", "beta"}, 2},
		{"unknown kind", append([]string{"artifact", "show", "disk/x"}, scope...), 2},
		{"kind alone", append([]string{"artifact", "show", "os"}, scope...), 2},
		{"odd name", append([]string{"artifact", "show", "os/../x"}, scope...), 2},
		{"unknown output", append([]string{"artifact", "list", "-o", "yaml"}, scope...), 2},
		{"note that is none", append([]string{"artifact", "push", file, "os/x", "--note", "x"}, scope...), 2},
		{"too many words", append([]string{"artifact", "show", "os/x", "os/y"}, scope...), 2},
		{"plain HTTP", []string{"artifact", "list", "--server", "http://x", "--owner", "alpha", "--cluster", "beta"}, 2},
		{"nobody there", append([]string{"artifact", "list"}, scope...), 1},
		{"no such file", append([]string{"artifact", "push", file + "-none", "os/x"}, scope...), 1},
		{"no such authority", append([]string{"artifact", "list", "--ca", file + "-none"}, scope...), 1},
		{"authority that is none", append([]string{"artifact", "list", "--ca", file}, scope...), 1},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.code, run(t.Context(), c.args)) })
	}
}

func TestArtifactListAndShow(t *testing.T) {
	records := []artifact.Metadata{
		{ImageName: "debian-13", ImageLength: 640 << 20, ImageOffset: 640 << 20, Complete: true, SHA256: strings.Repeat("ab", 32), Format: "raw", VirtualSize: 640 << 20},
		{ImageName: "half", ImageLength: 100, ImageOffset: 50, Description: artifact.Description{ImageRecords: []map[string]string{{"tag": "2", "repo": "icn"}}}},
	}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
		switch r.URL.Path {
		case "/v1/baremetalcluster/alpha/beta/os_images":
			_ = json.NewEncoder(w).Encode(artifact.List{Items: records})
		case "/v1/baremetalcluster/alpha/beta/os_images/half":
			_ = json.NewEncoder(w).Encode(records[1])
		case "/v1/baremetalcluster/alpha/beta/container_images/served":
			_ = json.NewEncoder(w).Encode(artifact.Metadata{ImageName: "served", Complete: true, ServedAs: []string{"icn/app:1.2", "icn/app:latest"}})
		case "/v1/baremetalcluster/alpha/beta/container_images/odd":
			_ = json.NewEncoder(w).Encode(artifact.Metadata{ImageName: "odd", Complete: true, NotServed: "it is no archive of images"})
		default:
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(artifact.Problem{Status: 404, Detail: "there is no such thing"})
		}
	}))
	defer s.Close()
	t.Setenv("FIRSTLIGHT_TOKEN", "wrong")
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	say := func(args ...string) (string, error) {
		cmd := newArtifactCommand()
		var out strings.Builder
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append(args, "--server", s.URL, "--ca", certificateOf(t, s), "--token-file", token, "--owner", "alpha", "--cluster", "beta"))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	out, err := say("list", "os")
	require.NoError(t, err)
	assert.Contains(t, out, "os/debian-13  640.0 MiB  complete   abababababab")
	assert.Contains(t, out, "os/half       0.0 MiB    50 % sent")
	complete := func(words ...string) string {
		t.Helper()
		last := len(words) - 1
		args := append([]string{"__complete"}, words[:last]...)
		args = append(args, "--server", s.URL, "--ca", certificateOf(t, s), "--token-file", token, "--owner", "alpha", "--cluster", "beta")
		cmd := newArtifactCommand()
		var out strings.Builder
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(append(args, words[last]))
		require.NoError(t, cmd.ExecuteContext(t.Context()))
		return out.String()
	}
	assert.Equal(t, "os/debian-13\nos/half\n:4\n", complete("show", "os/"))
	assert.Equal(t, "os/debian-13\nos/half\n:4\n", complete("rm", "os/half", "os/"))
	assert.Equal(t, ":4\n", complete("show", "os/half", ""))
	assert.Equal(t, ":0\n", complete("get", "os/half", ""), "a file")
	assert.Equal(t, ":4\n", complete("show", "container/"), "an appliance that refuses has none")
	assert.Contains(t, complete("list", ""), "container\n")

	out, err = say("list", "os", "-o", "json")
	require.NoError(t, err)
	assert.Contains(t, out, `"image_name": "debian-13"`)
	out, err = say("show", "os/half")
	require.NoError(t, err)
	assert.Contains(t, out, "bytes           50 of 100")
	assert.Contains(t, out, "repo            icn\ntag             2")
	assert.NotContains(t, out, "served")
	out, err = say("show", "container/served")
	require.NoError(t, err)
	assert.Contains(t, out, "served as       icn/app:1.2, icn/app:latest\n")
	assert.NotContains(t, out, "not served")
	out, err = say("show", "container/odd")
	require.NoError(t, err)
	assert.Contains(t, out, "not served      it is no archive of images\n")
	_, err = say("show", "os/none")
	assert.EqualError(t, err, "show os/none: there is no such thing")
}

// certificateOf is a server's certificate as a file.
func certificateOf(t *testing.T, s *httptest.Server) string {
	path := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o644))
	return path
}
