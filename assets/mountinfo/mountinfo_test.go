package mountinfo

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUnescape(t *testing.T) {
	assert.Equal(t, "/media/a b\tc\nd\\040", Unescape(`/media/a\040b\011c\012d\134040`))
}

func TestIsMounted(t *testing.T) {
	list := filepath.Join(t.TempDir(), "mountinfo")
	_, err := IsMounted(list, "/run")
	require.ErrorIs(t, err, os.ErrNotExist)

	require.NoError(t, os.WriteFile(list, []byte("22 28 0:20 / /run rw,nosuid shared:5 - tmpfs tmpfs rw\n"+
		"30 28 8:3 / /run/a\\040b ro - vfat /dev/sda3 ro\n\n"), 0o600))
	for dir, want := range map[string]bool{"/run": true, "/run/a b": true, "/run/a": false, "/": false} {
		is, err := IsMounted(list, dir)
		require.NoError(t, err)
		assert.Equal(t, want, is, dir)
	}
}
