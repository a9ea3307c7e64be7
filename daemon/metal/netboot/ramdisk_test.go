package netboot

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe/bootfile"
	"firstlight.dev/firstlight/pxe/concat"
)

func TestARamdiskIsServedWithItsTail(t *testing.T) {
	since := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	file, tail := bytes.Repeat([]byte("file"), 3000), bytes.Repeat([]byte("tail"), 100)
	root := fstest.MapFS{
		relative(ramdiskDir) + "/initramfs": {Data: file},
		relative(ramdiskDir) + "/kernel":    {Data: file},
		relative(ramdiskDir) + "/lost":      {Data: file},
	}
	open := ramdiskOpener(root, func(name string, size int64) ([]byte, error) {
		assert.EqualValues(t, len(file), size)
		switch name {
		case "initramfs":
			return tail, nil
		case "lost":
			return nil, errors.New("no authority")
		default:
			return nil, nil
		}
	}, since)

	whole := append(append([]byte{}, file...), tail...)
	f, info, err := open(nil, "initramfs")
	require.NoError(t, err)
	defer f.Close()
	assert.EqualValues(t, len(whole), info.Size())
	assert.Equal(t, since, info.ModTime())
	size, err := f.Seek(0, io.SeekEnd)
	require.NoError(t, err)
	assert.EqualValues(t, len(whole), size)

	for _, from := range []int64{0, 11990, 12000, 12399, 12400} {
		_, err := f.Seek(from, io.SeekStart)
		require.NoError(t, err)
		got, err := io.ReadAll(f)
		require.NoError(t, err)
		assert.Equal(t, whole[from:], got, "from byte %d", from)

		_, err = f.Seek(from, io.SeekStart)
		require.NoError(t, err)
		var sent bytes.Buffer
		n, err := f.(*concat.File).WriteN(&sent, 200)
		require.NoError(t, err)
		assert.Equal(t, whole[from:min(from+200, size)], append([]byte{}, sent.Bytes()...), "from byte %d", from)
		assert.EqualValues(t, sent.Len(), n)
	}

	tail = []byte("another authority")
	f, info, err = open(nil, "initramfs")
	require.NoError(t, err)
	defer f.Close()
	assert.EqualValues(t, len(file)+len(tail), info.Size())
	assert.NotEqual(t, since, info.ModTime(), "who has half of the former one goes on with the other half of this one")

	f, info, err = open(nil, "kernel")
	require.NoError(t, err)
	defer f.Close()
	got, err := io.ReadAll(f)
	require.NoError(t, err)
	assert.Equal(t, file, got)
	assert.EqualValues(t, len(file), info.Size())

	_, _, err = open(nil, "lost")
	assert.ErrorIs(t, err, bootfile.ErrRead, "a ramdisk without its tail boots, and trusts nobody")
	_, _, err = open(nil, "other")
	assert.ErrorIs(t, err, bootfile.ErrNotFound)
}
