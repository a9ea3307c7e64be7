package s3api_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/uploads/api/access"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
	"firstlight.dev/firstlight/daemon/uploads/s3api"
)

// keys are those that are good now.
type keys struct {
	mu  sync.Mutex
	all map[string]s3api.Credential
}

func (k *keys) Find(_ context.Context, id string) (s3api.Credential, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, known := k.all[id]
	return c, known, nil
}

func (k *keys) revoke(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.all, id)
}

// rights are those that RBAC would give: whose, in which namespaces, which verbs.
type rights map[string]map[string]string

func (r rights) Authorize(_ context.Context, u access.User, q access.Request) (bool, error) {
	return q.Group == artifact.Group && strings.Contains(r[u.Name][q.Namespace], q.Verb), nil
}

// lab is a server, and what it is made of.
type lab struct {
	t      *testing.T
	dir    string
	keys   *keys
	url    string
	client *http.Transport
	plain  bool                                            // without TLS: clients sign each chunk then
	wrap   func(inner http.RoundTripper) http.RoundTripper // what a client sends
	config blobs.Config
	server *s3api.Server
	parts  *s3api.Parts
	store  *blobs.Store
	stop   func()
}

const secret = "a-secret-of-no-worth"

func user(owner string) string { return "system:serviceaccount:" + owner + ":uploader" }

func newLab(t *testing.T) *lab {
	l := &lab{t: t, dir: t.TempDir(), keys: &keys{all: map[string]s3api.Credential{}}}
	for _, owner := range []string{"alpha", "gamma"} {
		l.keys.all["KEY"+strings.ToUpper(owner)] = s3api.Credential{
			Secret: secret + owner, Owner: owner, User: access.User{Name: user(owner)},
		}
	}
	l.config = blobs.Config{
		Backend: &blobs.Folder{Dir: filepath.Join(l.dir, "store")}, Scratch: l.dir, PartSize: blobs.MinPart,
		Quota: func(string) int64 { return 40 << 20 }, Log: slog.New(slog.DiscardHandler),
	}
	l.start()
	t.Cleanup(func() { l.stop() })
	return l
}

// start starts a server over what is in the folder, as one that a power cut ended would.
func (l *lab) start() {
	made := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	made.Close()
	pool := made.Client().Transport.(*http.Transport)
	l.client = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool.TLSClientConfig.RootCAs, ServerName: "example.com"}}
	l.parts = &s3api.Parts{Dir: filepath.Join(l.dir, "parts"), Expiry: time.Hour, Log: slog.New(slog.DiscardHandler)}
	require.NoError(l.t, l.parts.Open())
	l.config.Staged = l.parts.Octets
	var err error
	l.store, err = blobs.Open(l.t.Context(), l.config)
	require.NoError(l.t, err)
	config := &tls.Config{Certificates: made.TLS.Certificates}
	if l.plain {
		config = nil
	}
	l.server = s3api.New(s3api.Config{
		Listen: "127.0.0.1:0", TLS: config, Keys: l.keys, Parts: l.parts,
		Store: func() *blobs.Store { return l.store },
		Authorizer: rights{
			user("alpha"): {"alpha": "create get list update patch delete", "shared": "get list"},
			user("gamma"): {"gamma": "create get list update patch delete"},
		},
		Log:   slog.New(slog.DiscardHandler),
		Audit: audit.NewLog(l.auditLog(), slog.New(slog.DiscardHandler)),
	})
	ctx, cancel := context.WithCancel(l.t.Context())
	ended, ready := make(chan error, 1), make(chan net.Addr, 1)
	go func() { ended <- l.server.Run(ctx, func(a net.Addr) { ready <- a }) }()
	l.url = (<-ready).String()
	l.stop = func() { cancel(); assert.NoError(l.t, <-ended) }
}

// auditLog is the file that says who changed what.
func (l *lab) auditLog() string { return filepath.Join(l.dir, "audit.log") }

