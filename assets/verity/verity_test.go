package verity_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/verity"
)

const (
	salt = "00112233445566778899aabbccddeeff"
	uuid = "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c1fe"
)

// sealed returns blocks of made data with their tree, and the root hash.
func sealed(t *testing.T, blocks int) (path, root string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "data")
	b := make([]byte, blocks*verity.BlockSize)
	rand.New(rand.NewSource(1)).Read(b)
	require.NoError(t, os.WriteFile(path, b, 0o644))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	root, err = verity.Append(context.Background(), f, int64(len(b)), salt, uuid, verity.Known{})
	require.NoError(t, err)
	return path, root
}

func TestSealedIsSound(t *testing.T) {
	for _, blocks := range []int{1, 2, 127, 128, 129, 128*128 + 1} {
		path, root := sealed(t, blocks)
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		size := int64(blocks * verity.BlockSize)
		damage, err := verity.Check(context.Background(), bytes.NewReader(b), size, root)
		require.NoError(t, err)
		assert.Empty(t, damage, "%d blocks", blocks)
		s, err := verity.ParseSuper(b[size:])
		require.NoError(t, err)
		assert.EqualValues(t, len(b), size+s.TreeSize())
	}
}

func TestAnyFlippedByteIsNamed(t *testing.T) {
	const blocks = 300
	path, root := sealed(t, blocks)
	sound, err := os.ReadFile(path)
	require.NoError(t, err)
	const size = blocks * verity.BlockSize
	check := func(b []byte, root string) []verity.Damage {
		damage, err := verity.Check(context.Background(), bytes.NewReader(b), size, root)
		require.NoError(t, err)
		return damage
	}
	for _, at := range []int{0, 4095, 4096, 150*4096 + 17, size - 1} {
		b := bytes.Clone(sound)
		b[at] ^= 4
		assert.Equal(t, []verity.Damage{{Offset: int64(at / 4096 * 4096), Part: "data"}}, check(b, root))
	}
	top, leaf := size+4096, size+2*4096 // superblock, top, three leaves
	for _, c := range []struct {
		at   int
		want verity.Damage
	}{
		{top + 1, verity.Damage{Offset: int64(top), Part: "root hash"}},
		{top + 4095, verity.Damage{Offset: int64(top), Part: "root hash"}},
		{leaf + 4096 + 5, verity.Damage{Offset: int64(leaf + 4096), Part: "hash tree"}},
		{len(sound) - 1, verity.Damage{Offset: int64(leaf + 2*4096), Part: "hash tree"}},
	} {
		b := bytes.Clone(sound)
		b[c.at] ^= 4
		assert.Contains(t, check(b, root), c.want)
	}
	assert.Equal(t, "root hash", check(sound, root[:60]+"0000")[0].Part)
}

func TestSuperblockRefusals(t *testing.T) {
	path, root := sealed(t, 3)
	sound, err := os.ReadFile(path)
	require.NoError(t, err)
	const size = 3 * verity.BlockSize
	for _, c := range []struct {
		at   int
		want string
	}{
		{0, "no verity superblock"}, {8, "version"}, {12, "hash type"}, {32, "algorithm"},
		{64, "blocks of"}, {72, "it covers"}, {81, "salt"},
	} {
		b := bytes.Clone(sound)
		b[size+c.at] ^= 0x40
		_, err := verity.Check(context.Background(), bytes.NewReader(b), size, root)
		assert.ErrorContains(t, err, c.want)
	}
}

// TestVeritysetupAgrees asks the other implementation for its root hash, and to verify ours.
func TestVeritysetupAgrees(t *testing.T) {
	tool, err := exec.LookPath("veritysetup")
	if err != nil {
		if tool = "/usr/sbin/veritysetup"; !exists(tool) {
			t.Skip("veritysetup (cryptsetup-bin) is not installed; it is the independent implementation")
		}
	}
	for _, blocks := range []int{2, 128, 129, 20000} {
		path, root := sealed(t, blocks)
		out, err := exec.Command(tool, "verify", path, path, root, fmt.Sprintf("--hash-offset=%d", blocks*verity.BlockSize)).CombinedOutput()
		assert.NoError(t, err, "%d blocks: %s", blocks, out)
		ours, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, int64(blocks*verity.BlockSize)))
		out, err = exec.Command(tool, "format", path, path, "--salt="+salt, "--uuid="+uuid, fmt.Sprintf("--hash-offset=%d", blocks*verity.BlockSize)).CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Contains(t, string(out), root)
		theirs, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(ours, theirs), "%d blocks: superblock and tree must be the same bytes", blocks)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func FuzzParseSuper(f *testing.F) {
	f.Add(verity.Super{Blocks: 5, Salt: []byte{1, 2}}.Encode())
	f.Add([]byte("verity\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := verity.ParseSuper(b)
		if err == nil && (s.TreeSize() < verity.BlockSize || len(s.Salt) > 256) {
			t.Fatalf("accepted %+v", s)
		}
	})
}
