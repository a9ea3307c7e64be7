package s3test_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/daemon/uploads/blobs/s3"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3test"
)

// blocks is what the files of the bucket occupy, in octets.
func blocks(t *testing.T, g *s3test.Gateway) (n int64) {
	seen := map[uint64]bool{}
	require.NoError(t, filepath.WalkDir(g.Dir, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(p, &st); err != nil {
			return err
		}
		if !seen[st.Ino] {
			n += st.Blocks * 512
		}
		seen[st.Ino] = true
		return nil
	}))
	return n
}

func read(t *testing.T, s *s3.Client, length int64) []byte {
	body, err := s.Open(t.Context(), "binary", "a/b/c", 0, length)
	require.NoError(t, err)
	defer body.Close()
	data, err := io.ReadAll(body)
	require.NoError(t, err)
	return data
}

// Parts come in any order, and again; the file they were written into is the object.
func TestPartsAreWrittenWhereTheyBelong(t *testing.T) {
	g := s3test.NewGateway(t)
	s, err := s3.New(g.Config)
	require.NoError(t, err)
	require.NoError(t, s.MakeBucket(t.Context(), "binary"))
	id, err := s.Begin(t.Context(), "binary", "a/b/c", assembled())
	require.NoError(t, err)
	send := func(number, length int, fill byte) error {
		f, sum := part(t, length, fill)
		return s.PutPart(t.Context(), "binary", "a/b/c", id, number, f, int64(length), sum)
	}
	require.NoError(t, send(3, 1000, 3))
	require.NoError(t, send(1, s3.MinPart, 9))
	require.NoError(t, send(2, s3.MinPart, 2))
	require.NoError(t, send(1, s3.MinPart, 1), "in place of the first")
	assert.Error(t, send(4, s3.MinPart+1, 4), "longer than was said")
	files, err := filepath.Glob(filepath.Join(g.Dir, "binary", ".sgwtmp", "multipart", "*", id, "object"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	var before, after syscall.Stat_t
	require.NoError(t, syscall.Stat(files[0], &before))

	parts, err := s.Parts(t.Context(), "binary", "a/b/c", id)
	require.NoError(t, err)
	require.Len(t, parts, 3)
	assert.Error(t, s.Complete(t.Context(), "binary", "a/b/c", id, []s3.Part{parts[0], parts[2]}), "a part is lacking")
	require.NoError(t, s.Complete(t.Context(), "binary", "a/b/c", id, parts))
	want := bytes.Join([][]byte{bytes.Repeat([]byte{1}, s3.MinPart), bytes.Repeat([]byte{2}, s3.MinPart), bytes.Repeat([]byte{3}, 1000)}, nil)
	assert.True(t, bytes.Equal(want, read(t, s, int64(len(want)))))
	require.NoError(t, syscall.Stat(filepath.Join(g.Dir, "binary", "a/b/c"), &after))
	assert.Equal(t, before.Ino, after.Ino, "no octet was copied")
	assert.Empty(t, left(t, g))
	assert.Less(t, blocks(t, g), int64(len(want)+1<<20))
	o, err := s.Stat(t.Context(), "binary", "a/b/c")
	require.NoError(t, err)
	assert.Equal(t, int64(len(want)), o.Size)
	assert.Equal(t, "x", o.Meta["Serial"])
}

// A client may leave out the last parts.
func TestPartsThatAreLeftOutAreNotOfTheObject(t *testing.T) {
	g := s3test.NewGateway(t)
	s, err := s3.New(g.Config)
	require.NoError(t, err)
	id := uploadOf(t, s, "a/b/c", 3, assembled())
	parts, err := s.Parts(t.Context(), "binary", "a/b/c", id)
	require.NoError(t, err)
	wrong := append([]s3.Part{}, parts[:2]...)
	wrong[1].ETag = parts[0].ETag
	assert.Error(t, s.Complete(t.Context(), "binary", "a/b/c", id, wrong), "of other octets")
	again, err := s.Parts(t.Context(), "binary", "a/b/c", id)
	require.NoError(t, err)
	assert.Equal(t, parts, again, "what is refused changes nothing")
	require.NoError(t, s.Complete(t.Context(), "binary", "a/b/c", id, parts[:2]))
	o, err := s.Stat(t.Context(), "binary", "a/b/c")
	require.NoError(t, err)
	assert.Equal(t, int64(2*s3.MinPart), o.Size)
	assert.Empty(t, left(t, g))
}

// A part in the middle that is shorter than was said would leave a hole.
func TestShortPartIsNotTakenForAWholeOne(t *testing.T) {
	g := s3test.NewGateway(t)
	s, err := s3.New(g.Config)
	require.NoError(t, err)
	id := uploadOf(t, s, "a/b/c", 1, map[string]string{"Part-Size": fmt.Sprint(s3.MinPart + 1)})
	f, sum := part(t, 1000, 2)
	require.NoError(t, s.PutPart(t.Context(), "binary", "a/b/c", id, 2, f, 1000, sum))
	parts, err := s.Parts(t.Context(), "binary", "a/b/c", id)
	require.NoError(t, err)
	assert.Error(t, s.Complete(t.Context(), "binary", "a/b/c", id, parts))
	_, err = s.Stat(t.Context(), "binary", "a/b/c")
	assert.ErrorIs(t, err, s3.ErrNotExist)
}

// A store that was killed when the object had its name already ends the upload: what came for it
// afterwards would be written into the object.
func TestUploadThatBecameTheObjectIsEnded(t *testing.T) {
	g := s3test.NewGateway(t)
	s, err := s3.New(g.Config)
	require.NoError(t, err)
	id := uploadOf(t, s, "a/b/c", 2, assembled())
	found, err := filepath.Glob(filepath.Join(g.Dir, "binary", ".sgwtmp", "multipart", "*", id, "object"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.NoError(t, os.MkdirAll(filepath.Join(g.Dir, "binary", "a/b"), 0o755))
	require.NoError(t, os.Link(found[0], filepath.Join(g.Dir, "binary", "a/b/c")))
	f, sum := part(t, s3.MinPart, 7)
	assert.ErrorIs(t, s.PutPart(t.Context(), "binary", "a/b/c", id, 1, f, s3.MinPart, sum), s3.ErrNotExist)
	g.Kill()
	claim(t, g, id)
	require.NoError(t, g.Start(t.Context()))
	assert.ErrorIs(t, s.PutPart(t.Context(), "binary", "a/b/c", id, 1, f, s3.MinPart, sum), s3.ErrNotExist)
	want := append(bytes.Repeat([]byte{0}, s3.MinPart), bytes.Repeat([]byte{1}, s3.MinPart)...)
	assert.True(t, bytes.Equal(want, read(t, s, int64(len(want)))))
	assert.Empty(t, left(t, g))
}

// What the store has to copy needs room; without it the parts are kept.
func TestCompletionWithoutRoomKeepsTheParts(t *testing.T) {
	small := s3test.SmallDisk(t, "16m")
	g := s3test.NewGatewayIn(t, filepath.Join(small, "store"))
	s, err := s3.New(g.Config)
	require.NoError(t, err)
	id := upload(t, s)
	parts, err := s.Parts(t.Context(), "binary", "a/b/c", id)
	require.NoError(t, err)
	assert.ErrorIs(t, s.Complete(t.Context(), "binary", "a/b/c", id, parts), s3.ErrFull)
	require.NoError(t, unix.Mount("tmpfs", small, "tmpfs", unix.MS_REMOUNT, "size=32m"))
	again, err := s.Parts(t.Context(), "binary", "a/b/c", id)
	require.NoError(t, err)
	assert.Equal(t, parts, again)
	require.NoError(t, s.Complete(t.Context(), "binary", "a/b/c", id, again))
	assert.Equal(t, byte(1), read(t, s, 2*s3.MinPart)[s3.MinPart])
}
