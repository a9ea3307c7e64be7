package s3api_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tamper changes what a client sends, after it was signed.
type tamper struct {
	http.RoundTripper
	how func(body []byte) []byte
}

func (c tamper) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = c.how(body)
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return c.RoundTripper.RoundTrip(r)
}

func TestABodyThatWasChangedLeavesTheOldObject(t *testing.T) {
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b[(at+len(b))%len(b)] ^= 1; return b }
	}
	for _, c := range []struct {
		name   string
		secure bool
		o      minio.PutObjectOptions
		how    func([]byte) []byte
		want   string
	}{
		{"a chunk", false, minio.PutObjectOptions{}, flip(3 << 20), "SignatureDoesNotMatch"},
		{"the last chunk's signature", false, minio.PutObjectOptions{}, flip(-6), "SignatureDoesNotMatch"},
		{"a trailer", false, minio.PutObjectOptions{Checksum: minio.ChecksumCRC32C}, flip(-80), "SignatureDoesNotMatch"},
		{"with a trailer", true, minio.PutObjectOptions{Checksum: minio.ChecksumCRC32C}, flip(3 << 20), "BadDigest"},
		{"with an MD5", true, minio.PutObjectOptions{SendContentMd5: true}, flip(3 << 20), "BadDigest"},
		{"cut within a chunk", false, minio.PutObjectOptions{}, func(b []byte) []byte { return b[:3<<20] }, "IncompleteBody"},
		{"cut before the end", true, minio.PutObjectOptions{Checksum: minio.ChecksumCRC32C}, func(b []byte) []byte { return b[:4<<20+9] }, "IncompleteBody"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			if !c.secure {
				l.stop()
				l.plain = true
				l.start()
			}
			old := noise(4<<20, 1)
			_, err := put(l, l.alpha(), "alpha/beta/tool", old, minio.PutObjectOptions{})
			require.NoError(t, err)
			l.wrap = func(inner http.RoundTripper) http.RoundTripper { return tamper{inner, c.how} }
			c.o.DisableMultipart = true
			_, err = put(l, l.alpha(), "alpha/beta/tool", noise(4<<20, 2), c.o)
			assert.Equal(t, c.want, code(err), err)
			l.wrap = nil
			have, err := get(l, l.alpha(), "alpha/beta/tool", minio.GetObjectOptions{})
			require.NoError(t, err)
			assert.Equal(t, digest(old), digest(have))
		})
	}
}
