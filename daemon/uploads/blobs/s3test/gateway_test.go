package s3test_test

import (
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/daemon/uploads/blobs/s3"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3test"
)

// part is a file of n octets and their CRC-32C.
func part(t *testing.T, n int, fill byte) (*os.File, uint32) {
	f, err := os.CreateTemp(t.TempDir(), "part")
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	data := make([]byte, n)
	for i := range data {
		data[i] = fill
	}
	_, err = f.Write(data)
	require.NoError(t, err)
	return f, crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
}

// upload begins an upload of two parts in a bucket of its own.
func upload(t *testing.T, s *s3.Client) (id string) { return uploadOf(t, s, "a/b/c", 2, plain()) }

// plain are the metadata of an upload whose parts the store copies; assembled of one whose parts it
// writes where they belong.
func plain() map[string]string { return map[string]string{"Serial": "x"} }
func assembled() map[string]string {
	return map[string]string{"Serial": "x", "Part-Size": fmt.Sprint(s3.MinPart)}
}

func uploadOf(t *testing.T, s *s3.Client, object string, parts int, meta map[string]string) (id string) {
	require.NoError(t, s.MakeBucket(t.Context(), "binary"))
	id, err := s.Begin(t.Context(), "binary", object, meta)
	require.NoError(t, err)
	for n := range parts {
		f, sum := part(t, s3.MinPart, byte(n))
		require.NoError(t, s.PutPart(t.Context(), "binary", object, id, n+1, f, s3.MinPart, sum))
	}
	return id
}

// ext4 keeps 4 KiB of attributes with a file. An object of a thousand parts must not need more than one
// of two.
func TestWhatIsKeptBesideAnObjectDoesNotGrowWithItsParts(t *testing.T) {
	g := s3test.NewGateway(t)
	s, err := s3.New(g.Config)
	require.NoError(t, err)
	attributes := func(parts int) (octets int) {
		object := fmt.Sprintf("of/%02d", parts)
		id := uploadOf(t, s, object, parts, assembled())
		all, err := s.Parts(t.Context(), "binary", object, id)
		require.NoError(t, err)
		require.NoError(t, s.Complete(t.Context(), "binary", object, id, all))
		file := filepath.Join(g.Dir, "binary", object)
		names := make([]byte, 64<<10)
		n, err := unix.Listxattr(file, names)
		require.NoError(t, err)
		for name := range strings.SplitSeq(strings.TrimRight(string(names[:n]), "\x00"), "\x00") {
			size, err := unix.Getxattr(file, name, nil)
			require.NoError(t, err, name)
			octets += len(name) + size
		}
		return octets
	}
	few, many := attributes(2), attributes(30)
	t.Logf("%d octets of attributes for 2 parts, %d for 30", few, many)
	assert.InDelta(t, few, many, 8, "the number of parts itself may be there")
}

// A store that was killed while it completed an upload must not say "done" for ever after
// to whoever asks again: the upload is there again, and can be completed.
func TestUploadWhoseCompletionWasKilledIsThereAgain(t *testing.T) {
	for name, meta := range map[string]map[string]string{"copied": plain(), "assembled": assembled()} {
		t.Run(name, func(t *testing.T) {
			g := s3test.NewGateway(t)
			s, err := s3.New(g.Config)
			require.NoError(t, err)
			id := uploadOf(t, s, "a/b/c", 2, meta)
			g.Kill()
			claim(t, g, id)
			require.NoError(t, g.Start(t.Context()))

			parts, err := s.Parts(t.Context(), "binary", "a/b/c", id)
			require.NoError(t, err)
			require.Len(t, parts, 2)
			require.NoError(t, s.Complete(t.Context(), "binary", "a/b/c", id, parts))
			o, err := s.Stat(t.Context(), "binary", "a/b/c")
			require.NoError(t, err)
			assert.Equal(t, int64(2*s3.MinPart), o.Size)
			assert.Equal(t, "x", o.Meta["Serial"])
			assert.Empty(t, left(t, g))
		})
	}
}

