package sitesource

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/uploads/api/access"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
	"firstlight.dev/firstlight/daemon/uploads/s3api"
)

// store is an S3 server as an appliance has it, with TLS, and one user.
type store struct {
	t      *testing.T
	url    string
	ca     string
	client *minio.Client
	known  bool // the user's key is good
}

func (s *store) Find(context.Context, string) (s3api.Credential, bool, error) {
	return s3api.Credential{Secret: "key of fleet", Owner: "fleet", User: access.User{Name: "fleet"}}, s.known, nil
}

func (s *store) Authorize(context.Context, access.User, access.Request) (bool, error) {
	return true, nil
}

func newStore(t *testing.T) *store {
	s := &store{t: t, known: true}
	certificate := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	certificate.Close()
	s.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate().Raw}))

	log, dir := slog.New(slog.DiscardHandler), t.TempDir()
	parts := &s3api.Parts{Dir: filepath.Join(dir, "parts"), Expiry: time.Hour, Log: log}
	require.NoError(t, parts.Open())
	held, err := blobs.Open(t.Context(), blobs.Config{
		Backend: &blobs.Folder{Dir: filepath.Join(dir, "store")}, Scratch: dir, PartSize: blobs.MinPart, Staged: parts.Octets,
		Quota: func(string) int64 { return 40 << 20 }, Log: log,
	})
	require.NoError(t, err)
	server := s3api.New(s3api.Config{
		Listen: "127.0.0.1:0", TLS: &tls.Config{Certificates: certificate.TLS.Certificates}, Keys: s, Parts: parts,
		Store: func() *blobs.Store { return held }, Authorizer: s, Log: log, Audit: audit.NewLog(filepath.Join(dir, "audit.log"), log),
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended, ready := make(chan error, 1), make(chan net.Addr, 1)
	go func() { ended <- server.Run(ctx, func(a net.Addr) { ready <- a }) }()
	s.url = "https://" + (<-ready).String()
	t.Cleanup(func() { cancel(); assert.NoError(t, <-ended) })
	s.client, err = s.bucket().client()
	require.NoError(t, err)
	return s
}

func (s *store) bucket() Bucket {
	return Bucket{Endpoint: s.url, Region: "us-east-1", Name: "binary", AccessKey: "FLEET", SecretKey: "key of fleet", CA: s.ca}
}

func (s *store) put(name, text string) {
	s.t.Helper()
	_, err := s.client.PutObject(s.t.Context(), "binary", name, bytes.NewReader([]byte(text)), int64(len(text)), minio.PutObjectOptions{})
	require.NoError(s.t, err)
}

func (s *store) document(key, more string) string {
	ca := "        " + strings.ReplaceAll(strings.TrimSpace(s.ca), "\n", "\n        ")
	return fmt.Sprintf(`name: rack-a
appliance:
  follow:
    bucket:
      endpoint: %s
      bucket: binary
      accessKey: FLEET
      secretKey: %q
      ca: |
%s
    path: fleet/rack-a
%s`, s.url, key, ca, more)
}

// TestASiteDocumentComesFromABucket of another appliance: what is written there is followed, and what is removed goes.
func TestASiteDocumentComesFromABucket(t *testing.T) {
	s := newStore(t)
	m := newMachine(t, s.document("key of fleet", ""))
	assert.Contains(t, m.look(), "it has no file *.yaml in folder fleet/rack-a", "an empty bucket removes nothing")

	s.put("fleet/rack-a/site.yaml", s.document("[redacted]", "nodes:\n"+node(1)))
	s.put("fleet/rack-a/edge.yaml", provisioning)
	s.put("fleet/rack-b/site.yaml", "name: rack-b\n")
	assert.Contains(t, m.look(), ": current\n              applied: sha256:")
	require.Len(t, m.site().Nodes, 1)
	assert.Equal(t, "key of fleet", m.site().Appliance.Follow.Bucket.SecretKey.Reveal())
	assert.Equal(t, []string{"Provisioning default/edge"}, m.objects)
	first := m.Status().Revision

	s.put("fleet/rack-b/site.yaml", "name: rack-b\nnodes: []\n")
	m.look()
	assert.Equal(t, first, m.Status().Revision, "of the folder, not of the bucket")

	s.put("fleet/rack-a/site.yaml", s.document("[redacted]", "nodes:\n"+node(1)+node(2)))
	require.NoError(t, s.client.RemoveObject(t.Context(), "binary", "fleet/rack-a/edge.yaml", minio.RemoveObjectOptions{}))
	assert.Contains(t, m.look(), ": current")
	assert.NotEqual(t, first, m.Status().Revision)
	assert.Len(t, m.site().Nodes, 2)
	assert.Empty(t, m.objects)

	s.put("fleet/rack-a/big.yaml", "# "+strings.Repeat("x", maxFileSize))
	assert.Contains(t, m.look(), "big.yaml: an appliance reads 500 files of a source, each of 1024 KiB at most")
	assert.Equal(t, "refused", string(m.Status().State), "a person must take it out")
	require.NoError(t, s.client.RemoveObject(t.Context(), "binary", "fleet/rack-a/big.yaml", minio.RemoveObjectOptions{}))
	assert.Contains(t, m.look(), ": current")

	s.known = false
	said := m.look()
	assert.Contains(t, said, ": lost")
	assert.NotContains(t, said, "key of fleet")
	assert.Len(t, m.site().Nodes, 2)
}
