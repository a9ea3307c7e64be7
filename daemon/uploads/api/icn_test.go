package api_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// ICN's table of verbs, line by line and in the order in which it checked. Where an answer
// differs from ICN's, was says what ICN gave; docs/artifacts.md has the same list.
func TestICNVerbs(t *testing.T) {
	stores(t, func(t *testing.T, c place) {
		l := newLab(t, c, nil)
		image := noise(5000, 1)
		require.Equal(t, http.StatusCreated, l.announce("container_images", sample("open", len(image), nil)).status)
		require.Equal(t, http.StatusCreated, l.announce("container_images", sample("done", len(image), nil)).status)
		require.Equal(t, http.StatusNoContent, l.patch(base+"container_images/done", 0, image).status)

		multipartOf := func(parts ...string) (io.Reader, string) {
			var b strings.Builder
			for _, p := range parts {
				b.WriteString("--frontier\r\nContent-Disposition: form-data; " + p + "\r\n")
			}
			b.WriteString("--frontier--\r\n")
			return strings.NewReader(b.String()), "multipart/form-data; boundary=frontier"
		}
		const file = "name=\"file\"; filename=\"x\"\r\n\r\nx"
		meta := func(change func(map[string]any)) string {
			return "name=\"metadata\"\r\n\r\n" + sample("new", 5000, change)
		}
		for _, v := range []struct{ method, path string }{{"POST", base + "container_images"}, {"PUT", base + "container_images/open"}} {
			for _, line := range []struct {
				name   string
				parts  []string // nil: no multipart
				status int
				says   string
				was    string
			}{
				{"not multipart", nil, 422, "multipart", ""},
				{"no metadata", []string{file}, 400, "Empty body", ""},
				{"empty metadata", []string{"name=\"metadata\"\r\n\r\n", file}, 400, "Empty body", ""},
				{"bad JSON", []string{"name=\"metadata\"\r\n\r\n{", file}, 422, "no record", ""},
				{"wrong type", []string{meta(func(m map[string]any) { m["image_length"] = "5000" }), file}, 422, "image_length", ""},
				{"no name", []string{meta(func(m map[string]any) { delete(m, "image_name") }), file}, 400, "Missing name in " + v.method + " request", ""},
				{"no owner", []string{meta(func(m map[string]any) { m["owner"] = "" }), file}, 400, "Missing Owner in " + v.method + " request", ""},
				{"no length", []string{meta(func(m map[string]any) { m["image_length"] = 0 }), file}, 400, "Improper upload length", "PUT did not look"},
				{"negative length", []string{meta(func(m map[string]any) { m["image_length"] = -1 }), file}, 400, "Improper upload length", "not looked at"},
				{"no file part", []string{meta(nil)}, 422, "Unable to process file", ""},
				{"file without a name", []string{meta(nil), "name=\"file\"\r\n\r\nx"}, 422, "Unable to process file", ""},
				{"longer than S3 can", []string{meta(func(m map[string]any) { m["image_length"] = int64(6) << 40 }), file}, 413, "is the most", "not looked at"},
				{"another's owner", []string{meta(func(m map[string]any) { m["owner"] = "gamma" }), file}, 422, "gamma", "path ignored"},
				{"another's cluster", []string{meta(func(m map[string]any) { m["cluster_name"] = "gamma" }), file}, 422, "gamma", "path ignored"},
				{"odd digest", []string{meta(func(m map[string]any) { m["image_name"] = "open"; m["sha256"] = "abc" }), file}, 422, "64 hexadecimal", "no digest"},
				{"metadata too large", []string{meta(func(m map[string]any) { m["type"] = strings.Repeat("x", artifact.MaxMetadata) }), file}, 413, "bytes", "16 MiB in memory"},
				{"form too large", []string{meta(nil), "name=\"file\"; filename=\"x\"\r\n\r\n" + strings.Repeat("x", artifact.MaxForm)}, 413, "by PATCH", "read whole"},
			} {
				t.Run(v.method+" "+line.name, func(t *testing.T) {
					var body io.Reader = strings.NewReader(sample("new", 5000, nil))
					kind := "application/json"
					if line.parts != nil {
						body, kind = multipartOf(line.parts...)
					}
					got := l.do(v.method, v.path, body, "Content-Type", kind)
					assert.Equal(t, line.status, got.status, got.body)
					assert.Contains(t, got.problem(t).Detail, line.says)
				})
			}
		}
		for _, line := range []struct {
			name, method, path string
			status             int
			was                string
		}{
			{"POST of a name that is taken", "POST", base + "container_images", 409, "500"},
			{"GET of an unknown name", "GET", base + "container_images/none", 404, "500"},
			{"PUT of an unknown name", "PUT", base + "container_images/none", 404, "500"},
			{"DELETE of an unknown name", "DELETE", base + "container_images/none", 404, "500"},
			{"PATCH of an unknown name", "PATCH", base + "container_images/none", 404, "500"},
			{"PATCH of a complete upload", "PATCH", base + "container_images/done", 422, ""},
			{"PATCH without offset", "PATCH", base + "container_images/open", 400, ""},
			{"HEAD", "HEAD", base + "container_images/open", 200, "405"},
			{"GET of the collection", "GET", base + "container_images", 200, "405"},
			{"another collection", "GET", base + "other_images", 404, ""},
			{"no such route", "GET", artifact.Base + "/alpha", 404, ""},
			{"wrong verb", "DELETE", base + "container_images", 405, ""},
			{"wrong verb", "POST", base + "container_images/open", 405, ""},
			{"no verb", "OPTIONS", base + "container_images/open", 405, ""},
		} {
			t.Run(line.name, func(t *testing.T) {
				body, kind := form(sample("open", len(image), nil))
				got := l.do(line.method, line.path, body, "Content-Type", kind)
				assert.Equal(t, line.status, got.status, got.body)
			})
		}
		for _, line := range []struct {
			name   string
			offset string
			body   io.Reader
			status int
			says   string
			was    string
		}{
			{"no number", "five", bytes.NewReader(image), 400, "not a number", ""},
			{"a negative number", "-1", bytes.NewReader(image), 400, "not a number", ""},
			{"beyond what is there", "1", bytes.NewReader(image[1:]), 409, "Expected Offset 0, actual offset 1", ""},
			{"one byte too many", "0", bytes.NewReader(append(image, 'x')), 400, "Content length doesn't match upload length. Expected content length 5000 got 5001", ""},
			{"length not announced, too many", "0", struct{ io.Reader }{bytes.NewReader(append(image, 'x'))}, 400, "Content length doesn't match upload length. Expected content length 5000 got more", "500"},
			{"length not announced", "0", struct{ io.Reader }{bytes.NewReader(image[:10])}, 204, "", "500"},
			{"fewer than remain", "10", bytes.NewReader(image[10:20]), 204, "", "400"},
			{"nothing", "20", nil, 204, "", "400"},
			{"what remains", "20", bytes.NewReader(image[20:]), 204, "", ""},
			{"once more", "5000", bytes.NewReader(image), 422, "Upload already completed", ""},
		} {
			t.Run("PATCH "+line.name, func(t *testing.T) {
				got := l.do("PATCH", base+"container_images/open", line.body, "Upload-Offset", line.offset)
				assert.Equal(t, line.status, got.status, got.body)
				if line.status != http.StatusNoContent {
					assert.Contains(t, got.problem(t).Detail, line.says)
				}
			})
		}
		got := l.do("GET", base+"container_images/open/content", nil)
		assert.Equal(t, digest(image), digest([]byte(got.body)), "what the pieces make is what was sent")
	})
}

