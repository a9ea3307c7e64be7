package daemon

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/daemon/appliance/supportbundle"
	"firstlight.dev/firstlight/daemon/metal/verify/fact"
	"firstlight.dev/firstlight/daemon/page"
)

const ironicID = "0b9f8d1e-5c5d-4a52-9a27-0f4f2a1f7e11"

// writeArchive writes the journal of a ramdisk as Ironic keeps it.
func writeArchive(t *testing.T, path, journal string) {
	f, err := os.Create(path)
	require.NoError(t, err)
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "journal", Mode: 0o644, Size: int64(len(journal)), Typeflag: tar.TypeReg}))
	_, err = w.Write([]byte(journal))
	require.NoError(t, errors.Join(err, w.Close(), z.Close(), f.Close()))
}

// newLogs are the logs of node-1 in a folder, on an appliance with one secret in a file and one in its Kubernetes.
func newLogs(t *testing.T) (*nodeLogs, string) {
	dir := t.TempDir()
	for _, name := range []string{"deploy", "pods/metal3_ironic-x_uid/ironic", "var/lib/firstlight/secret"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "var/lib/firstlight/secret/ironic-password"), []byte("of-a-file-1"), 0o600))
	kubernetes := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/api/v1/secrets", r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"SecretList","apiVersion":"v1","items":[{"metadata":{"name":"bmc","namespace":"metal3"},"data":{"password":%q}}]}`,
			base64.StdEncoding.EncodeToString([]byte("of-a-Secret-2")))
	}))
	t.Cleanup(kubernetes.Close)
	return &nodeLogs{
		ramdisk: &fact.RamdiskLogs{Dir: filepath.Join(dir, "deploy")},
		ironic:  filepath.Join(dir, "pods/*_ironic-*/ironic/*.log"),
		id:      func(string) string { return ironicID },
		ask:     func(context.Context, string) ([]byte, error) { return nil, errors.New("its password is of-a-file-1") },
		redactor: func(ctx context.Context) (*supportbundle.Redactor, error) {
			return supportbundle.NewRedactor(ctx, dir, func() (*rest.Config, error) { return &rest.Config{Host: kubernetes.URL}, nil })
		},
	}, dir
}

func TestLogsOfANodeHaveNoSecrets(t *testing.T) {
	l, dir := newLogs(t)
	archive := filepath.Join(dir, "deploy", ironicID+"_metal3~node-1_2026-03-04-05-06-07.tar.gz")
	writeArchive(t, archive, "agent starts with of-a-file-1\nipa-agent-token=0123456789abcdef0123\nagent fails\n")
	writeArchive(t, strings.Replace(archive, "node-1", "node-2", 1), "of another node\n")
	ironic := filepath.Join(dir, "pods/metal3_ironic-x_uid/ironic")
	require.NoError(t, os.WriteFile(filepath.Join(ironic, "1.log"), []byte(
		"2026-03-04T05:06:08Z stderr F node "+ironicID+" logs in by of-a-Secret-2\n2026-03-04T05:06:09Z stderr F node another\n"+
			"2026-03-04T05:06:10Z stderr F 2026 1 INFO eventlet.wsgi.server [-] \"GET /v1/nodes/"+ironicID+"\"\n"), 0o600))
	before := filepath.Join(ironic, "0.log")
	require.NoError(t, os.WriteFile(before, []byte("2026-03-04T05:06:07Z stdout F "+ironicID+" is created\n"), 0o600))
	require.NoError(t, os.Chtimes(before, time.Time{}, time.Now().Add(-time.Hour)))

	got, err := l.read(t.Context(), "node-1")
	require.NoError(t, err)
	require.Len(t, got, 3)
	assert.Equal(t, []string{"ramdisk-2026-03-04-05-06-07", "ironic", "system"}, []string{got[0].ID, got[1].ID, got[2].ID})
	assert.Equal(t, time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), got[0].Time)
	assert.Equal(t, "== journal\nagent starts with [redacted]\nipa-agent-token=[redacted]\nagent fails\n", got[0].Log.Text)
	assert.Equal(t, ironicID+" is created\nnode "+ironicID+" logs in by [redacted]\n", got[1].Log.Text)
	assert.Equal(t, "its password is [redacted]", got[2].Error)

	l.ask = func(context.Context, string) ([]byte, error) { return []byte("booted\n"), nil }
	l.id = func(string) string { return "" }
	require.NoError(t, os.WriteFile(archive, []byte("torn"), 0o600))
	got, err = l.read(t.Context(), "node-1")
	require.NoError(t, err)
	assert.Contains(t, got[0].Error, "read ramdisk's log")
	assert.Equal(t, page.NodeLog{ID: "ironic", Title: got[1].Title}, got[1], "Ironic does not know the node")
	assert.Equal(t, "booted\n", got[2].Log.Text)
}

// TestNoLogIsShownWhoseSecretsAreNotKnown: the API server has Secrets that no file has.
func TestNoLogIsShownWhoseSecretsAreNotKnown(t *testing.T) {
	l, dir := newLogs(t)
	for _, connect := range []func() (*rest.Config, error){
		func() (*rest.Config, error) { return nil, errors.New("there is no API server") },
		func() (*rest.Config, error) { return &rest.Config{Host: "http://127.0.0.1:1"}, nil },
	} {
		l.redactor = func(ctx context.Context) (*supportbundle.Redactor, error) {
			return supportbundle.NewRedactor(ctx, dir, connect)
		}
		l.ask = nil // it panics
		got, err := l.read(t.Context(), "node-1")
		assert.Empty(t, got)
		assert.ErrorContains(t, err, "no log is shown, as its secrets cannot be hidden: learn secrets: ")
	}
}
