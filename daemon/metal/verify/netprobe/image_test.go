package netprobe

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestImage(t *testing.T) {
	qcow2 := make([]byte, 512)
	copy(qcow2, "QFI\xfb")
	binary.BigEndian.PutUint64(qcow2[24:], 3<<30)
	backed := bytes.Clone(qcow2)
	binary.BigEndian.PutUint64(backed[8:], 0x100)
	raw := make([]byte, 5000)
	files := map[string][]byte{"/qcow2": qcow2, "/backed": backed, "/raw": raw, "/empty": {}, "/short": qcow2[:10]}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := files[r.URL.Path]
		switch {
		case r.URL.Path == "/whole": // a server without ranges
			w.Header().Set("Content-Length", "5000")
			w.Write(raw)
		case !ok:
			http.NotFound(w, r)
		default:
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
		}
	}))
	for _, c := range []struct {
		path, format string
		bytes        int64
		err          string
	}{
		{"/qcow2", "qcow2", 3 << 30, ""},
		{"/raw", "raw", 5000, ""},
		{"/whole", "raw", 5000, ""},
		{"/backed", "qcow2", 0, "backing file"},
		{"/raw", "qcow2", 0, "no qcow2"},
		{"/qcow2", "raw", 0, "said to be raw"},
		{"/short", "qcow2", 0, "truncated"},
		{"/empty", "raw", 0, ""},
		{"/none", "raw", 0, "404"},
	} {
		t.Run(c.path+" "+c.format, func(t *testing.T) {
			n, err := ProbeImage(t.Context(), s.URL+c.path, c.format)
			if c.path == "/empty" {
				assert.Error(t, err)
				return
			}
			assert.Equal(t, c.bytes, n)
			if c.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.err)
			}
		})
	}
	s.Close()
	_, err := ProbeImage(t.Context(), s.URL+"/raw", "raw")
	assert.ErrorContains(t, err, "its server does not answer")
}