// The sample flow of ICN's README and end-to-end test.
func TestICNSampleFlow(t *testing.T) {
	stores(t, func(t *testing.T, c place) {
		l := newLab(t, c, nil)
		objects, err := c.open()
		require.NoError(t, err)
		for _, collection := range []string{"container_images", "binary_images"} {
			image := noise(1<<20+77, 7)
			path := base + collection + "/qwerty123"
			made := l.announce(collection, sample("qwerty123", len(image), nil))
			require.Equal(t, http.StatusCreated, made.status, made.body)
			assert.Equal(t, "application/json", made.header.Get("Content-Type"))
			echo := made.record(t)
			assert.Equal(t, "alpha", echo.Owner)
			assert.Equal(t, []map[string]string{{"image_record_name": "iuysdi1234", "repo": "icn", "tag": "2"}}, echo.Description.ImageRecords)

			got := l.do("GET", path, nil)
			require.Equal(t, http.StatusOK, got.status)
			assert.Equal(t, int64(0), got.record(t).ImageOffset)

			sent := l.patch(path, 0, image)
			require.Equal(t, http.StatusNoContent, sent.status, sent.body)
			assert.Equal(t, strconv.Itoa(len(image)), sent.header.Get("Upload-Offset"))

			o, err := objects.Stat(t.Context(), artifact.Collection(collection).Bucket(), "alpha/beta/qwerty123")
			require.NoError(t, err)
			assert.Equal(t, int64(len(image)), o.Size, "the object has exactly the bytes announced")

			again := l.patch(path, 0, image)
			assert.Equal(t, http.StatusUnprocessableEntity, again.status)
			assert.Equal(t, "Upload already completed", again.problem(t).Detail)

			r := l.do("GET", path, nil).record(t)
			assert.Equal(t, r.ImageLength, r.ImageOffset)
			assert.True(t, r.Complete)
			assert.Equal(t, digest(image), r.SHA256)

			assert.Equal(t, http.StatusNoContent, l.do("DELETE", path, nil).status)
			assert.Equal(t, http.StatusNotFound, l.do("GET", path, nil).status)
			_, err = objects.Stat(t.Context(), artifact.Collection(collection).Bucket(), "alpha/beta/qwerty123")
			assert.ErrorIs(t, err, blobs.ErrNotExist)
		}
	})
}

// ICN's interrupted variant: 29,718,177 octets, cut at 4,079,616.
func TestICNInterruptedUpload(t *testing.T) {
	stores(t, func(t *testing.T, c place) {
		l := newLab(t, c, nil)
		image, path := noise(29718177, 3), base+"container_images/asdf246"
		require.Equal(t, http.StatusCreated, l.announce("container_images", sample("asdf246", len(image), nil)).status)
		first := l.patch(path, 0, image[:4079616])
		require.Equal(t, http.StatusNoContent, first.status, first.body)
		assert.Equal(t, int64(4079616), l.do("GET", path, nil).record(t).ImageOffset)
		rest := l.patch(path, 4079616, image[4079616:])
		require.Equal(t, http.StatusNoContent, rest.status, rest.body)
		assert.Equal(t, "29718177", rest.header.Get("Upload-Offset"))
		assert.Equal(t, digest(image), l.do("GET", path, nil).record(t).SHA256)
	})
}