// as is a client of somebody's: minio-go, which ICN's own program used.
func (l *lab) as(id, secret string) *minio.Client {
	var transport http.RoundTripper = l.client
	if l.wrap != nil {
		transport = l.wrap(transport)
	}
	c, err := minio.New(l.url, &minio.Options{
		Creds: credentials.NewStaticV4(id, secret, ""), Secure: !l.plain, Transport: transport, MaxRetries: 1,
		TrailingHeaders: true,
	})
	require.NoError(l.t, err)
	return c
}

func (l *lab) alpha() *minio.Client { return l.as("KEYALPHA", secret+"alpha") }

func noise(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>9) ^ byte(i*131) + seed
	}
	return b
}

func digest(b []byte) string { sum := sha256.Sum256(b); return hex.EncodeToString(sum[:]) }

func put(l *lab, c *minio.Client, name string, content []byte, o minio.PutObjectOptions) (minio.UploadInfo, error) {
	return c.PutObject(l.t.Context(), "binary", name, bytes.NewReader(content), int64(len(content)), o)
}

// get reads an object, or says why not.
func get(l *lab, c *minio.Client, name string, o minio.GetObjectOptions) ([]byte, error) {
	object, err := c.GetObject(l.t.Context(), "binary", name, o)
	require.NoError(l.t, err)
	defer object.Close()
	return io.ReadAll(object)
}

func code(err error) string { return minio.ToErrorResponse(err).Code }

func TestWhatIsStoredByS3IsAnArtifact(t *testing.T) {
	l := newLab(t)
	c, content := l.alpha(), noise(7<<20+3, 1)
	made, err := put(l, c, "alpha/beta/tool", content, minio.PutObjectOptions{DisableMultipart: true})
	require.NoError(t, err)
	assert.Equal(t, digest(content), made.ETag)

	k := artifact.Key{Collection: artifact.Binary, Owner: "alpha", Cluster: "beta", Name: "tool"}
	r, err := l.store.Get(k)
	require.NoError(t, err)
	assert.True(t, r.Complete)
	assert.Equal(t, digest(content), r.SHA256)
	assert.Equal(t, []artifact.Metadata{r}, l.store.Complete(artifact.Binary), "this is what is published")

	have, err := get(l, c, "alpha/beta/tool", minio.GetObjectOptions{})
	require.NoError(t, err)
	assert.Equal(t, content, have)
	o := minio.GetObjectOptions{}
	require.NoError(t, o.SetRange(1<<20, 1<<20+99))
	have, err = get(l, c, "alpha/beta/tool", o)
	require.NoError(t, err)
	assert.Equal(t, content[1<<20:1<<20+100], have)
	require.NoError(t, o.SetRange(8<<20, 9<<20))
	_, err = get(l, c, "alpha/beta/tool", o)
	assert.Equal(t, "InvalidRange", code(err))

	info, err := c.StatObject(t.Context(), "binary", "alpha/beta/tool", minio.StatObjectOptions{})
	require.NoError(t, err)
	assert.EqualValues(t, len(content), info.Size)
	_, err = c.StatObject(t.Context(), "binary", "alpha/beta/none", minio.StatObjectOptions{})
	assert.Equal(t, "NoSuchKey", code(err))
	require.NoError(t, c.RemoveObject(t.Context(), "binary", "alpha/beta/tool", minio.RemoveObjectOptions{}))
	_, err = l.store.Get(k)
	assert.Error(t, err)
}

func TestEveryWayInWhichABodyIsSigned(t *testing.T) {
	l := newLab(t)
	for _, l.plain = range []bool{false, true} {
		l.stop()
		l.start()
		storeInAllWays(t, l)
	}
}

