package packages

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/extent"
)

func greeter() (Build, fstest.MapFS) {
	return Build{
		Control:   "Package: greeter\nVersion: 1\nArchitecture: amd64\nMaintainer: nobody\nDescription: greets\n",
		Scripts:   map[string]string{"prerm": "#!/bin/sh\n", "postinst": "#!/bin/sh\n"},
		Conffiles: []string{"/etc/greeter"},
		Files: []File{
			{Path: "/usr/lib/odd", Mode: 0o755, Source: "opt/odd"},
			{Path: "/usr/bin/greeter", Link: "../lib/odd"},
			{Path: "/etc/greeter", Mode: 0o644, Data: []byte("hello\n")},
			{Path: "/usr/lib/even", Mode: 0o755, Source: "opt/even"},
		},
		Time: time.Unix(1_700_000_000, 0),
	}, fstest.MapFS{"opt/odd": {Data: bytes.Repeat([]byte("odd"), 777)}, "opt/even": {Data: make([]byte, 1024)}}
}

// whole puts a package together.
func whole(t *testing.T, b *Built, root fstest.MapFS) []byte {
	t.Helper()
	out := make([]byte, b.Size)
	var kept int64
	require.NoError(t, b.Own(func(data []byte, at int64) error {
		kept += int64(copy(out[at:], data))
		return nil
	}))
	for _, e := range b.Extents {
		kept += int64(copy(out[e.Offset:], root[e.Source].Data))
	}
	assert.Equal(t, b.Size, kept, "stretches overlap, or are missing")
	return out
}

// Debian's own tools read what is built, and the stanza says of it what is so.
func TestAPackageIsBuilt(t *testing.T) {
	build, root := greeter()
	built, err := build.Build(root)
	require.NoError(t, err)
	assert.Equal(t, "greeter_1_amd64.deb", built.Name)
	assert.Equal(t, []string{"opt/even", "opt/odd"}, sources(built.Extents), "what the root has is in the package itself")
	deb := whole(t, built, root)
	assert.Equal(t, fmt.Sprintf("%x", sha256.Sum256(deb)), Field(built.Stanza, "SHA256"))
	control, err := ReadControl(bytes.NewReader(deb))
	require.NoError(t, err)
	assert.Equal(t, build.Control, control)

	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("the rest needs dpkg-deb")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, built.Name)
	require.NoError(t, os.WriteFile(file, deb, 0o644))
	listed, err := exec.Command("dpkg-deb", "--contents", file).CombinedOutput()
	require.NoError(t, err, "%s", listed)
	for _, line := range []string{
		"drwxr-xr-x root/root         0 2023-11-14 22:13 ./usr/bin/\n",
		"lrwxrwxrwx root/root         0 2023-11-14 22:13 ./usr/bin/greeter -> ../lib/odd\n",
		"-rwxr-xr-x root/root      2331 2023-11-14 22:13 ./usr/lib/odd\n",
	} {
		assert.Contains(t, string(listed), line)
	}
	out, err := exec.Command("dpkg-deb", "--raw-extract", file, filepath.Join(dir, "x")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, want := range map[string][]byte{
		"usr/lib/odd": root["opt/odd"].Data, "usr/lib/even": root["opt/even"].Data, "etc/greeter": []byte("hello\n"),
		"DEBIAN/conffiles": []byte("/etc/greeter\n"), "DEBIAN/postinst": []byte("#!/bin/sh\n"),
	} {
		is, err := os.ReadFile(filepath.Join(dir, "x", name))
		require.NoError(t, err)
		assert.Equal(t, want, is, name)
	}
}

func sources(all []extent.Extent) (names []string) {
	for _, e := range all {
		names = append(names, e.Source)
	}
	return names
}

func TestEqualPackagesAreEqualBytes(t *testing.T) {
	build, root := greeter()
	first, err := build.Build(root)
	require.NoError(t, err)
	again, _ := greeter()
	again.Files[0], again.Files[3] = again.Files[3], again.Files[0]
	root["opt/odd"].ModTime = time.Now()
	second, err := again.Build(root)
	require.NoError(t, err)
	assert.Equal(t, first.Stanza, second.Stanza)
	assert.Equal(t, whole(t, first, root), whole(t, second, root))
}

func TestWhatCannotBeBuilt(t *testing.T) {
	build, root := greeter()
	delete(root, "opt/odd")
	_, err := build.Build(root)
	require.ErrorIs(t, err, fs.ErrNotExist)
	root["opt/odd"] = &fstest.MapFile{}
	_, err = build.Build(root)
	require.ErrorContains(t, err, "build package greeter: /opt/odd is not a file with content")
	build, _ = greeter()
	build.Control = "Package: greeter\n"
	_, err = build.Build(root)
	require.ErrorContains(t, err, "its version")
	build, root = greeter()
	_, err = build.Build(shortened{root})
	assert.ErrorIs(t, err, io.EOF, "a source that ends early")
}

// shortened says of files that they have what they have not.
type shortened struct{ fstest.MapFS }

func (s shortened) Open(name string) (fs.File, error) {
	f, err := s.MapFS.Open(name)
	if err != nil {
		return nil, err
	}
	return noContent{f}, nil
}

type noContent struct{ fs.File }

func (noContent) Read([]byte) (int, error) { return 0, io.EOF }
