package api_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3test"
	"firstlight.dev/firstlight/daemon/uploads/client"
)

// A disk of 10 GiB that is nearly all holes comes whole, and the agent holds no more of it
// than of a small one. It needs 20 GiB of disk for some minutes.
func TestTenSparseGiB(t *testing.T) {
	if !s3test.IsEnabled(s3test.All) {
		t.Skip("writes 20 GiB; set FIRSTLIGHT_TEST=" + s3test.All)
	}
	c := inFolder(t)
	l := newLab(t, c, nil)
	l.inProcess(c, 0)
	const size = 10 << 30
	path := filepath.Join(t.TempDir(), "disk.raw")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(size))
	for _, at := range []int64{446, 16<<20 - 3, 5<<30 + 1, size - 5} {
		_, err := f.WriteAt([]byte("data!"), at)
		require.NoError(t, err)
	}
	_, err = f.WriteAt([]byte{0x55, 0xaa}, 510)
	require.NoError(t, err)

	sender := client.Client{URL: l.url, HTTP: l.client, Token: "admin"}
	k := artifact.Key{Collection: artifact.OS, Owner: "alpha", Cluster: "beta", Name: "holes"}
	r, err := sender.Push(t.Context(), k, path, artifact.Metadata{}, false, func(string, int64, int64) {})
	require.NoError(t, err)
	assert.Equal(t, "raw", r.Format)
	assert.Equal(t, int64(size), r.VirtualSize)

	request, err := http.NewRequest("GET", l.url+k.ContentPath(), nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer admin")
	response, err := l.client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, response.Body)
	require.NoError(t, err)
	assert.Equal(t, int64(size), n)
	assert.Equal(t, r.SHA256, hex.EncodeToString(sum.Sum(nil)), "and is given back as it came")
	peak := resident(t, l.pid)
	t.Logf("sha256 %s; the agent had %d MiB resident at most", r.SHA256, peak>>20)
	assert.Less(t, peak, int64(128<<20))
}

// resident is the most memory that a process ever had resident, in octets.
func resident(t *testing.T, pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	_, after, found := strings.Cut(string(text), "VmHWM:")
	require.True(t, found)
	kib, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	require.NoError(t, err)
	return kib << 10
}
