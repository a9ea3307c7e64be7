package stickupdate

import (
	"crypto/x509"
	"encoding/hex"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/assets/verity"
	"firstlight.dev/firstlight/image/disk/disktest"
	"firstlight.dev/firstlight/image/owner/ownertest"
)

// stretch is a part of a file.
type stretch struct {
	io.ReaderAt
	io.WriterAt
}

// otherVersion is an image as a version of its own, of which every byte of the root differs but for its head.
func otherVersion(t *testing.T, image, version string, mask byte) string {
	t.Helper()
	path := disktest.CopyImage(t, image)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	table, err := gpt.ReadPrimary(f)
	require.NoError(t, err)
	p, ok := table.Find(stick.PartitionRootA)
	require.True(t, ok)
	root := stretch{io.NewSectionReader(f, p.Offset(), p.Size()), io.NewOffsetWriter(f, p.Offset())}
	size, err := rootSize(root)
	require.NoError(t, err)
	head := make([]byte, verity.BlockSize)
	_, err = root.ReadAt(head, size.data)
	require.NoError(t, err)
	super, err := verity.ParseSuper(head)
	require.NoError(t, err)

	const superblock = 96 // of squashfs
	buf := make([]byte, 1<<20)
	for at := int64(superblock); at < size.data; at += int64(len(buf)) {
		b := buf[:min(int64(len(buf)), size.data-at)]
		_, err := root.ReadAt(b, at)
		require.NoError(t, err)
		for i := range b {
			b[i] ^= mask
		}
		_, err = root.WriteAt(b, at)
		require.NoError(t, err)
	}
	salt, uuid := hex.EncodeToString(super.Salt), hex.EncodeToString(super.UUID[:])
	hash, err := verity.Append(t.Context(), root, size.data, salt, uuid, verity.Known{})
	require.NoError(t, err)

	disktest.ChangeConfig(t, path, func(c *stick.SlotConfig) { c.Version, c.RootHash = version, hash })
	return path
}

// TestThirtyPowerCutsOnTheBuiltImage is TestThirtyPowerCuts with the image that was built, signed by an owner: after
// each cut the slot that is started is also one that this owner's firmware and GRUB start.
func TestThirtyPowerCutsOnTheBuiltImage(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "qemu-all") {
		t.Skip("writes some 35 GB: needs a built image and FIRSTLIGHT_TEST=qemu-all")
	}
	image := os.Getenv("FIRSTLIGHT_IMAGE")
	if image == "" {
		image = "../../../build/firstlight.img"
	}
	keys := ownertest.NewKeys(t)
	paths := []string{ownertest.Sign(t, keys, image)}
	for version, mask := range map[string]byte{"98.0.0": 0x55, "99.0.0": 0xaa} {
		other := otherVersion(t, image, version, mask)
		paths = append(paths, ownertest.Sign(t, keys, other))
		require.NoError(t, os.Remove(other))
	}

	l := newLife(t, seed(t), []*x509.Certificate{keys.DB.Certificate}, paths...)
	l.cutAtRandom(30)
}
