package netboot

import (
	"io"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/extent"
	"firstlight.dev/firstlight/pxe/bootfile"
)

func TestASystemIsServedWithWhatItShares(t *testing.T) {
	const dir = "usr/share/firstlight/images/os/"
	open := imageOpener(fstest.MapFS{
		dir + "debian.raw.own":     {Data: []byte("disk: \x00\x00\x00\x00\x00\x00")},
		dir + "debian.raw.extents": {Data: extent.Encode([]extent.Extent{{Offset: 6, Size: 6, Source: "usr/lib/driver"}})},
		dir + "own.raw":            {Data: []byte("whole")},
		dir + "torn.raw.own":       {Data: []byte("torn")},
		dir + "torn.raw.extents":   {Data: []byte("rubbish")},
		"usr/lib/driver":           {Data: []byte("driver")},
	})
	for name, want := range map[string]string{"debian.raw": "disk: driver", "own.raw": "whole"} {
		file, info, err := open(nil, name)
		require.NoError(t, err)
		text, err := io.ReadAll(file)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		assert.Equal(t, want, string(text))
		assert.Equal(t, int64(len(want)), info.Size())
	}
	for name, want := range map[string]error{"none.raw": bootfile.ErrNotFound, "../os": bootfile.ErrNotFile, "torn.raw": bootfile.ErrRead} {
		_, _, err := open(nil, name)
		assert.ErrorIs(t, err, want, name)
	}
}
