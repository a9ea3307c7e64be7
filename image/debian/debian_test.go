package debian

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/cache"
)

func TestMirrorOfThisMachine(t *testing.T) {
	m, err := mirrorOf([]string{"http://other/node", "http://near/debian/", "http://near/debian-security/", "http://far/debian"})
	require.NoError(t, err)
	assert.Equal(t, Mirror{Debian: "http://near/debian", Security: "http://near/debian-security"}, m)
	m, err = mirrorOf([]string{"http://near/debian"})
	require.NoError(t, err)
	assert.Equal(t, "http://near/debian-security", m.Security)
	_, err = mirrorOf([]string{"http://near/ubuntu"})
	assert.ErrorContains(t, err, "name one with --mirror")
	m, err = FindMirror(context.Background(), "http://mine/debian/")
	require.NoError(t, err)
	assert.Equal(t, "http://mine/debian-security/pool/updates/main/x.deb", m.URL(Package{Path: "debian-security/pool/updates/main/x.deb"}))
	assert.Equal(t, "http://mine/debian/pool/main/x.deb", m.URL(Package{Path: "debian/pool/main/x.deb"}))
}

const stanzas = `Package: zlib1g
Source: zlib (1:1.3)
Version: 1:1.3.dfsg-1
Architecture: amd64
Description: compression library
 Version: this line continues a description
Section: libs
Filename: pool/main/z/zlib/zlib1g_1.3_amd64.deb
Size: 88000
SHA256: %[1]s

Package: openssl
Version: 3.5.1
Architecture: amd64
Section: utils
Filename: pool/updates/main/o/openssl/openssl.deb
Size: 1400000
SHA256: %[1]s
`

func TestStanzas(t *testing.T) {
	sum := strings.Repeat("0", 64)
	found, err := parseStanzas(fmt.Sprintf(stanzas, sum))
	require.NoError(t, err)
	assert.Equal(t, []Package{
		{Name: "zlib1g", Version: "1:1.3.dfsg-1", Arch: "amd64", Section: "libs", Size: 88000, SHA256: sum, Path: "debian/pool/main/z/zlib/zlib1g_1.3_amd64.deb"},
		{Name: "openssl", Version: "3.5.1", Arch: "amd64", Section: "utils", Size: 1400000, SHA256: sum, Path: "debian-security/pool/updates/main/o/openssl/openssl.deb"},
	}, found)
	picked, err := pickStanzas([]string{"openssl=3.5.1"}, found)
	require.NoError(t, err)
	assert.Equal(t, "openssl", picked[0].Name)
	_, err = pickStanzas([]string{"openssl=4"}, found)
	assert.ErrorContains(t, err, "openssl=4")
	_, err = parseStanzas("Package: x\nVersion: 1\n")
	assert.ErrorContains(t, err, "no SHA256")
	_, err = parseStanzas("Package: x\nSize: big\n")
	assert.ErrorContains(t, err, `size "big"`)
}

func TestSimulationLines(t *testing.T) {
	for line, want := range map[string][]string{
		"Inst libc6 (2.41-12+deb13u4 Debian:13.7/stable [amd64]) []":                      {"libc6", "2.41-12+deb13u4", "amd64"},
		"Inst apt (3.0.4 Debian:13.7/stable, Debian-Security:13/stable-security [amd64])": {"apt", "3.0.4", "amd64"},
		"Inst adduser [3.1] (3.152 Debian:13.7/stable [all])":                             {"adduser", "3.152", "all"},
	} {
		m := instLine.FindStringSubmatch(line)
		require.NotNil(t, m, line)
		assert.Equal(t, want, m[1:])
	}
	assert.Nil(t, instLine.FindStringSubmatch("Conf libc6 (2.41 Debian:13.7/stable [amd64])"))
}

func TestPathPatternsMatchAsDpkgDoes(t *testing.T) {
	exclude, include := []string{"/usr/share/doc/*", "/etc/x?"}, []string{"/usr/share/doc/*/copyright"}
	for path, want := range map[string]bool{
		"/usr/share/doc/a/changelog.gz": true, "/usr/share/doc/a/b/c": true, "/usr/share/doc/a/copyright": false,
		"/usr/share/docs": false, "/etc/x1": true, "/etc/x": false, "/etc/x12": false,
	} {
		assert.Equal(t, want, IsExcluded(path, exclude, include), path)
	}
}

func TestInstalled(t *testing.T) {
	assert.Equal(t, map[string]string{"a": "1", "b": "2:3"},
		ParseInstalled([]byte("Package: a\nStatus: install ok installed\nVersion: 1\nDescription: x\n Version: no\n\nPackage: b\nVersion: 2:3\n")))
}

func TestFetchTakesOnlyTheLockedBytes(t *testing.T) {
	content := []byte("a package")
	good := Package{Name: "good", Version: "1", SHA256: fmt.Sprintf("%x", sha256.Sum256(content)), Path: "debian/good.deb"}
	forged := Package{Name: "forged", Version: "1", SHA256: strings.Repeat("1", 64), Path: "debian/good.deb"}
	gone := Package{Name: "gone", Version: "2", SHA256: strings.Repeat("2", 64), Path: "debian/gone.deb"}
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.URL.Path != "/debian/good.deb" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(content)
	}))
	defer server.Close()
	mirror := func() (Mirror, error) { return FindMirror(context.Background(), server.URL+"/debian") }
	store := cache.Store{Dir: t.TempDir()}
	fetch := func(p ...Package) (map[string]string, error) {
		return Fetch(context.Background(), store, mirror, p, func(int, int) {})
	}

	files, err := fetch(good)
	require.NoError(t, err)
	text, err := os.ReadFile(files[good.SHA256])
	require.NoError(t, err)
	assert.Equal(t, content, text)
	_, err = fetch(good)
	require.NoError(t, err)
	assert.Equal(t, int32(1), requests.Load(), "what the cache has is not fetched again")

	_, err = fetch(good, forged)
	assert.ErrorContains(t, err, "sha256 is "+good.SHA256+" and not "+forged.SHA256)
	_, err = fetch(gone)
	var missing *MissingPackageError
	require.ErrorAs(t, err, &missing)
	assert.Contains(t, err.Error(), "fetch gone 2: ")
	assert.Contains(t, err.Error(), "run `firstlight lock` for its successor")
}

func TestComplaintsAreShortened(t *testing.T) {
	assert.Equal(t, "E: Unable to locate package nonesuch", SummarizeComplaints("Reading package lists...\nE: Unable to locate package nonesuch\n"))
	assert.Equal(t, "2 | 3 | 4 | 5 | 6", SummarizeComplaints("1\n2\n3\n4\n5\n6\n"))
}
