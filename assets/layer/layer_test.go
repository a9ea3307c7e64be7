package layer_test

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/layer"
)

// archive is a tar with all that matters: empty and long files, links, long and odd names.
func archive(t *testing.T) (all []byte, files fstest.MapFS) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	files = fstest.MapFS{}
	put := func(h tar.Header, text string) {
		h.Size, h.ModTime = int64(len(text)), time.Unix(1700000000, 0)
		require.NoError(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, text)
		require.NoError(t, err)
	}
	for name, text := range map[string]string{
		"a": "one", "empty": "", "block": strings.Repeat("x", 512), "odd \"name\"\n": "two",
		"deep/" + strings.Repeat("long/", 40) + "file": strings.Repeat("three", 1000),
	} {
		put(tar.Header{Name: "./" + name, Typeflag: tar.TypeReg, Mode: 0o644, PAXRecords: map[string]string{"SCHILY.xattr.user.a": "b"}}, text)
		files["fs/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	put(tar.Header{Name: "./dir/", Typeflag: tar.TypeDir, Mode: 0o755}, "")
	put(tar.Header{Name: "./hard", Typeflag: tar.TypeLink, Linkname: "./a"}, "")
	put(tar.Header{Name: "./soft", Typeflag: tar.TypeSymlink, Linkname: "a"}, "")
	require.NoError(t, w.Close())
	return b.Bytes(), files
}

func TestAnArchiveIsReadAgainByteForByte(t *testing.T) {
	all, files := archive(t)
	headers, contents, err := layer.Split(bytes.NewReader(all))
	require.NoError(t, err)
	assert.Less(t, len(headers), len(all)-5512, "contents are in the headers")
	files[layer.Headers], files[layer.Contents] = &fstest.MapFile{Data: headers}, &fstest.MapFile{Data: contents}
	l, err := layer.Open(files)
	require.NoError(t, err)
	assert.Equal(t, int64(len(all)), l.Size())
	for _, offset := range []int64{0, 1, 511, 512, 513, 600, 1024, 3000, l.Size() - 1, l.Size(), l.Size() + 1} {
		r := l.Reader(offset)
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		assert.True(t, bytes.Equal(all[min(offset, l.Size()):], got), "from byte %d on", offset)
	}
}

func TestWhatIsMissingIsTold(t *testing.T) {
	all, files := archive(t)
	headers, contents, err := layer.Split(bytes.NewReader(all))
	require.NoError(t, err)
	files[layer.Headers], files[layer.Contents] = &fstest.MapFile{Data: headers}, &fstest.MapFile{Data: contents}
	l, err := layer.Open(files)
	require.NoError(t, err)
	files["fs/block"].Data = []byte("shorter")
	_, err = io.ReadAll(l.Reader(0))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.ErrorContains(t, err, "fs/block is 505 bytes short")
	delete(files, "fs/a")
	_, err = io.ReadAll(l.Reader(0))
	assert.Error(t, err)
}

func TestRubbishIsNoLayer(t *testing.T) {
	for contents, want := range map[string]string{
		"1 2":                           "not an offset",
		"x 2 \"a\"":                     "invalid syntax",
		"0 -1 \"a\"":                    "not a file below fs",
		"0 1 \"../a\"":                  "not a file below fs",
		"0 1 a":                         "invalid syntax",
		"9 1 \"a\"":                     "not that many headers",
		"0 4 \"a\"\n2 4 \"b\"":          "contents overlap",
		"0 1 \"a\"\n10 1 \"b\"":         "not that many headers",
		"9223372036854775807 1 \"a\"\n": "not that many headers",
	} {
		_, err := layer.Open(fstest.MapFS{layer.Headers: {Data: []byte("headers.")}, layer.Contents: {Data: []byte(contents)}})
		assert.ErrorContains(t, err, want, "%q", contents)
	}
	_, err := layer.Open(fstest.MapFS{})
	require.Error(t, err)
	_, _, err = layer.Split(strings.NewReader("this is no archive, however long it is" + strings.Repeat("x", 1000)))
	assert.Error(t, err)
}
