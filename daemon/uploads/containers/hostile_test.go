package containers

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
)

// raw is a file of a tar archive as no writer makes it: size is what its header says, and type may be any.
func raw(t *testing.T, name string, kind byte, size int64, content string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, Typeflag: tar.TypeReg, Format: tar.FormatGNU}))
	head := b.Bytes()[:512]
	head[156] = kind
	copy(head[148:156], "        ")
	sum := 0
	for _, c := range head {
		sum += int(c)
	}
	copy(head[148:156], fmt.Sprintf("%06o\x00 ", sum))
	b.WriteString(content)
	if n := b.Len() % 512; n > 0 {
		b.Write(make([]byte, 512-n))
	}
	return b.Bytes()
}

func regular(t *testing.T, name, content string) []byte {
	return raw(t, name, tar.TypeReg, int64(len(content)), content)
}

// link is a symbolic link.
func link(t *testing.T, name, to string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Linkname: to, Mode: 0o644, Typeflag: tar.TypeSymlink}))
	return b.Bytes()
}

// pax is a record of an extended header, with its own length before it.
func pax(key, value string) string {
	n := len(key) + len(value) + 3
	n += len(fmt.Sprint(n + len(fmt.Sprint(n))))
	return fmt.Sprintf("%d %s=%s\n", n, key, value)
}

// Whatever an archive says of itself, reading it takes little memory and ends with a sentence of few words.
func TestHostileArchives(t *testing.T) {
	names := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("registry.example/web:%d", i))
		}
		text, err := json.Marshal(all)
		require.NoError(t, err)
		return string(text)
	}
	manifest := func(config, layers, tags string) []byte {
		return regular(t, "manifest.json", `[{"Config":"`+config+`","RepoTags":`+tags+`,"Layers":`+layers+`}]`)
	}
	one := `["registry.example/web:1"]`
	spaces := strings.Repeat(" ", maxText+1)
	sparse := pax("GNU.sparse.major", "1") + pax("GNU.sparse.minor", "0") + pax("GNU.sparse.name", "manifest.json") + pax("GNU.sparse.realsize", "8796093022208")
	for _, c := range []struct {
		what  string
		files [][]byte
		says  string
	}{
		{"manifest without end", [][]byte{regular(t, "manifest.json", "["+spaces)}, "more than 1048576"},
		{"of two manifests the large one first", [][]byte{regular(t, "manifest.json", "["+spaces), manifest("c", "[]", one), regular(t, "c", "{}")}, "more than 1048576"},
		{"manifest behind a link", [][]byte{link(t, "manifest.json", "large"), regular(t, "large", "["+spaces)}, "more than 1048576"},
		{"links in a circle", [][]byte{link(t, "manifest.json", "again"), link(t, "again", "manifest.json")}, `the archive lacks "manifest.json"`},
		{"configuration without end", [][]byte{manifest("c", "[]", one), regular(t, "c", "{"+spaces)}, "more than 1048576"},
		{"configuration behind a link", [][]byte{manifest("c", "[]", one), link(t, "c", "large"), regular(t, "large", "{"+spaces)}, "more than 1048576"},
		{"index without end", [][]byte{regular(t, "index.json", "{"+spaces)}, "more than 1048576"},
		{"old sparse file", [][]byte{raw(t, "manifest.json", tar.TypeGNUSparse, 0, "")}, "is a sparse file"},
		{"new sparse file", [][]byte{raw(t, "x", tar.TypeXHeader, int64(len(sparse)), sparse), regular(t, "manifest.json", "1\n0\n0\n"+strings.Repeat("\x00", 506))}, "is a sparse file"},
		{"longer than the archive", [][]byte{raw(t, "manifest.json", tar.TypeReg, 1<<40, "[")}, `it ends within "manifest.json"; it is truncated`},
		{"layers without end", [][]byte{manifest("c", "["+strings.Repeat(`"l",`, maxLayers)+`"l"]`, one), regular(t, "c", "{}")}, "501 layers, more than 500"},
		{"one layer again and again", [][]byte{manifest("c", `["l"]`, one), regular(t, "c", `{"rootfs":{"diff_ids":["l"`+strings.Repeat(`,"l"`, maxLayers)+`]}}`)}, "501 layers, more than 500"},
		{"names without end", [][]byte{manifest("c", "[]", names(maxNames+1)), regular(t, "c", "{}")}, "501 names of images, more than 500"},
		{"name without end", [][]byte{manifest("c", "[]", `["registry.example/web:1","`+strings.Repeat("x", 900000)+`"]`), regular(t, "c", "{}")}, "a name of an image has 900000 bytes"},
		{"configuration with a name without end", [][]byte{manifest(strings.Repeat("x", 900000), "[]", one)}, "the archive lacks"},
		{"file name without end", [][]byte{raw(t, "x", tar.TypeXHeader, int64(len(pax("path", strings.Repeat("y", 90000)))), pax("path", strings.Repeat("y", 90000))), regular(t, "y", "y")}, "more than 4096 bytes"},
		{"two images of one name", [][]byte{regular(t, "manifest.json", `[{"Config":"c","RepoTags":`+one+`},{"Config":"d","RepoTags":`+one+`}]`), regular(t, "c", "{}"), regular(t, "d", `{"os":"x"}`)}, "is the name of two images of it"},
	} {
		b := newFixture(t)
		require.NoError(t, os.WriteFile(filepath.Join(b.dir, "bad"), append(bytes.Join(c.files, nil), make([]byte, 1024)...), 0o644))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.NoError(t, b.pusher.Sync(t.Context(), []artifact.Metadata{b.record("bad", "1", 0)}), c.what)
		runtime.ReadMemStats(&after)
		assert.Contains(t, b.told["bad"].NotServed, c.says, c.what)
		assert.LessOrEqual(t, len(b.told["bad"].NotServed), maxWhy+len("…"), c.what)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20), c.what)
	}
}

// An agent that is stopped does not read a large archive to its end, and takes nothing away.
func TestReadingEndsWithItsContext(t *testing.T) {
	b := newFixture(t)
	b.docker("web", map[string]v1.Image{"registry.example/web:1": image(t)})
	b.docker("other", map[string]v1.Image{"registry.example/other:1": image(t)})
	require.NoError(t, b.pusher.Sync(t.Context(), []artifact.Metadata{b.record("web", "1", 0)}))
	ctx, cancel := context.WithCancel(t.Context())
	all, err := open(ctx, filepath.Join(b.dir, "other"))
	require.NoError(t, err)
	i, err := all.images[0].image()
	require.NoError(t, err)
	cancel()
	_, err = i.Digest()
	assert.ErrorIs(t, err, context.Canceled)
	told := len(b.told)
	assert.ErrorIs(t, b.pusher.Sync(ctx, []artifact.Metadata{b.record("web", "2", 0), b.record("other", "1", 1)}), context.Canceled)
	assert.Len(t, b.told, told, "nothing is said of what was not read")
	assert.NotEmpty(t, b.has("registry.example/web:1"))
}
