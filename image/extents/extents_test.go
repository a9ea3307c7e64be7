package extents_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/extent"
	"firstlight.dev/firstlight/image/extents"
	"firstlight.dev/firstlight/image/tree"
)

// noise is content that is like no other.
func noise(seed uint64, size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(b)
	return b
}

var (
	program = noise(1, 3*extents.BlockSize+100)
	driver  = noise(2, extents.BlockSize)
	small   = noise(3, extents.BlockSize-1)
	state   = noise(4, 2*extents.BlockSize)
)

func root(t *testing.T) *tree.Tree {
	t.Helper()
	r := tree.New(0)
	for p, text := range map[string][]byte{
		"/usr/bin/program": program, "/usr/lib/driver": driver, "/usr/lib/small": small, "/usr/lib/zeros": make([]byte, 9000),
		"/var/state": state, "/usr/lib/the-same": driver,
	} {
		require.NoError(t, r.File(p, 0o644, tree.Bytes(text), "test"))
	}
	return r
}

// find finds the extents of some content, and holds what is kept of it to what it was.
func find(t *testing.T, parts ...[]byte) []extent.Extent {
	t.Helper()
	whole := bytes.Join(parts, nil)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, whole, 0o644))
	all, err := extents.Find(root(t), []string{"/usr"}, file)
	require.NoError(t, err)

	kept := extents.Own{Path: file, Length: int64(len(whole)), Shared: all}
	r, err := kept.Open()
	require.NoError(t, err)
	own, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	for _, e := range all {
		assert.True(t, bytes.Equal(own[e.Offset:e.Offset+e.Size], make([]byte, e.Size)), "what is shared is kept")
	}
	f, err := extent.Open(fstest.MapFS{
		"file.own": {Data: own}, "file.extents": {Data: extent.Encode(all)},
		"usr/bin/program": {Data: program}, "usr/lib/driver": {Data: driver},
	}, "file")
	require.NoError(t, err)
	again, err := io.ReadAll(f)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(whole, again), "it is not what it was")
	return all
}

func TestFilesAreFoundWhereverTheyLie(t *testing.T) {
	size, block := int64(len(program)), int64(extents.BlockSize)
	assert.Equal(t, []extent.Extent{
		{Offset: 7, Size: size, Source: "usr/bin/program"},
		{Offset: 7 + size + 3, Size: block, Source: "usr/lib/driver"},
	}, find(t, []byte("magic: "), program, []byte("..."), driver, []byte("tail")))
	assert.Equal(t, []extent.Extent{{Size: size, Source: "usr/bin/program"}}, find(t, program), "the file is one of them")
	// As a disk has it whose file system put something into the middle.
	assert.Equal(t, []extent.Extent{
		{Size: 2 * block, Source: "usr/bin/program"},
		{Offset: 3 * block, Size: block + 100, Source: "usr/bin/program", At: 2 * block},
	}, find(t, program[:2*block], make([]byte, block), program[2*block:], make([]byte, block)))
	// Where it ends in the middle of a block.
	assert.Equal(t, []extent.Extent{{Size: block + 10, Source: "usr/bin/program"}}, find(t, program[:block+10]))
}

func TestWhatIsNotWorthAnExtent(t *testing.T) {
	assert.Empty(t, find(t))
	assert.Empty(t, find(t, small), "it is less than a block")
	assert.Empty(t, find(t, make([]byte, 20000)), "zeros are holes")
	assert.Empty(t, find(t, driver[:len(driver)-1]), "a part of a block")
	assert.Empty(t, find(t, state), "it is not below the directories, and may change")
	assert.Empty(t, find(t, noise(9, 50000)))
}
