package rootfs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/tree"
)

func TestNameVersion(t *testing.T) {
	tr := tree.New(1)
	assert.Error(t, nameVersion(tr))
	require.NoError(t, tr.File("/usr/lib/os-release", 0o644, tree.Bytes("ID=debian\n"), "base-files"))
	require.NoError(t, nameVersion(tr))
	text, err := tr.ReadFile("/usr/lib/os-release")
	require.NoError(t, err)
	assert.Regexp(t, `(?s)^ID=debian\n.*IMAGE_VERSION=\d`, string(text))
}
