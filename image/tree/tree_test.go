package tree_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/u-root/u-root/pkg/cpio"

	"firstlight.dev/firstlight/image/tree"
)

const epoch = 1700000000

// archive writes a tar file of entries: name ending in / is a directory, "name -> target"
// a symbolic link, "name => target" a hard link, "name=text" a file.
func archive(t *testing.T, entries ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "a.tar")
	f, err := os.Create(file)
	require.NoError(t, err)
	defer f.Close()
	w := tar.NewWriter(f)
	for _, entry := range entries {
		h := &tar.Header{Name: "./" + entry, Mode: 0o755, Typeflag: tar.TypeDir}
		text := ""
		if name, target, ok := strings.Cut(entry, " -> "); ok {
			h = &tar.Header{Name: "./" + name, Mode: 0o777, Typeflag: tar.TypeSymlink, Linkname: target}
		} else if name, target, ok := strings.Cut(entry, " => "); ok {
			h = &tar.Header{Name: "./" + name, Mode: 0o644, Typeflag: tar.TypeLink, Linkname: "./" + target}
		} else if name, content, ok := strings.Cut(entry, "="); ok {
			text = content
			h = &tar.Header{Name: "./" + name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg,
				PAXRecords: map[string]string{"SCHILY.xattr.user.note": "kept"}}
		}
		require.NoError(t, w.WriteHeader(h))
		_, err := w.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return file
}

// list shows a tar archive, one line for each entry.
func list(t *testing.T, text []byte) string {
	t.Helper()
	var b strings.Builder
	r := tar.NewReader(bytes.NewReader(text))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return b.String()
		}
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		fmt.Fprintf(&b, "%c %04o %d:%d %s", h.Typeflag, h.Mode, h.Uid, h.Gid, h.Name)
		if h.Linkname != "" {
			fmt.Fprintf(&b, " -> %s", h.Linkname)
		}
		if len(content) > 0 {
			fmt.Fprintf(&b, " %q", content)
		}
		b.WriteString("\n")
	}
}

func written(t *testing.T, tr *tree.Tree) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, tr.WriteTar(&b))
	return b.Bytes()
}

