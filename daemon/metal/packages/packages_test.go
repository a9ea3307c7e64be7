package packages

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"

	"firstlight.dev/firstlight/daemon/metal/packages/apttest"
)

const hello = "Package: hello\nVersion: 1:2.10-3~bpo+1\nArchitecture: amd64\nMaintainer: nobody <nobody@example.org>\nDepends: libc6 (>= 2.36)\nDescription: says hello\n And no more.\n"

// deb is a package with a control file, compressed as its extension says.
func deb(t testing.TB, control, compression string) []byte {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for name, text := range map[string]string{"./control": control, "./md5sums": ""} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}))
		_, err := io.WriteString(w, text)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	var part bytes.Buffer
	var z io.WriteCloser
	var err error
	switch compression {
	case "":
		part = archive
	case ".gz":
		z = gzip.NewWriter(&part)
	case ".xz":
		z, err = xz.NewWriter(&part)
	case ".zst":
		z, err = zstd.NewWriter(&part)
	}
	require.NoError(t, err)
	if z != nil {
		_, err = archive.WriteTo(z)
		require.NoError(t, err)
		require.NoError(t, z.Close())
	}
	var out bytes.Buffer
	out.WriteString("!<arch>\n")
	for _, m := range []struct {
		name string
		data []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar" + compression, part.Bytes()}, {"data.tar", nil}} {
		fmt.Fprintf(&out, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, 0, 0, 0, "100644", len(m.data))
		out.Write(m.data)
		if len(m.data)%2 == 1 {
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}

func TestControl(t *testing.T) {
	for _, compression := range []string{"", ".gz", ".xz", ".zst"} {
		text, err := ReadControl(bytes.NewReader(deb(t, hello, compression)))
		require.NoError(t, err, compression)
		assert.Equal(t, hello, text)
	}
	for says, control := range map[string]string{
		"has an empty line":               hello + "\nPackage: bash\n",
		"has the field Filename":          hello + "Filename: ../../etc/shadow\n",
		"has the field sha256":            "sha256: 00\n" + hello,
		"is no field":                     hello + "nonsense\n",
		`its name "" is none`:             "Version: 1\nArchitecture: amd64\n",
		`its name "../x" is none`:         "Package: ../x\nVersion: 1\nArchitecture: amd64\n",
		`its version "x;y" is none`:       "Package: hello\nVersion: x;y\nArchitecture: amd64\n",
		`it is for "arm64"; nodes are`:    "Package: hello\nVersion: 1\nArchitecture: arm64\n",
		"its control file is not text":    "Package: hello\x00\n",
		"it is for \"\"; nodes are amd64": "Package: hello\nVersion: 1\n",
	} {
		_, err := ReadControl(bytes.NewReader(deb(t, control, ".xz")))
		assert.ErrorContains(t, err, says)
	}
	whole := deb(t, hello, ".gz")
	for n := range len(whole) / 2 {
		_, err := ReadControl(bytes.NewReader(whole[:n]))
		assert.Error(t, err, "the first %d bytes", n)
	}
}

// TestAPackageDoesNotSayHowMuchMemoryItGets: a few hundred bytes whose dictionary is said to be 1.5 GiB.
func TestAPackageDoesNotSayHowMuchMemoryItGets(t *testing.T) {
	whole := deb(t, hello, ".xz")
	stream := bytes.Index(whole, []byte("\xfd7zXZ\x00"))
	require.Positive(t, stream)
	header := whole[stream+12:] // of the first block (the .xz file format, 3.1)
	size := (int(header[0]) + 1) * 4
	filter := bytes.Index(header[:size], []byte{0x21, 1})
	require.Positive(t, filter)
	header[filter+2] = 37 // 3 << 29
	binary.LittleEndian.PutUint32(header[size-4:], crc32.ChecksumIEEE(header[:size-4]))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := ReadControl(bytes.NewReader(whole))
	runtime.ReadMemStats(&after)
	assert.ErrorContains(t, err, "unpack control.tar")
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20))
}

