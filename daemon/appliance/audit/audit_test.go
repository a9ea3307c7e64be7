package audit

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
)

var day = time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)

// event is a line of the API server's.
func event(id, stage string, at time.Time, rest string) string {
	return fmt.Sprintf(
		`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":%q,"stage":%q,`+
			`"requestReceivedTimestamp":%q,%s}`+"\n",
		id, stage, at.Format("2006-01-02T15:04:05.000000Z"), rest,
	)
}

func TestEntriesSayWhoDidWhat(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	const (
		admin = `"user":{"username":"kubernetes-admin"},"userAgent":"kubectl/v1.36.3 (linux/amd64)","sourceIPs":["172.22.0.1"]`
		exec  = `"verb":"get","user":{"username":"eve"},` +
			`"objectRef":{"resource":"pods","namespace":"alpha","name":"x","subresource":"exec"}`
	)
	text := event("1", "ResponseComplete", day.Add(time.Hour), admin+
		`,"verb":"create","impersonatedUser":{"username":"mallory"},"objectRef":{"resource":"rolebindings",`+
		`"namespace":"alpha","name":"readers","apiGroup":"rbac.authorization.k8s.io"},"responseStatus":{"code":201}`) +
		event("2", "ResponseStarted", day.Add(2*time.Hour), exec+`,"responseStatus":{"code":101}`) +
		event("2", "ResponseComplete", day.Add(2*time.Hour), exec+`,"responseStatus":{"code":200}`) +
		event("3", "ResponseComplete", day.Add(-time.Hour), admin+`,"verb":"delete"`) +
		`{"kind":"Event","auditID":"4","verb":"cre`
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	older := strings.TrimSuffix(file, ".log") + "-2026-11-26T00-30-00.000.log"
	require.NoError(t, os.WriteFile(older, []byte(event("0", "ResponseComplete", day, admin+
		`,"verb":"delete","objectRef":{"resource":"secrets","namespace":"b"},`+
		`"responseStatus":{"code":403,"reason":"Forbidden"}`)), 0o600))

	got, err := Read([]string{file, filepath.Join(t.TempDir(), "none.log")}, day)
	require.NoError(t, err)
	assert.Equal(t, []Entry{
		{Time: day, User: "kubernetes-admin", Program: "kubectl", From: "172.22.0.1", Verb: "delete", Object: "b/secrets",
			Code: 403, Reason: "Forbidden"},
		{Time: day.Add(time.Hour), User: "kubernetes-admin", As: "mallory", Program: "kubectl", From: "172.22.0.1",
			Verb: "create", Object: "alpha/rolebindings.rbac.authorization.k8s.io/readers", Code: 201},
		{Time: day.Add(2 * time.Hour), User: "eve", Verb: "get", Object: "alpha/pods/x/exec", Code: 200},
	}, inUTC(got))

	_, err = Read([]string{t.TempDir()}, day)
	assert.ErrorContains(t, err, "read audit log")
}

func inUTC(entries []Entry) []Entry {
	for i := range entries {
		entries[i].Time = entries[i].Time.UTC()
	}
	return entries
}

// TestALogIsBounded: whoever may change something fills no disk by it, and is still read.
func TestALogIsBounded(t *testing.T) {
	dir := t.TempDir()
	log := NewLog(filepath.Join(dir, "audit", "uploads.log"), slog.New(slog.DiscardHandler))
	r := httptest.NewRequest(http.MethodPut, "/"+strings.Repeat("x", 4<<10), nil)
	r.Header.Set("User-Agent", strings.Repeat("é", 2<<10))
	add := func(name string, at time.Time) {
		log.Add(Request{
			HTTP: r, Received: at, User: "system:serviceaccount:alpha:ci", Verb: "update", Code: 200,
			Reason: strings.Repeat("z", 4<<10),
			Object: NewArtifact(artifact.Key{Collection: artifact.OS, Owner: "alpha", Cluster: "beta", Name: name}),
		})
	}
	const line = 2000 // bytes, about
	for range 3 * maxMegabytes << 20 / line {
		add("x", day)
	}
	add("last", day.Add(time.Hour))

	size, files := int64(0), 0
	require.Eventually(t, func() bool { // what is too much is removed beside the writing
		size, files = 0, 0
		_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, _ error) error {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				size, files = size+info.Size(), files+1
			}
			return nil
		})
		return files <= 1+maxComplete
	}, time.Minute, 10*time.Millisecond)
	assert.LessOrEqual(t, size, int64((1+maxComplete)*maxMegabytes<<20))
	info, err := os.Stat(filepath.Join(dir, "audit", "uploads.log"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	entries, err := Read([]string{filepath.Join(dir, "audit", "uploads.log")}, day)
	require.NoError(t, err)
	assert.Greater(t, len(entries), maxMegabytes<<20/line, "of the file that is complete nothing is read")
	assert.Equal(t, "alpha/os_images.artifact.firstlight.dev/last", entries[len(entries)-1].Object)
}

// TestWhatKeepsALogFromBeingWrittenIsSaid: an upload goes on without it.
func TestWhatKeepsALogFromBeingWrittenIsSaid(t *testing.T) {
	var said bytes.Buffer
	occupied := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(occupied, nil, 0o600))
	log := NewLog(filepath.Join(occupied, "uploads.log"), slog.New(slog.NewTextHandler(&said, nil)))
	log.Add(Request{HTTP: httptest.NewRequest(http.MethodPut, "/", nil), User: "ci"})
	assert.Contains(t, said.String(), "a change is not in the audit log")

	var none *Log
	none.Add(Request{})
}