// claim does what the kill of a completion leaves: the upload's folder under another name.
func claim(t *testing.T, g *s3test.Gateway, id string) (folder string) {
	found, err := filepath.Glob(filepath.Join(g.Dir, "binary", ".sgwtmp", "multipart", "*", id))
	require.NoError(t, err)
	require.Len(t, found, 1, "the module keeps uploads elsewhere now; reopen in assets/build/versitygw must follow")
	folder = found[0] + ".0123456789abcdef-2.inprogress"
	require.NoError(t, os.Rename(found[0], folder))
	return folder
}

// left is what lies in the folder of uploads.
func left(t *testing.T, g *s3test.Gateway) (files []string) {
	require.NoError(t, filepath.WalkDir(filepath.Join(g.Dir, "binary", ".sgwtmp"), func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, p)
		}
		return err
	}))
	return files
}

func TestPartWhoseOctetsChangedOnTheWayIsRefused(t *testing.T) {
	g := s3test.NewGateway(t)
	s, err := s3.New(g.Config)
	require.NoError(t, err)
	id := upload(t, s)
	f, sum := part(t, s3.MinPart, 7)
	assert.ErrorContains(t, s.PutPart(t.Context(), "binary", "a/b/c", id, 3, f, s3.MinPart, sum+1), "store part 3")
	parts, err := s.Parts(t.Context(), "binary", "a/b/c", id)
	require.NoError(t, err)
	assert.Len(t, parts, 2)
}

// What was answered for is on the medium: data before the name, the name before the answer.
func TestWritesAreSyncedBeforeTheyAreAnswered(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("no strace; make deps installs it")
	}
	for name, meta := range map[string]map[string]string{"copied": plain(), "assembled": assembled()} {
		t.Run(name, func(t *testing.T) { writesAreSynced(t, strace, meta) })
	}
}

func writesAreSynced(t *testing.T, strace string, meta map[string]string) {
	g := s3test.NewGateway(t)
	log := filepath.Join(t.TempDir(), "trace")
	tracer := exec.Command(strace, "-f", "-tt", "-y", "-e", "trace=fsync,fdatasync,linkat,renameat,renameat2,write,copy_file_range", "-e", "signal=none", "-s", "60", "-o", log, "-p", fmt.Sprint(g.Pid()))
	said, err := tracer.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, tracer.Start())
	attached := make([]byte, 200)
	n, _ := said.Read(attached)
	if !strings.Contains(string(attached[:n]), "attached") {
		_ = tracer.Wait()
		t.Skipf("strace may not look at a process here: %s", attached[:n])
	}
	s, err := s3.New(g.Config)
	require.NoError(t, err)
	id := uploadOf(t, s, "a/b/c", 2, meta)
	parts, err := s.Parts(t.Context(), "binary", "a/b/c", id)
	require.NoError(t, err)
	require.NoError(t, s.Complete(t.Context(), "binary", "a/b/c", id, parts))
	require.NoError(t, s.Put(t.Context(), "binary", "small", []byte("x")))
	require.NoError(t, s.Put(t.Context(), "binary", "small", []byte("y"))) // in place of the first
	require.NoError(t, tracer.Process.Signal(os.Interrupt))
	_ = tracer.Wait() // 130, by the signal

	text, err := os.ReadFile(log)
	require.NoError(t, err)
	// One letter per call: d data synced, n name given, f folder synced, a answer sent.
	var order strings.Builder
	for line := range strings.Lines(string(text)) {
		switch {
		case regexp.MustCompile(`sync\(\d+<[^>]*(\(deleted\)|#\d+|/object)[^>]*>`).MatchString(line):
			order.WriteByte('d')
		case strings.Contains(line, "linkat(") && strings.Contains(line, "AT_SYMLINK_FOLLOW") && !strings.Contains(line, "EEXIST"), strings.Contains(line, "sgwtmp") && strings.Contains(line, "renameat("):
			order.WriteByte('n')
		case strings.Contains(line, "fsync("):
			order.WriteByte('f')
		case strings.Contains(line, "HTTP/1.1 200"):
			order.WriteByte('a')
		}
	}
	// Two parts, the whole object, two small ones; between them answers that change nothing.
	assert.Len(t, regexp.MustCompile(`dn+f+a`).FindAllString(order.String(), -1), 5, "%s\n%s", &order, text)
	assert.NotRegexp(t, `(^|[^d])n+f*a`, regexp.MustCompile(`n+`).ReplaceAllString(order.String(), "n"), "no name without data that is synced")
}
