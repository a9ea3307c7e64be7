package bootserver_test

import (
	"bytes"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAFileWithATail(t *testing.T) {
	b := newBed(t)
	since := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	file, tail := bytes.Repeat([]byte("file"), 3000), bytes.Repeat([]byte("tail"), 100)
	b.write(t, "initramfs", file)
	b.write(t, "kernel", file)
	b.write(t, "lost", file)
	b.Mounts[0].Since = since
	b.Mounts[0].Tail = func(name string, size int64) ([]byte, error) {
		assert.EqualValues(t, len(file), size)
		switch name {
		case "initramfs":
			return tail, nil
		case "lost":
			return nil, errors.New("no authority")
		default:
			return nil, nil
		}
	}

	whole := append(append([]byte{}, file...), tail...)
	w := b.get("/initramfs")
	require.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, whole, w.Body.Bytes())
	assert.Equal(t, "12400", w.Header().Get("Content-Length"))
	assert.Equal(t, since.Format(http.TimeFormat), w.Header().Get("Last-Modified"))

	for ranges, part := range map[string][]byte{
		"bytes=11990-12009": whole[11990:12010],
		"bytes=12000-":      tail,
		"bytes=-1":          tail[399:],
		"bytes=0-3":         whole[:4],
	} {
		w := b.get("/initramfs", "Range", ranges)
		assert.Equal(t, http.StatusPartialContent, w.Code, ranges)
		assert.Equal(t, part, w.Body.Bytes(), ranges)
	}

	w = b.get("/kernel")
	assert.Equal(t, file, w.Body.Bytes())
	assert.NotEqual(t, since.Format(http.TimeFormat), w.Header().Get("Last-Modified"))

	w = b.get("/lost")
	assert.Equal(t, http.StatusInternalServerError, w.Code, "half a ramdisk boots, and trusts nobody")
	assert.Contains(t, b.log.String(), "no authority")
}
