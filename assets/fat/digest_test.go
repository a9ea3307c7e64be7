package fat_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/fat"
)

// TestTheDigestIsOfAllThatIsInUse, and of nothing else: neither of what is free, nor of the one file that is left out.
func TestTheDigestIsOfAllThatIsInUse(t *testing.T) {
	sound := made(t)
	digest := func(b []byte) string {
		v, err := fat.Open(bytes.NewReader(b))
		require.NoError(t, err)
		sum, err := v.Digest("UNO")
		require.NoError(t, err)
		return sum
	}
	v, err := fat.Open(bytes.NewReader(sound))
	require.NoError(t, err)
	uno, err := v.Offset("uno")
	require.NoError(t, err)
	three, err := v.Offset("dir/three")
	require.NoError(t, err)
	want := digest(sound)

	for name, c := range map[string]struct {
		at      int64
		differs bool
	}{
		"code of the boot sector":      {100, true},
		"reserved space":               {1024, true},
		"upper bits of the FAT":        {32*512 + 4*2000 + 3, true},
		"a file":                       {three + 1024, true},
		"what is behind a file":        {three + 1535, true},
		"what is behind the file left": {uno + 1, true},
		"the file that is left out":    {uno, false},
		"what is free":                 {v.End(), false},
	} {
		changed := bytes.Clone(sound)
		changed[c.at] ^= 0x10
		assert.Equal(t, c.differs, digest(changed) != want, name)
	}

	whole, err := v.Digest("not there")
	require.NoError(t, err)
	assert.NotEqual(t, want, whole)
}