func overlay(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func TestMergeKeepsContentsLinksAndAttributes(t *testing.T) {
	tr := tree.New(epoch)
	require.NoError(t, tr.AddTar(archive(t, "usr/", "usr/bin/", "bin -> usr/bin", "usr/bin/a=one", "usr/bin/b => usr/bin/a"), "packages"))
	dir := overlay(t, map[string]string{"etc/motd": "hello", "usr/lib/run": "#!"})
	require.NoError(t, os.Chmod(filepath.Join(dir, "usr/lib/run"), 0o700))
	require.NoError(t, tr.Overlay(dir, "/", nil))
	require.NoError(t, tr.Mkdir("/srv", "test"))
	require.NoError(t, tr.Link("/usr/bin/c", "a", "test"))

	text := written(t, tr)
	assert.Equal(t, `5 0755 0:0 ./
2 0777 0:0 ./bin -> usr/bin
5 0755 0:0 ./etc/
0 0644 0:0 ./etc/motd "hello"
5 0755 0:0 ./srv/
5 0755 0:0 ./usr/
5 0755 0:0 ./usr/bin/
0 0644 0:0 ./usr/bin/a "one"
1 0644 0:0 ./usr/bin/b -> ./usr/bin/a
2 0777 0:0 ./usr/bin/c -> a
5 0755 0:0 ./usr/lib/
0 0755 0:0 ./usr/lib/run "#!"
`, list(t, text))
	assert.Equal(t, "kept", tr.Get("usr/bin/b").Xattrs["user.note"])
	assert.Equal(t, text, written(t, tr), "the same tree gives the same bytes")

	file := filepath.Join(t.TempDir(), "again.tar")
	require.NoError(t, os.WriteFile(file, text, 0o644))
	again := tree.New(epoch)
	require.NoError(t, again.AddTar(file, "again"))
	assert.Equal(t, text, written(t, again), "reading what was written gives the same tree")
}

func TestCollisionsNameBothSides(t *testing.T) {
	base := func() *tree.Tree {
		tr := tree.New(epoch)
		require.NoError(t, tr.AddTar(archive(t, "etc/issue=x", "lib -> usr/lib", "usr/lib/",
			"var/lib/dpkg/info/base-files.list=/.\n/etc\n/etc/issue\n"), "packages of root appliance"))
		return tr
	}
	t.Run("overlay over a package's file", func(t *testing.T) {
		dir := overlay(t, map[string]string{"etc/issue": "mine"})
		err := base().Overlay(dir, "/", nil)
		var collision *tree.CollisionError
		require.ErrorAs(t, err, &collision)
		assert.EqualError(t, err, "/etc/issue: overlay "+dir+" collides with Debian package base-files; remove one, or list the path under replaces of the overlay that shall win")
	})
	t.Run("listed under replaces", func(t *testing.T) {
		tr := base()
		require.NoError(t, tr.Overlay(overlay(t, map[string]string{"etc/issue": "mine"}), "/", []string{"/etc/issue"}))
		text, err := tr.ReadFile("/etc/issue")
		require.NoError(t, err)
		assert.Equal(t, "mine", string(text))
	})
	t.Run("replaces nothing", func(t *testing.T) {
		err := base().Overlay(overlay(t, map[string]string{"etc/new": "mine"}), "/", []string{"/etc/new"})
		assert.ErrorContains(t, err, "replace /etc/new by overlay")
		err = base().Overlay(overlay(t, nil), "/", []string{"/etc/issue"})
		assert.ErrorContains(t, err, "replaces /etc/issue but has no such file")
	})
	t.Run("program over overlay", func(t *testing.T) {
		tr := base()
		require.NoError(t, tr.File("/usr/bin/x", 0o755, tree.Bytes("a"), "program x"))
		assert.ErrorContains(t, tr.File("/usr/bin/x", 0o755, tree.Bytes("b"), "program y"), "/usr/bin/x: program y collides with program x")
	})
	t.Run("below a symbolic link", func(t *testing.T) {
		assert.EqualError(t, base().File("/lib/x", 0o644, nil, "program x"), "put /lib/x from program x: /lib is a symbolic link to usr/lib; write below that")
	})
	t.Run("below a file", func(t *testing.T) {
		assert.ErrorContains(t, base().File("/etc/issue/x", 0o644, nil, "program x"), "/etc/issue: program x collides with Debian package base-files")
	})
}

func TestUnpackFollowsLinksToDirectories(t *testing.T) {
	tr := tree.New(epoch)
	require.NoError(t, tr.AddTar(archive(t, "usr/lib/", "lib -> usr/lib", "usr/lib/old=old"), "base"))
	require.NoError(t, tr.UnpackTar(archive(t, "lib/", "lib/old=new", "lib/sub/", "lib/sub/file=x"), "package p"))
	text, err := tr.ReadFile("/usr/lib/old")
	require.NoError(t, err)
	assert.Equal(t, "new", string(text))
	assert.NotNil(t, tr.Get("/usr/lib/sub/file"))
	assert.Equal(t, tree.Symlink, tr.Get("/lib").Type)
}

func TestEditIsGuarded(t *testing.T) {
	for _, c := range []struct{ name, text, want, err string }{
		{"once", "a old b", "a new b", ""},
		{"already mended", "a new b", "a new b", ""},
		{"twice", "old old", "", "the text to replace is there 2 times and not once"},
		{"neither", "other", "", "the text to replace is there 0 times and not once"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := tree.New(epoch)
			require.NoError(t, tr.File("/f", 0o640, tree.Bytes(c.text), "test"))
			err := tr.ReplaceText("/f", "old", "new")
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			text, err := tr.ReadFile("/f")
			require.NoError(t, err)
			assert.Equal(t, c.want, string(text))
			assert.Equal(t, int64(0o640), tr.Get("/f").Perm)
		})
	}
	assert.ErrorContains(t, tree.New(epoch).ReplaceText("/none", "a", "b"), "edit /none: file does not exist")
}

