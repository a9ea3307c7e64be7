package extent_test

import (
	"bytes"
	"io"
	"io/fs"
	"testing"
	"testing/fstest"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/extent"
)

// whole is a file that shares two stretches with others.
const whole = "head|driver one|between|river tw|"

func kept(extents []extent.Extent) fstest.MapFS {
	return fstest.MapFS{
		"os/disk.raw.own":     {Data: []byte("head|\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00|between|\x00\x00\x00\x00\x00\x00\x00\x00|")},
		"os/disk.raw.extents": {Data: extent.Encode(extents)},
		"usr/a \"b\"\n":       {Data: []byte("driver one")},
		"usr/c":               {Data: []byte("a driver two")},
	}
}

var shared = []extent.Extent{
	{Offset: 5, Size: 10, Source: "usr/a \"b\"\n"},
	{Offset: 24, Size: 8, Source: "usr/c", At: 3},
}

func TestAFileIsPutTogether(t *testing.T) {
	f, err := extent.Open(kept(shared), "os/disk.raw")
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	assert.Equal(t, int64(len(whole)), info.Size())
	require.NoError(t, iotest.TestReader(f, []byte(whole)), "whatever is read, in whatever pieces")
	for offset := range int64(len(whole) + 2) {
		_, err := f.Seek(offset, io.SeekStart)
		require.NoError(t, err)
		text, err := io.ReadAll(iotest.OneByteReader(f))
		require.NoError(t, err)
		assert.Equal(t, whole[min(offset, int64(len(whole))):], string(text), "from byte %d on", offset)

		_, err = f.Seek(offset, io.SeekStart)
		require.NoError(t, err)
		var some bytes.Buffer
		for _, n := range []int64{1, 9, 100} {
			_, err := f.WriteN(&some, n)
			require.NoError(t, err)
		}
		assert.Equal(t, string(text), some.String(), "written from byte %d on", offset)
	}
}

func TestSize(t *testing.T) {
	root := kept(shared)
	root["whole"] = &fstest.MapFile{Data: []byte("123")}
	for name, want := range map[string]int64{"os/disk.raw": int64(len(whole)), "whole": 3} {
		size, err := extent.Size(root, name)
		require.NoError(t, err)
		assert.Equal(t, want, size)
	}
	_, err := extent.Size(root, "none")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestAFileThatIsKeptWhole(t *testing.T) {
	f, err := extent.Open(fstest.MapFS{"a": {Data: []byte(whole)}}, "a")
	require.NoError(t, err)
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	assert.Equal(t, whole, string(text))
	assert.Empty(t, f.Extents())
}

func TestWhatCannotBeOpened(t *testing.T) {
	_, err := extent.Open(fstest.MapFS{}, "a")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = extent.Open(fstest.MapFS{"a/b": {}}, "a")
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = extent.Open(fstest.MapFS{"a.own": {}}, "a")
	assert.ErrorIs(t, err, fs.ErrNotExist, "without its extents it would be read wrong")
}

func TestASourceThatIsMissingOrShort(t *testing.T) {
	root := kept(shared)
	root["usr/c"].Data = []byte("a drive")
	f, err := extent.Open(root, "os/disk.raw")
	require.NoError(t, err)
	text, err := io.ReadAll(f)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.ErrorContains(t, err, "too short")
	assert.Equal(t, whole[:28], string(text))
	_, err = f.Seek(26, io.SeekStart)
	require.NoError(t, err)
	n, err := f.WriteN(io.Discard, 5)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, int64(2), n)
	delete(root, "usr/a \"b\"\n")
	f, err = extent.Open(root, "os/disk.raw")
	require.NoError(t, err)
	_, err = io.ReadAll(f)
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestRubbishIsNotDecoded(t *testing.T) {
	for text, want := range map[string]string{
		"1 2 3":                            "not an offset",
		"x 2 3 \"a\"":                      "invalid syntax",
		"0 2 0 a":                          "invalid syntax",
		"0 0 0 \"a\"":                      "not a stretch",
		"0 1 -1 \"a\"":                     "not a stretch",
		"0 1 0 \"../a\"":                   "not a stretch",
		"0 1 0 \"/a\"":                     "not a stretch",
		"0 4 0 \"a\"\n3 1 0 \"b\"":         "extent 2: it overlaps",
		"9 2 0 \"a\"":                      "overlaps",
		"9 9223372036854775807 0 \"a\"":    "overlaps",
		"9223372036854775807 1 0 \"a\" \n": "invalid syntax",
	} {
		_, err := extent.Decode(bytes.NewBufferString(text), 10)
		assert.ErrorContains(t, err, want, "%q", text)
	}
	all, err := extent.Decode(bytes.NewReader(extent.Encode(shared)), int64(len(whole)))
	require.NoError(t, err)
	assert.Equal(t, shared, all)
}