func storeInAllWays(t *testing.T, l *lab) {
	content := noise(6<<20, 2)
	for name, o := range map[string]minio.PutObjectOptions{
		"trailer":       {Checksum: minio.ChecksumCRC32C, DisableMultipart: true},
		"crc64nvme":     {Checksum: minio.ChecksumCRC64NVME, DisableMultipart: true},
		"sha256":        {Checksum: minio.ChecksumSHA256, DisableMultipart: true},
		"md5":           {SendContentMd5: true, DisableMultipart: true},
		"payload":       {DisableContentSha256: false, DisableMultipart: true},
		"parts":         {PartSize: 5 << 20, NumThreads: 2, ConcurrentStreamParts: true},
		"parts and md5": {PartSize: 5 << 20, SendContentMd5: true},
	} {
		_, err := put(l, l.alpha(), "alpha/beta/tool", content, o)
		require.NoError(t, err, name)
		have, err := get(l, l.alpha(), "alpha/beta/tool", minio.GetObjectOptions{})
		require.NoError(t, err, name)
		assert.Equal(t, digest(content), digest(have), name)
	}
}

func TestAListHasPagesAndFolders(t *testing.T) {
	l := newLab(t)
	c := l.alpha()
	for _, name := range []string{"alpha/beta/one", "alpha/beta/two", "alpha/delta/three"} {
		_, err := put(l, c, name, []byte(name), minio.PutObjectOptions{})
		require.NoError(t, err)
	}
	_, err := put(l, l.as("KEYGAMMA", secret+"gamma"), "gamma/x/hidden", []byte("x"), minio.PutObjectOptions{})
	require.NoError(t, err)

	list := func(o minio.ListObjectsOptions) (names []string) {
		for object := range c.ListObjects(t.Context(), "binary", o) {
			require.NoError(t, object.Err)
			names = append(names, object.Key)
		}
		return names
	}
	all := []string{"alpha/beta/one", "alpha/beta/two", "alpha/delta/three"}
	assert.Equal(t, all, list(minio.ListObjectsOptions{Recursive: true}))
	assert.Equal(t, all, list(minio.ListObjectsOptions{Recursive: true, MaxKeys: 1}))
	assert.Equal(t, all, list(minio.ListObjectsOptions{Recursive: true, MaxKeys: 2, UseV1: true}))
	assert.Equal(t, []string{"alpha/"}, list(minio.ListObjectsOptions{}))
	assert.Equal(t, []string{"alpha/beta/", "alpha/delta/"}, list(minio.ListObjectsOptions{Prefix: "alpha/"}))
	assert.Equal(t, []string{"alpha/beta/", "alpha/delta/"}, list(minio.ListObjectsOptions{Prefix: "alpha/", MaxKeys: 1}))
	assert.Equal(t, all[1:2], list(minio.ListObjectsOptions{Prefix: "alpha/beta/t"}))

	buckets, err := c.ListBuckets(t.Context())
	require.NoError(t, err)
	var names []string
	for _, b := range buckets {
		names = append(names, b.Name)
	}
	assert.Equal(t, []string{"binary", "container", "operatingsystem"}, names)
	there, err := c.BucketExists(t.Context(), "elsewhere")
	require.NoError(t, err)
	assert.False(t, there)
}