func TestRemove(t *testing.T) {
	files := []string{"a/b/c.pyc", "a/c.pyc", "a/keep", "d/x", "d/y/z"}
	for glob, left := range map[string]string{
		"/a/*.pyc":  "a a/b a/b/c.pyc a/keep d d/x d/y d/y/z",
		"/**/*.pyc": "a a/b a/keep d d/x d/y d/y/z",
		"/d/**":     "a a/b a/b/c.pyc a/c.pyc a/keep d",
		"/d/*":      "a a/b a/b/c.pyc a/c.pyc a/keep d",
		"/a":        "d d/x d/y d/y/z",
		"/none/*":   "a a/b a/b/c.pyc a/c.pyc a/keep d d/x d/y d/y/z",
	} {
		tr := tree.New(epoch)
		for _, f := range files {
			require.NoError(t, tr.File(f, 0o644, nil, "test"))
		}
		tr.Remove(glob)
		assert.Equal(t, left, strings.Join(tr.Paths("/**"), " "), glob)
	}
}

func TestFSReadsLikeAFileSystem(t *testing.T) {
	tr := tree.New(epoch)
	require.NoError(t, tr.AddTar(archive(t, "m/", "m/dep=x: y", "m/kernel/", "m/kernel/x.ko=elf"), "packages"))
	require.NoError(t, fstest.TestFS(tr.FS("/m"), "dep", "kernel/x.ko"))
	_, err := fs.ReadFile(tr.FS("/m"), "none")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestDirDigestSeesWhatOverlayCopies(t *testing.T) {
	dir := overlay(t, map[string]string{"a": "1"})
	first, err := tree.DirDigest(dir)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(filepath.Join(dir, "a"), 0o640))
	same, err := tree.DirDigest(dir)
	require.NoError(t, err)
	assert.Equal(t, first, same, "permissions that git does not keep do not matter")
	require.NoError(t, os.Chmod(filepath.Join(dir, "a"), 0o755))
	other, err := tree.DirDigest(dir)
	require.NoError(t, err)
	assert.NotEqual(t, first, other)
}

func TestCpioIsReadByOthers(t *testing.T) {
	tr := tree.New(epoch)
	require.NoError(t, tr.AddTar(archive(t, "bin/", "bin/a=one", "bin/b => bin/a", "bin/c -> a", "bin/long=12345"), "packages"))
	require.NoError(t, tr.Put("/dev/console", &tree.Node{Type: tree.Char, Perm: 0o600, Major: 5, Minor: 1}))
	var first, second bytes.Buffer
	require.NoError(t, tr.WriteCpio(&first))
	require.NoError(t, tr.WriteCpio(&second))
	assert.Equal(t, first.Bytes(), second.Bytes())

	records, err := cpio.ReadAllRecords(cpio.Newc.Reader(bytes.NewReader(first.Bytes())))
	require.NoError(t, err)
	var lines []string
	for _, r := range records {
		text := make([]byte, r.FileSize)
		if r.FileSize > 0 {
			_, err := r.ReadAt(text, 0)
			require.True(t, err == nil || err == io.EOF)
		}
		lines = append(lines, fmt.Sprintf("%s %o n%d %d,%d %q", r.Name, r.Mode, r.NLink, r.Rmajor, r.Rminor, text))
	}
	assert.Equal(t, []string{
		`. 40755 n1 0,0 ""`, `bin 40755 n1 0,0 ""`, `bin/a 100644 n2 0,0 "one"`, `bin/b 100644 n2 0,0 ""`,
		`bin/c 120777 n1 0,0 "a"`, `bin/long 100644 n1 0,0 "12345"`, `dev 40755 n1 0,0 ""`, `dev/console 20600 n1 5,1 ""`,
	}, lines)
}
