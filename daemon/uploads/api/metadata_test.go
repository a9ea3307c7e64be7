package api_test

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
)

func (l *lab) bring(collection, name string, image []byte) {
	l.t.Helper()
	got := l.announce(collection, sample(name, len(image), nil))
	require.Equal(l.t, http.StatusCreated, got.status, got.body)
	got = l.patch(base+collection+"/"+name, 0, image)
	require.Equal(l.t, http.StatusNoContent, got.status, got.body)
}

func TestListPageByPage(t *testing.T) {
	l := newLab(t, inFolder(t), nil)
	empty := l.do("GET", base+"os_images", nil)
	assert.JSONEq(t, `{"items": []}`, empty.body)
	for i := range 7 {
		require.Equal(t, http.StatusCreated, l.announce("binary_images", sample(fmt.Sprintf("tool-%d", i), 10, nil)).status)
	}
	require.Equal(t, http.StatusCreated, l.announce("container_images", sample("elsewhere", 10, nil)).status)
	var names []string
	query := "?limit=3"
	for pages := 1; ; pages++ {
		got := l.do("GET", base+"binary_images"+query, nil)
		require.Equal(t, http.StatusOK, got.status, got.body)
		var page artifact.List
		decode(t, got.body, &page)
		for _, r := range page.Items {
			names = append(names, r.ImageName)
		}
		if page.Continue == "" {
			assert.Equal(t, 3, pages)
			break
		}
		query = "?limit=3&continue=" + page.Continue
	}
	assert.Equal(t, []string{"tool-0", "tool-1", "tool-2", "tool-3", "tool-4", "tool-5", "tool-6"}, names)
	for _, limit := range []string{"0", "-1", "1001", "x", "1e3", "99999999999999999999"} {
		got := l.do("GET", base+"binary_images?limit="+limit, nil)
		assert.Equal(t, http.StatusBadRequest, got.status, limit)
	}
}

// The same name is another artifact in another scope; ICN mixed them.
func TestOwnerClusterAndCollectionScopeNames(t *testing.T) {
	l := newLab(t, inFolder(t), nil)
	scopes := []struct{ owner, cluster, collection string }{
		{"alpha", "beta", "binary_images"}, {"alpha", "beta", "container_images"}, {"alpha", "gamma", "binary_images"}, {"delta", "beta", "binary_images"}}
	for i, s := range scopes {
		path := fmt.Sprintf("%s/%s/%s/%s", artifact.Base, s.owner, s.cluster, s.collection)
		body, kind := form(sample("same", 10, func(m map[string]any) { m["owner"], m["cluster_name"] = s.owner, s.cluster }))
		got := l.do("POST", path, body, "Content-Type", kind)
		require.Equal(t, http.StatusCreated, got.status, got.body)
		require.Equal(t, http.StatusNoContent, l.patch(path+"/same", 0, noise(10, uint64(i+1))).status)
	}
	for i, s := range scopes {
		got := l.do("GET", fmt.Sprintf("%s/%s/%s/%s/same/content", artifact.Base, s.owner, s.cluster, s.collection), nil)
		assert.Equal(t, string(noise(10, uint64(i+1))), got.body)
	}
}

func TestReplace(t *testing.T) {
	stores(t, func(t *testing.T, c place) {
		l := newLab(t, c, smallParts)
		image, path := noise(6<<20, 41), base+"container_images/app"
		l.bring("container_images", "app", image)
		got := l.put(path, sample("app", len(image), func(m map[string]any) { m["type"] = "other"; m["image_offset"] = 7 }))
		require.Equal(t, http.StatusCreated, got.status, got.body)
		r := got.record(t)
		assert.Equal(t, "other", r.Type)
		assert.True(t, r.Complete, "the same content needs not be sent again")
		assert.Equal(t, r.ImageLength, r.ImageOffset, "what a client says of the offset is passed over")

		next := noise(5<<20, 43)
		got = l.put(path, sample("app", len(image), func(m map[string]any) { m["sha256"] = digest(next); m["image_length"] = len(next) }))
		require.Equal(t, http.StatusCreated, got.status, got.body)
		assert.False(t, got.record(t).Complete)
		assert.Equal(t, "0", got.header.Get("Upload-Offset"))
		assertOnly(t, c, "container", ".firstlight/records/alpha/beta/app")
		l.restart()
		require.Equal(t, http.StatusNoContent, l.patch(path, 0, next).status)
		assert.Equal(t, digest(next), digest([]byte(l.do("GET", path+"/content", nil).body)))
	})
}

