package s3api_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheQuotaHoldsForPartsToo(t *testing.T) {
	l := newLab(t) // 40 MiB
	_, err := put(l, l.alpha(), "alpha/beta/large", noise(41<<20, 1), minio.PutObjectOptions{DisableMultipart: true})
	assert.Equal(t, "QuotaExceeded", code(err))

	core := minio.Core{Client: l.alpha()}
	id, err := core.NewMultipartUpload(t.Context(), "binary", "alpha/beta/parts", minio.PutObjectOptions{})
	require.NoError(t, err)
	send := func(number, size int) (minio.CompletePart, error) {
		p, err := core.PutObjectPart(t.Context(), "binary", "alpha/beta/parts", id, number, bytes.NewReader(noise(size, byte(number))), int64(size), minio.PutObjectPartOptions{})
		return minio.CompletePart{PartNumber: p.PartNumber, ETag: p.ETag}, err
	}
	two, err := send(2, 15<<20) // in any order, and again
	require.NoError(t, err)
	_, err = send(1, 5<<20)
	require.NoError(t, err)
	one, err := send(1, 16<<20)
	require.NoError(t, err)
	assert.EqualValues(t, 31<<20, l.parts.Octets("alpha"))
	_, err = send(3, 10<<20)
	assert.Equal(t, "QuotaExceeded", code(err))
	_, err = put(l, l.alpha(), "alpha/beta/more", noise(10<<20, 1), minio.PutObjectOptions{DisableMultipart: true})
	assert.Equal(t, "QuotaExceeded", code(err))

	_, err = core.CompleteMultipartUpload(t.Context(), "binary", "alpha/beta/parts", id, []minio.CompletePart{two, one}, minio.PutObjectOptions{})
	assert.Error(t, err, "not in order")
	_, err = core.CompleteMultipartUpload(t.Context(), "binary", "alpha/beta/parts", id, []minio.CompletePart{{PartNumber: 1, ETag: two.ETag}}, minio.PutObjectOptions{})
	assert.Equal(t, "InvalidPart", code(err))
	for range 2 { // a client whose answer was lost asks again
		done, err := core.CompleteMultipartUpload(t.Context(), "binary", "alpha/beta/parts", id, []minio.CompletePart{one, two}, minio.PutObjectOptions{})
		require.NoError(t, err)
		assert.Equal(t, digest(append(noise(16<<20, 1), noise(15<<20, 2)...)), done.ETag)
	}
	assert.EqualValues(t, 0, l.parts.Octets("alpha"))
}

func TestAnUploadByPartsOutlivesARestart(t *testing.T) {
	l := newLab(t)
	core := minio.Core{Client: l.alpha()}
	id, err := core.NewMultipartUpload(t.Context(), "binary", "alpha/beta/parts", minio.PutObjectOptions{})
	require.NoError(t, err)
	p, err := core.PutObjectPart(t.Context(), "binary", "alpha/beta/parts", id, 1, bytes.NewReader(noise(6<<20, 1)), 6<<20, minio.PutObjectPartOptions{})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(l.dir, "parts", id, "tmp-cut"), noise(99, 1), 0o600), "what a power cut left of part 2")
	require.NoError(t, os.Mkdir(filepath.Join(l.dir, "parts", "cut"), 0o700), "and of an upload that was being begun")

	l.stop()
	l.start()
	core = minio.Core{Client: l.alpha()}
	assert.EqualValues(t, 6<<20, l.parts.Octets("alpha"))
	assert.NoFileExists(t, filepath.Join(l.dir, "parts", id, "tmp-cut"))
	assert.NoDirExists(t, filepath.Join(l.dir, "parts", "cut"))
	parts, err := core.ListObjectParts(t.Context(), "binary", "alpha/beta/parts", id, 0, 10)
	require.NoError(t, err)
	require.Len(t, parts.ObjectParts, 1)
	uploads, err := core.ListMultipartUploads(t.Context(), "binary", "alpha/", "", "", "", 10)
	require.NoError(t, err)
	require.Len(t, uploads.Uploads, 1)
	assert.Equal(t, id, uploads.Uploads[0].UploadID)
	_, err = core.CompleteMultipartUpload(t.Context(), "binary", "alpha/beta/parts", id, []minio.CompletePart{{PartNumber: 1, ETag: p.ETag}}, minio.PutObjectOptions{})
	require.NoError(t, err)
	have, err := get(l, l.alpha(), "alpha/beta/parts", minio.GetObjectOptions{})
	require.NoError(t, err)
	assert.Equal(t, digest(noise(6<<20, 1)), digest(have))

	id, err = core.NewMultipartUpload(t.Context(), "binary", "alpha/beta/parts", minio.PutObjectOptions{})
	require.NoError(t, err)
	require.NoError(t, core.AbortMultipartUpload(t.Context(), "binary", "alpha/beta/parts", id))
	assert.Equal(t, "NoSuchUpload", code(core.AbortMultipartUpload(t.Context(), "binary", "alpha/beta/parts", id)))
	left, err := os.ReadDir(filepath.Join(l.dir, "parts"))
	require.NoError(t, err)
	assert.Empty(t, left)
}