func TestWhoMayWhat(t *testing.T) {
	l := newLab(t)
	content := []byte("content")
	refused := func(want string, c *minio.Client, name string) {
		t.Helper()
		_, err := put(l, c, name, content, minio.PutObjectOptions{})
		assert.Equal(t, want, code(err), err)
	}
	refused("SignatureDoesNotMatch", l.as("KEYALPHA", "another"), "alpha/beta/x")
	refused("InvalidAccessKeyId", l.as("NOBODY", secret), "alpha/beta/x")
	refused("AccessDenied", l.as("", ""), "alpha/beta/x")
	refused("AccessDenied", l.alpha(), "gamma/x/x")
	refused("AccessDenied", l.alpha(), "shared/x/x") // may be read there
	refused("InvalidArgument", l.alpha(), "x")
	refused("InvalidArgument", l.alpha(), "alpha/../gamma/x")

	_, err := put(l, l.as("KEYGAMMA", secret+"gamma"), "gamma/x/theirs", content, minio.PutObjectOptions{})
	require.NoError(t, err)
	_, err = get(l, l.alpha(), "gamma/x/theirs", minio.GetObjectOptions{})
	assert.Equal(t, "AccessDenied", code(err))
	err = l.alpha().RemoveObject(t.Context(), "binary", "gamma/x/theirs", minio.RemoveObjectOptions{})
	assert.Equal(t, "AccessDenied", code(err))
	for o := range l.alpha().ListObjects(t.Context(), "binary", minio.ListObjectsOptions{Prefix: "gamma/"}) {
		assert.Equal(t, "AccessDenied", code(o.Err))
	}
	for removed := range l.alpha().RemoveObjects(t.Context(), "binary", objects("gamma/x/theirs"), minio.RemoveObjectsOptions{}) {
		assert.Equal(t, "AccessDenied", code(removed.Err))
	}

	_, err = put(l, l.alpha(), "alpha/beta/x", content, minio.PutObjectOptions{})
	require.NoError(t, err)
	l.keys.revoke("KEYALPHA")
	_, err = get(l, l.alpha(), "alpha/beta/x", minio.GetObjectOptions{})
	assert.Equal(t, "InvalidAccessKeyId", code(err))

	var said []string
	entries, err := audit.Read([]string{l.auditLog()}, time.Time{})
	require.NoError(t, err)
	for _, e := range entries {
		who := strings.TrimPrefix(e.User, "system:serviceaccount:")
		said = append(said, fmt.Sprintf("%s %s %s %d", who, e.Verb, e.Object, e.Code))
	}
	assert.Equal(t, []string{
		"alpha:uploader PutObject gamma/binary_images.artifact.firstlight.dev/x 403",
		"alpha:uploader PutObject shared/binary_images.artifact.firstlight.dev/x 403",
		"alpha:uploader PutObject /binary/x 400",
		"alpha:uploader PutObject alpha/binary_images.artifact.firstlight.dev/gamma/x 400",
		"gamma:uploader PutObject gamma/binary_images.artifact.firstlight.dev/theirs 200",
		"alpha:uploader DeleteObject gamma/binary_images.artifact.firstlight.dev/theirs 403",
		"alpha:uploader DeleteObjects binary_images.artifact.firstlight.dev 200",
		"alpha:uploader DeleteObject gamma/binary_images.artifact.firstlight.dev/theirs 403",
		"alpha:uploader PutObject alpha/binary_images.artifact.firstlight.dev/x 200",
	}, said, "who changed what, or was not let to; strangers are not on it, nor is who reads")
}

func objects(names ...string) <-chan minio.ObjectInfo {
	all := make(chan minio.ObjectInfo, len(names))
	for _, n := range names {
		all <- minio.ObjectInfo{Key: n}
	}
	close(all)
	return all
}

// TestCurlSignsToo: the second client is nobody's library.
func TestCurlSignsToo(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl")
	}
	l := newLab(t)
	file := filepath.Join(t.TempDir(), "tool")
	content := noise(3<<20, 5)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	other := filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.WriteFile(other, noise(3<<20, 6), 0o600))
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	curl := func(args ...string) string {
		args = append([]string{"--silent", "--show-error", "--insecure", "--user", "KEYALPHA:" + secret + "alpha", "--aws-sigv4", "aws:amz:us-west-1:s3"}, args...)
		out, err := exec.Command("curl", args...).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	url := "https://" + l.url + "/container/alpha/beta/qwerty123"
	sum := "x-amz-content-sha256: " + digest(content)
	assert.Empty(t, curl("--header", sum, "--upload-file", file, url))
	assert.Contains(t, curl("--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "--head", url), fmt.Sprintf("Content-Length: %d", len(content)))
	assert.Contains(t, curl("--header", sum, "--upload-file", other, url), "BadDigest")
	assert.Equal(t, string(content[100:200]), curl("--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "--range", "100-199", url))
	assert.Contains(t, curl("--header", sum, "--header", "x-amz-checksum-crc32: AAAAAA==", "--upload-file", file, url), "BadDigest")
	assert.Contains(t, curl("--header", sum, "--header", "Content-MD5: 1B2M2Y8AsgTpgAmY7PhCfg==", "--upload-file", file, url), "BadDigest")
	assert.Contains(t, curl("--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "--upload-file", empty, url), "EntityTooSmall")
	assert.Contains(t, curl("--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD", url+"?acl="), "NotImplemented")
}