func TestContent(t *testing.T) {
	stores(t, func(t *testing.T, c place) {
		l := newLab(t, c, smallParts)
		image, path := noise(11<<20, 47), base+"binary_images/tool/content"
		l.bring("binary_images", "tool", image)
		tag := `"sha256:` + digest(image) + `"`
		for _, line := range []struct {
			name   string
			header []string
			status int
			from   int
			to     int
		}{
			{"all", nil, 200, 0, len(image)},
			{"first octet", []string{"Range", "bytes=0-0"}, 206, 0, 1},
			{"over a border of parts", []string{"Range", "bytes=5242870-5242889"}, 206, 5242870, 5242890},
			{"from somewhere on", []string{"Range", "bytes=11534000-"}, 206, 11534000, len(image)},
			{"the last ten", []string{"Range", "bytes=-10"}, 206, len(image) - 10, len(image)},
			{"beyond the end", []string{"Range", "bytes=11534336-"}, 416, 0, 0},
			{"nonsense", []string{"Range", "bytes=a-b"}, 416, 0, 0},
			{"many ranges are all", []string{"Range", "bytes=0-1,4-5,9-10"}, 200, 0, len(image)},
			{"the same as before", []string{"If-None-Match", tag}, 304, 0, 0},
			{"if it is the same", []string{"If-Match", tag, "Range", "bytes=1-2"}, 206, 1, 3},
			{"if it is another", []string{"If-Match", `"sha256:0"`}, 412, 0, 0},
			{"a range of another", []string{"If-Range", `"sha256:0"`, "Range", "bytes=1-2"}, 200, 0, len(image)},
		} {
			t.Run(line.name, func(t *testing.T) {
				got := l.do("GET", path, nil, line.header...)
				require.Equal(t, line.status, got.status, got.body)
				if line.status < 300 {
					assert.Equal(t, digest(image[line.from:line.to]), digest([]byte(got.body)))
					assert.Equal(t, tag, got.header.Get("ETag"))
				}
				head := l.do("HEAD", path, nil, line.header...)
				assert.Equal(t, line.status, head.status)
			})
		}
		head := l.do("HEAD", path, nil)
		assert.Equal(t, fmt.Sprint(len(image)), head.header.Get("Content-Length"))

		require.Equal(t, http.StatusCreated, l.announce("binary_images", sample("half", 100, nil)).status)
		require.Equal(t, http.StatusNoContent, l.patch(base+"binary_images/half", 0, image[:50]).status)
		got := l.do("GET", base+"binary_images/half/content", nil)
		assert.Equal(t, http.StatusConflict, got.status)
		assert.Contains(t, got.problem(t).Detail, "50 of 100 bytes")
	})
}

// disk is a raw disk of n octets with a boot signature.
func disk(n int) []byte {
	b := noise(n, 53)
	b[510], b[511] = 0x55, 0xaa
	return b
}

// qcow2 is a header of a disk of 10 GiB, in a file of n octets.
func qcow2(n int) []byte {
	b := make([]byte, n)
	be := binary.BigEndian
	copy(b, "QFI\xfb")
	be.PutUint32(b[4:], 3)
	be.PutUint32(b[20:], 16)
	be.PutUint64(b[24:], 10<<30)
	be.PutUint32(b[36:], 20)
	be.PutUint64(b[40:], 3<<16)
	be.PutUint64(b[48:], 1<<16)
	be.PutUint32(b[56:], 1)
	return b
}

func TestOSImagesAreLookedAt(t *testing.T) {
	stores(t, func(t *testing.T, c place) {
		l := newLab(t, c, nil)
		backed := qcow2(1 << 20)
		binary.BigEndian.PutUint64(backed[8:], 1024)
		for _, line := range []struct {
			name   string
			image  []byte
			format string
			size   int64
			says   string
		}{
			{"raw", disk(1 << 20), "raw", 1 << 20, ""},
			{"qcow2", qcow2(1 << 20), "qcow2", 10 << 30, ""},
			{"backed", backed, "", 0, "backing file"},
			{"packed", append([]byte("\x1f\x8b"), disk(1 << 20)[2:]...), "", 0, "gzip"},
			{"noise", noise(1<<20, 3), "", 0, "boot signature"},
			{"tiny", []byte("x"), "", 0, "less than a sector"},
		} {
			path := base + "os_images/" + line.name
			require.Equal(t, http.StatusCreated, l.announce("os_images", sample(line.name, len(line.image), nil)).status)
			if line.says != "" {
				// The beginning is enough: the answer comes before the rest is sent.
				got := l.patch(path, 0, line.image[:min(33<<10, len(line.image))])
				assert.Equal(t, http.StatusUnprocessableEntity, got.status, line.name)
				assert.Contains(t, got.problem(t).Detail, line.says)
				assert.Equal(t, "0", got.header.Get("Upload-Offset"))
				continue
			}
			require.Equal(t, http.StatusNoContent, l.patch(path, 0, line.image[:700]).status, "less than is looked at")
			l.restart()
			require.Equal(t, http.StatusNoContent, l.patch(path, 700, line.image[700:]).status)
			l.restart()
			r := l.do("GET", path, nil).record(t)
			assert.Equal(t, line.format, r.Format)
			assert.Equal(t, line.size, r.VirtualSize)
		}
	})
}

func TestOddNames(t *testing.T) {
	l := newLab(t, inFolder(t), nil)
	for _, name := range []string{"..", ".", "../x", "a/b", "a%2fb", "a\x00b", "größe", "日本", "-x", ".hidden", strings.Repeat("n", 129), "a b", "a\\b", "<script>", "a\nb", "%", "a?b", "a#b"} {
		got := l.announce("binary_images", sample(name, 10, nil))
		assert.Equal(t, http.StatusUnprocessableEntity, got.status, "%q: %s", name, got.body)
	}
	for path, status := range map[string]int{
		base + "binary_images/..%2f..%2fetc":    404,
		base + "binary_images/%2e%2e":           404, // what a client may make of it is no path of ours
		base + "binary_images/a%00b":            400,
		base + "binary_images/gr%C3%B6%C3%9Fe":  400,
		base + "binary_images/%FF":              400,
		base + "binary_images/a/../b":           404,
		base + "binary_images//b":               404,
		base + "binary_images/":                 404,
		artifact.Base + "/../v1":                404,
		artifact.Base + "/Alpha/beta/os_images": 400,
		artifact.Base + "/a%20b/beta/os_images": 400,
		artifact.Base + "/%00/beta/os_images":   400,
	} {
		for _, method := range []string{"GET", "DELETE", "PATCH"} {
			if strings.HasSuffix(path, "os_images") && method != "GET" {
				continue
			}
			got := l.do(method, path, nil)
			assert.Equal(t, status, got.status, "%s %s: %s", method, path, got.body)
		}
	}
}