func FuzzControl(f *testing.F) {
	for _, compression := range []string{"", ".gz", ".xz", ".zst"} {
		f.Add(deb(f, hello, compression))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		text, err := ReadControl(bytes.NewReader(data))
		if err == nil {
			assert.NotContains(t, text, "\n\n", "one package describes another")
			assert.True(t, strings.HasSuffix(text, "\n"))
		}
	})
}

// repository is one with a package on the stick and one that was brought.
func repository(t *testing.T) (r *Repository, served string) {
	dir := t.TempDir()
	key, err := OpenKey(filepath.Join(dir, "secret", "packages.key"))
	require.NoError(t, err)
	served = filepath.Join(dir, "http")
	put := func(pool, name, control string) {
		require.NoError(t, os.MkdirAll(filepath.Join(served, pool), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(served, pool, name), deb(t, control, ".xz"), 0o644))
	}
	put("pool", "hello.deb", hello)
	put("local", "mine_1_all.deb", "Package: mine\nVersion: 1\nArchitecture: all\nMaintainer: me <me@example.org>\nDescription: mine\n")
	s, err := StanzaOf(filepath.Join(served, "pool", "hello.deb"))
	require.NoError(t, err)
	index := filepath.Join(dir, "Packages")
	require.NoError(t, os.WriteFile(index, []byte(s+"\n"), 0o644))
	return &Repository{Dir: served, Key: key, Now: time.Now,
		Pools: []Pool{{Dir: filepath.Join(served, "pool"), Path: "pool", Index: index}, {Dir: filepath.Join(served, "local"), Path: "local"}}}, served
}

func TestTheIndexFollowsThePools(t *testing.T) {
	r, served := repository(t)
	changed, err := r.Write(t.Context())
	require.NoError(t, err)
	assert.True(t, changed)
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(served, "dists", Suite, name))
		require.NoError(t, err)
		return string(b)
	}
	index := read(indexPath)
	assert.Contains(t, index, "Filename: pool/hello.deb\n")
	assert.Contains(t, index, "Filename: local/mine_1_all.deb\n")
	assert.NotContains(t, index, "\n\n\n")
	first := read("InRelease")

	changed, err = r.Write(t.Context())
	require.NoError(t, err)
	assert.False(t, changed)
	assert.Equal(t, first, read("InRelease"), "it was signed again for nothing")

	// The clock went back ten years and a package was taken away: the new index is still the newer one.
	before, ok := r.Key.open([]byte(first))
	require.True(t, ok)
	r.Now = func() time.Time { return time.Now().AddDate(-10, 0, 0) }
	require.NoError(t, os.Remove(filepath.Join(served, "local", "mine_1_all.deb")))
	changed, err = r.Write(t.Context())
	require.NoError(t, err)
	assert.True(t, changed)
	after, ok := r.Key.open([]byte(read("InRelease")))
	require.True(t, ok)
	assert.True(t, dateOf(after).After(dateOf(before)))

	// A torn file, as a power cut could leave it, is written anew.
	require.NoError(t, os.WriteFile(filepath.Join(served, "dists", Suite, "InRelease"), []byte(first[:200]), 0o644))
	changed, err = r.Write(t.Context())
	require.NoError(t, err)
	assert.True(t, changed)

	require.NoError(t, os.WriteFile(filepath.Join(served, "local", "bad.deb"), []byte("hello"), 0o644))
	out := map[string]string{}
	r.LeftOut = func(file, why string) { out[filepath.Base(file)] = why }
	changed, err = r.Write(t.Context())
	require.NoError(t, err)
	assert.False(t, changed, "what is no package keeps no other back")
	assert.Contains(t, out["bad.deb"], ErrNoPackage.Error())

	// A newer one of a package that the stick carries, and one that is there twice.
	newer := strings.Replace(hello, "Version: ", "Version: 99.", 1)
	const mine = "Package: mine\nVersion: 2\nArchitecture: all\nMaintainer: me <me@example.org>\nDescription: mine\n"
	for name, control := range map[string]string{"newer.deb": newer, "one.deb": mine, "two.deb": mine} {
		require.NoError(t, os.WriteFile(filepath.Join(served, "local", name), deb(t, control, ".xz"), 0o644))
	}
	changed, err = r.Write(t.Context())
	require.NoError(t, err)
	assert.True(t, changed)
	assert.Equal(t, 1, strings.Count(read(indexPath), "Package: hello\n"), "the stick's stays alone")
	assert.Contains(t, read(indexPath), "Filename: local/one.deb\n")
	assert.Contains(t, out["newer.deb"], "the stick carries hello")
	assert.Equal(t, "local/one.deb is the same package in the same version", out["two.deb"])

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.Write(ctx)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestOldIndexesStayForAWhile(t *testing.T) {
	r, served := repository(t)
	for i := range maxIndexes + 5 {
		name := filepath.Join(served, "local", fmt.Sprintf("p%d.deb", i))
		require.NoError(t, os.WriteFile(name, deb(t, fmt.Sprintf("Package: p%d\nVersion: 1\nArchitecture: all\n", i), ".gz"), 0o644))
		_, err := r.Write(t.Context())
		require.NoError(t, err)
	}
	kept, err := filepath.Glob(filepath.Join(served, "dists", Suite, "main/binary-amd64/by-hash/SHA256/*"))
	require.NoError(t, err)
	assert.Len(t, kept, maxIndexes+1)
}

func TestKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a", "key")
	first, err := OpenKey(file)
	require.NoError(t, err)
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	again, err := OpenKey(file)
	require.NoError(t, err)
	assert.Equal(t, first.Public(), again.Public())
	signed, err := first.sign([]byte("text\n"))
	require.NoError(t, err)
	text, ok := again.open(signed)
	assert.True(t, ok)
	assert.Equal(t, "text\n", string(text))
	other, err := OpenKey(filepath.Join(t.TempDir(), "key"))
	require.NoError(t, err)
	_, ok = other.open(signed)
	assert.False(t, ok, "another appliance's signature was taken")
	_, ok = first.open(bytes.Replace(signed, []byte("text"), []byte("tixt"), 1))
	assert.False(t, ok)
	require.NoError(t, os.WriteFile(file, []byte("torn"), 0o600))
	_, err = OpenKey(file)
	assert.ErrorContains(t, err, "holds no key")
}

// client is an apt that trusts what it was told last.
type client struct {
	apttest.Client
	t *testing.T
}

func newClient(t *testing.T, served string) client {
	return client{apttest.New(t, filepath.Join(t.TempDir(), "key.asc"), "copy:"+served, Suite), t}
}

// update returns what apt says to a repository, by what it is told to trust.
func (c client) update(trusted []byte) string {
	c.t.Helper()
	require.NoError(c.t, os.WriteFile(c.Key, trusted, 0o644))
	text, err := c.Run("apt-get", "update")
	require.NoError(c.t, err, text)
	return text
}

// apt itself reads the repository: the one of this machine, with a configuration of the test's own.
func TestAptTakesIt(t *testing.T) {
	r, served := repository(t)
	c := newClient(t, served)
	_, err := r.Write(t.Context())
	require.NoError(t, err)
	out, err := exec.Command("gpgv", "--keyring", dearmored(t, r.Key, t.TempDir()), filepath.Join(served, "dists", Suite, "InRelease")).CombinedOutput()
	require.NoError(t, err, string(out))

	assert.NotContains(t, c.update(r.Key.Public()), "W:", "apt complains")
	text, err := c.Run("apt-cache", "policy", "hello", "mine")
	require.NoError(t, err, text)
	assert.Contains(t, text, "Candidate: 1:2.10-3~bpo+1")
	assert.Contains(t, text, "Candidate: 1\n")

	release := filepath.Join(served, "dists", Suite, "InRelease")
	signed, err := os.ReadFile(release)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(release, bytes.Replace(signed, []byte("Firstlight"), []byte("Somebodyel"), 1), 0o644))
	text, _ = c.Run("apt-get", "update")
	assert.Contains(t, text, "BADSIG", "a forged index was taken")
}

// dearmored is the key as gpgv of every age takes it.
func dearmored(t *testing.T, k *Key, dir string) string {
	var b bytes.Buffer
	require.NoError(t, k.entity.Serialize(&b))
	path := filepath.Join(dir, "key.gpg")
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
	return path
}
