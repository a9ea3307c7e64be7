package mirror

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"testing/fstest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/daemon/metal/packages/kubernetes"
	"firstlight.dev/firstlight/pxe/bootserver"
	"firstlight.dev/firstlight/pxe/metrics"
)

// The boot server puts a package together, also from the middle: apt goes on where a download ended.
func TestPackagesOfKubernetesAreServed(t *testing.T) {
	const images, digest = "usr/share/firstlight/images/", "77198038ab1920073071036236e62637c8561dffb3a79b1e26d76fd59928999d"
	layer := images + "layers/" + digest + "/fs/usr/"
	stick := fstest.MapFS{
		images + "index.json": {Data: fmt.Appendf(nil, `{"manifests":[{"digest":"sha256:%s","annotations":{
			"org.opencontainers.image.ref.name":"%s/node:v%s"}}]}`, digest, assets.ImageDomain, assets.Version)},
		images + "blobs/sha256/" + digest:           {Data: fmt.Appendf(nil, `{"layers":[{"digest":"sha256:%s"}]}`, digest)},
		layer + "bin/kubernetes":                    {Data: make([]byte, 1<<20)},
		layer + "bin/firstlight-node":               {Data: []byte("firstlight-node")},
		layer + "lib/firstlight/cni/cni":            {Data: []byte("cni")},
		"usr/bin/containerd":                        {Data: []byte("containerd")},
		"usr/bin/containerd-shim-runc-v2":           {Data: []byte("shim")},
		"usr/lib/systemd/system/containerd.service": {Data: []byte("[Service]")},
	}
	m := &Mirror{Log: slog.New(slog.DiscardHandler), Kubernetes: &kubernetes.Pool{Root: stick, Dir: t.TempDir()}}
	base := serve(t, m)

	all, err := kubernetes.Build(stick)
	require.NoError(t, err)
	for _, b := range all {
		code, whole := get(t, base+b.Name, "")
		assert.Equal(t, http.StatusOK, code)
		assert.Len(t, whole, int(b.Size))
		code, rest := get(t, base+b.Name, "bytes=1000-")
		assert.Equal(t, http.StatusPartialContent, code)
		assert.Equal(t, whole[1000:], rest, b.Name)
	}
	code, _ := get(t, base+"none.deb", "")
	assert.Equal(t, http.StatusNotFound, code)
}

// serve serves what the boot server has of packages, and returns where those of Kubernetes are.
func serve(t *testing.T, m *Mirror) string {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, root.Close()) })
	s := &bootserver.Server{
		Addr:    netip.MustParseAddrPort("127.0.0.1:0"),
		Metrics: metrics.New(prometheus.NewRegistry()),
		Log:     slog.New(slog.DiscardHandler),
	}
	for _, mount := range m.Mounts() {
		s.Mounts = append(s.Mounts, bootserver.Mount{Path: mount.Path, Root: root, Open: mount.Open})
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	return "http://" + listener.Addr().String() + "/debian/kubernetes/"
}

func get(t *testing.T, url, part string) (int, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	if part != "" {
		request.Header.Set("Range", part)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, text
}
